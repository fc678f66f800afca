"""Every control request and its refusals."""

import errno
import os
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from logfs.control.requests import REQUESTS
from logfs.errors import (
    ControlError,
    CorruptRecordError,
    InvalidConfigError,
    LogfsError,
    NoSuchTopicError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    TopicExistsError,
    UnparsableLineError,
)
from logfs.log.writing.producerbatches import Appended
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.types import TopicPartition
from tests.fs.served import Served
from tests.fs.world import START_MS, World, refused
from tests.log.support import records_in


@pytest.fixture
async def served(orders: World, tmp_path: Path, nursery: trio.Nursery) -> Served:
    return Served(orders, tmp_path, nursery)


@pytest.mark.parametrize("name", REQUESTS)
async def test_the_daemon_answers_every_request_of_the_table(served: Served, name: str) -> None:
    values: dict[type, object] = {str: "orders", int: 0, bool: False, list: [], dict: {}}
    fields = {key: values[field.kind] for key, field in REQUESTS[name].fields.items()}
    error: Exception | None = None
    try:
        await served.ask(name, b"", **fields)
    except (LogfsError, OSError) as caught:
        error = caught
    assert "a bug in logfs" not in str(error)


async def test_topics_can_be_created_altered_and_deleted(served: Served) -> None:
    config = {"retention.ms": "1000000000"}
    assert await served.ask("create", topic="new", partitions=3, config=config) == []
    assert await served.ask("topics") == {"new": 3, "orders": 1}
    await served.world.append("new/2", b"a\n")
    [warning] = await served.ask("alter", topic="new", changes={"segment.ms": "9999999999"},
                                 partitions=4)  # fmt: skip
    assert warning.startswith("segment.ms=9999999999 is longer than")
    facts = await served.ask("describe", topic="new")
    assert facts["config"] == {**config, "segment.ms": "9999999999"}
    assert [meta["log_end_offset"] for meta in facts["partitions"]] == [0, 0, 1, 0]
    back = {"segment.ms": None}
    assert await served.ask("alter", topic="new", changes=back, partitions=None) == []
    await served.ask("delete", topic="new")
    assert await served.ask("topics") == {"orders": 1}
    assert served.kernel.names == ["new"]
    assert await refused(served.world.find("new")) == errno.ENOENT


@pytest.mark.parametrize(
    ("request_", "arguments", "error", "text"),
    [
        ("create", {"topic": "orders", "partitions": 1, "config": {}}, TopicExistsError, "exists"),
        ("create", {"topic": "x", "partitions": 1, "config": {"a": "b"}}, InvalidConfigError, "a"),
        ("create", {"topic": "x", "partitions": 0, "config": {}}, InvalidConfigError, "expected 1"),
        ("create", {"topic": "x", "partitions": 1, "config": {"a": None}}, ControlError, "texts"),
        ("create", {"topic": 5, "partitions": 1, "config": {}}, ControlError, "topic=5: expected"),
        ("alter", {"topic": "x", "changes": {}, "partitions": 2}, NoSuchTopicError, "no topic x"),
        ("alter", {"topic": "orders", "changes": {"flush.ms": None}, "partitions": None},
         InvalidConfigError, "flush.ms is not set for topic orders"),
        ("delete", {"topic": "x"}, NoSuchTopicError, "no topic x"),
        ("delete", {"topic": ".segments"}, ControlError, "'.segments' is no topic"),
        ("trim", {"names": ["orders", "0@offset=9"], "at_once": False}, OffsetOutOfRangeError,
         "offset 9 is outside"),
        ("trim", {"names": ["orders", "0@offset=9"]}, ControlError, "at_once=None: expected bool"),
        ("fly", {}, ControlError, "'fly' is no request that this daemon knows"),
    ],
)  # fmt: skip
async def test_a_refused_request_raises_the_error_of_the_store(
    served: Served, request_: str, arguments: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await served.ask(request_, b"", **arguments)


async def test_trim_deletes_the_records_before_a_point(served: Served) -> None:
    world = served.world
    await served.ask("alter", topic="orders", changes={"internal.segment.bytes": "100"},
                     partitions=2)  # fmt: skip
    for line in (b"a\n", b"b\n", b"c\n"):
        await world.append("orders/0", line)
    fixed = await world.open("orders/0@earliest..latest")
    await world.find("orders/0")
    [done] = await served.ask("trim", names=["orders", "0@offset=2"], at_once=False)
    assert (done["partition"], done["log_start_offset"], done["segments"]) == (0, 2, 2)
    assert served.kernel.inodes == []
    assert await world.cat("orders/0") == b"c\n"
    done = await served.ask("trim", names=["orders@latest"], at_once=True)
    assert [(x["partition"], x["log_start_offset"]) for x in done] == [(0, 3), (1, 0)]
    assert done[0]["held_bytes"] == 3 * 69
    assert served.kernel.inodes == [fixed.inode], "what the kernel has cached, and nothing else"
    assert await world.cat("orders/0") == b""
    assert await world.read(fixed, 0) == b"a\nb\nc\n"
    await world.close(fixed)


RECORDS = [
    Record(0, START_MS, b"k", b"v", ((b"h", None),)),
    Record(0, START_MS + 1, None, b"\xff"),
    Record(0, START_MS + 2, b"k", None),
]
TP = TopicPartition("orders", 0)


def with_offsets(records: list[Record], base_offset: int) -> list[Record]:
    return [r._replace(offset=base_offset + n) for n, r in enumerate(records)]


async def test_appended_records_get_the_next_offsets(served: Served) -> None:
    world = served.world
    await world.append("orders/0", b"before\n")

    def append() -> Appended:
        with served.daemon() as daemon:
            return daemon.append(TP, RECORDS)

    assert await trio.to_thread.run_sync(append) == Appended(1, 3)
    log = world.store.partition("orders", 0)
    assert log.recovery_point == 0
    name = log.snapshot.active.name
    assert records_in(world.disk.read(name))[1:] == with_offsets(RECORDS, 1)
    assert (await world.cat("orders/0.jsonl")).count(b"\n") == 4

    def append_durably() -> Appended:
        with served.daemon() as daemon:
            return daemon.append(TP, [Record(0, START_MS, None, b"x" * 3_000_000)], is_durable=True)

    served.world.store.alter_topic("orders", {"max.message.bytes": "4000000"})
    assert await trio.to_thread.run_sync(append_durably) == Appended(4, 4)
    assert log.recovery_point == 5


async def test_a_repeated_append_of_a_producer_appends_once(served: Served) -> None:
    def append(sequence: int, *, transactional: bool = False) -> Appended:
        producer = ProducerBatch(7, 0, sequence, transactional)
        with served.daemon() as daemon:
            return daemon.append(TP, RECORDS, producer)

    run = trio.to_thread.run_sync
    assert await run(append, 0) == Appended(0, 2)
    assert await run(append, 0) == Appended(0, 2, True)
    assert await run(append, 3) == Appended(3, 5)
    with pytest.raises(OutOfOrderSequenceError):
        await run(append, 9)
    await run(lambda: append(6, transactional=True))
    log = served.world.store.partition("orders", 0)
    assert (log.last_stable_offset, log.log_end_offset) == (6, 9)

    def commit() -> int:
        with served.daemon() as daemon:
            return daemon.end_transaction(TP, 7, 0, commit=True, is_durable=True)

    assert await run(commit) == 9
    assert (log.last_stable_offset, log.recovery_point) == (10, 10)


async def test_a_refused_append_appends_nothing(served: Served) -> None:
    def append(records: list[Record], topic: str = "orders") -> Appended:
        with served.daemon() as daemon:
            return daemon.append(TopicPartition(topic, 0), records)

    async def refused_with(error: type[Exception], records: list[Record]) -> None:
        with pytest.raises(error):
            await trio.to_thread.run_sync(append, records)

    with pytest.raises(NoSuchTopicError):
        await trio.to_thread.run_sync(append, RECORDS, "nix")
    await refused_with(RecordTooLargeError, [Record(0, START_MS, None, bytes(2_000_000))])
    await refused_with(UnparsableLineError, [Record(0, START_MS + 10**12, None, b"v")])
    await refused_with(ControlError, [Record(0, START_MS, None, bytes(40_000_000))] * 2)
    with pytest.raises(CorruptRecordError):
        await served.ask("append", topic="orders", partition=0, is_durable=False, payload=b"x" * 99)
    await served.ask("alter", topic="orders", changes={"cleanup.policy": "compact"},
                     partitions=None)  # fmt: skip
    await refused_with(UnparsableLineError, [Record(0, START_MS, None, b"no key")])
    assert served.world.store.partition("orders", 0).log_end_offset == 0


async def test_retention_deletes_rolled_segments(served: Served) -> None:
    await served.ask("alter", topic="orders", changes={"retention.bytes": "0"}, partitions=None)
    assert await served.ask("retention") == []
    await served.world.append("orders/0", b"a\nb\n")
    assert await served.ask("roll", topic="orders", partition=0) == 2
    [[topic, partition, deletion]] = await served.ask("retention")
    assert (topic, partition, deletion["start"]) == ("orders", 0, [0, 2])


async def test_a_fixed_name_after_trim_at_once_shows_the_rest_when_looked_up_again(
    served: Served,
) -> None:
    world, name = served.world, "orders/0@earliest..latest"
    world.store.alter_topic("orders", {"internal.segment.bytes": "100"})
    for line in (b"a\n", b"b\n"):
        await world.append("orders/0", line)
    inode = (await world.find(name)).st_ino
    world.clock.advance(2)
    assert (await world.find(name)).st_ino == inode, "another answer, the same file"
    await served.ask("trim", names=["orders", "0@offset=1"], at_once=True)
    assert await refused(world.operations.open(inode, os.O_RDONLY, world.user)) == errno.ESTALE
    assert await world.cat(name) == b"b\n"


async def test_a_raw_file_that_was_removed_is_stale_for_open(served: Served) -> None:
    world = served.world
    world.store.alter_topic("orders", {"internal.segment.bytes": "100"})
    for line in (b"a\n", b"b\n"):
        await world.append("orders/0", line)
    inode = (await world.find(f".segments/orders-0/{0:020}.log")).st_ino
    await served.ask("trim", names=["orders", "0@latest"], at_once=True)
    assert await refused(world.operations.open(inode, os.O_RDONLY, world.user)) == errno.ESTALE


async def test_compaction_reports_its_progress(served: Served) -> None:
    world = served.world
    config = {"cleanup.policy": "compact", "internal.segment.bytes": "300"}
    await served.ask("create", topic="keyed", partitions=1, config=config)
    for number in range(20):
        await world.append("keyed/0.tsv", b"k%d\tv\n" % (number % 3))
    lines: list[str] = []

    def compact() -> list[dict[str, object]]:
        request = {"topic": "keyed", "partition": None, "roll": True}
        with served.daemon() as daemon:
            return list(daemon.ask("compact", request, progress=lines.append))

    [done] = await trio.to_thread.run_sync(compact)
    assert (done["read_records"], done["written_records"]) == (20, 3)
    assert lines[-1].startswith("keyed/0: 100 % of")
