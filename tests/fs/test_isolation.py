"""Isolation levels of a mount, through handlers called directly."""

import json
import os

import pytest

from logfs.types import IsolationLevel, View
from tests.fs.world import World
from tests.log.isolation import held_back, interleaved, put
from tests.log.transactions import ABORT, TransactionLog, append_batch, marker
from tests.records.oracle import rendering

LEVELS = list(IsolationLevel)


def mounted(log: TransactionLog, level: IsolationLevel) -> World:
    """Mount what a log of transactions left on its disk."""
    world = World(
        log.bench.disk.after_kill(), options=f"isolation.level={level}", boot=log.bench.boot
    )
    partition, made = world.store.partition("t", 0), log.log.snapshot
    assert partition.snapshot.aborted == made.aborted
    partition.state.snapshot = partition.snapshot._replace(watermark=made.watermark)
    return world


@pytest.mark.parametrize("level", LEVELS)
async def test_every_name_ends_where_the_level_ends(level: IsolationLevel) -> None:
    log = held_back()
    world, model = mounted(log, level), log.seen(level).model
    expected = {view: log.text(level, view) for view in View}
    for view, name in zip(View, ("t/0", "t/0.tsv", "t/0.jsonl"), strict=True):
        assert await world.cat(name, 333) == expected[view]
        assert (await world.find(name)).st_size == model.end[view]
        assert await world.xattr(name, "end") == str(model.end[view])
    fixed = await world.find("t/0@earliest..latest")
    assert fixed.st_size == len(expected[View.TEXT])
    assert await world.cat("t/0@earliest..latest") == expected[View.TEXT]
    assert await world.cat("t/0@earliest") == expected[View.TEXT]
    assert await world.cat("t/0@latest") == b""
    ahead = await world.open(f"t/0@earliest..offset={model.end_offset + 1}")
    assert ahead.is_direct
    reached = await world.open(f"t/0@earliest..offset={model.end_offset}")
    assert reached.keeps_cache


@pytest.mark.parametrize("level", LEVELS)
async def test_facts(level: IsolationLevel) -> None:
    log = held_back()
    world = mounted(log, level)
    facts = {
        "isolation_level": level,
        "log_end_offset": str(log.model.end_offset),
        "last_stable_offset": str(log.stable_offset),
        "high_watermark": str(log.watermark),
    }
    assert {name: await world.xattr("t/0", name) for name in facts} == facts
    meta = json.loads(await world.cat("t/0.meta"))
    assert {name: str(meta[name]) for name in facts} == facts
    assert meta["positions"]["tsv"]["end"] == log.seen(level).model.end.tsv


@pytest.mark.parametrize("level", LEVELS)
async def test_segments_as_text_follow_the_level_and_raw_files_do_not(
    level: IsolationLevel,
) -> None:
    log = held_back()
    world, data = mounted(log, level), b""
    for segment in world.store.partition("t", 0).snapshot.segments:
        name = f".segments/t-0/{segment.base_offset:020}"
        data += await world.cat(f"{name}.txt")
        assert await world.cat(f"{name}.log") == log.bench.disk.read(segment.name)
    assert data == log.text(level)


async def test_positions_are_the_same_at_every_level() -> None:
    log = interleaved()
    worlds = [mounted(log, level) for level in LEVELS]
    for kept in log.committed():
        begin, end = kept.positions.text, kept.ends.text
        for world in worlds:
            handle = await world.open("t/0")
            assert await world.read(handle, begin, end - begin) == rendering(0, kept.record)
            starts = await world.find(f"t/0@offset={kept.record.offset}")
            assert await world.xattr(f"t/0@offset={kept.record.offset}", "start") == str(begin)
            assert starts.st_size == (await world.find("t/0")).st_size - begin


async def test_names_that_were_made_before_a_transaction_ended_do_not_change() -> None:
    log = TransactionLog({})
    put(log, 0)
    put(log, 1)
    world = mounted(log, IsolationLevel.READ_COMMITTED)
    fixed = await world.open("t/0@earliest..latest")
    before = await world.read(fixed, 0)
    growing, size = await world.open("t/0", os.O_RDONLY), (await world.find("t/0")).st_size
    assert await world.read(growing, 0) == before == log.text(IsolationLevel.READ_COMMITTED)
    partition, now_ms = world.store.partition("t", 0), world.clock.now_ms
    append_batch(partition, marker(1, partition.log_end_offset, ABORT, now_ms), (0, 0, 0), now_ms)
    world.clock.advance(2)
    assert await world.read(fixed, 0) == before
    assert (await world.find("t/0")).st_size > size  # the aborted records are a hole
    assert await world.read(growing, size) == b""
    assert (await world.find("t/0@earliest..latest")).st_size == len(before)
    await world.append("t/0", b"behind\n")
    assert await world.read(growing, size) == b"behind\n"


@pytest.mark.expect_log("loss: expired")
async def test_a_limit_that_was_reached_stays_when_the_log_starts_after_it() -> None:
    log = TransactionLog({"internal.segment.bytes": "1500"})
    world = mounted(log, IsolationLevel.READ_UNCOMMITTED)
    name = "t/0@earliest..offset=30"
    handle = await world.open(name)
    for number in range(60):
        await world.append("t/0", b"line %d\n" % number)
    size = sum(len(b"line %d\n" % n) for n in range(30))
    entry = await world.find(name)
    node = await world.operations.getattr(handle.inode, world.user)
    assert node.st_size == size
    partition = world.store.partition("t", 0)
    partition.advance_log_start_offset(45, world.clock.now_ms)
    node = await world.operations.getattr(handle.inode, world.user)
    assert node.st_size == size
    assert entry.st_ino != handle.inode  # looked up again it was fixed
    assert await world.read(handle, 0) == b""
