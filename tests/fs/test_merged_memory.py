"""What names that merge the partitions of a topic take of the daemon's memory."""

import errno
import os
import random
import stat
import tracemalloc

import pytest

from logfs.fs.tree import nodes
from logfs.services.views import merging
from logfs.services.views.buffers import Buffers
from tests.fs.world import World, fields, refused

MIB = 1 << 20
PARTITIONS = 60


async def large_batches(world: World, partitions: int = PARTITIONS) -> int:
    """Make a topic with one batch of 200 kB in each partition; returns its size."""
    await world.mkdir("orders")
    await world.close(await world.create(f"orders/{partitions - 1}"))
    for number in range(partitions):
        text = b"".join(b"%d %d %s\n" % (number, n, b"." * 190) for n in range(1000))
        await world.append(f"orders/{number}", text)
    return (await world.find("orders@earliest")).st_size


@pytest.mark.parametrize("name", ["orders@earliest", "orders@earliest..latest.jsonl"])
async def test_a_reader_takes_bytes_of_memory_not_batches_of_each_partition(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(merging, "MERGED_BYTES", MIB)
    await large_batches(world)
    handle = await world.open(name)
    tracemalloc.start()
    try:
        offset = 0
        while data := await world.read(handle, offset, 64 << 10):
            offset += len(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    await world.close(handle)
    assert offset == (await world.find(name)).st_size
    assert peak < 5 * MIB


@pytest.mark.parametrize("limit", [0, 30_000, 10 * MIB])
@pytest.mark.parametrize("view", ["", ".tsv", ".jsonl"])
async def test_readers_that_lose_their_memory_read_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch, view: str, limit: int
) -> None:
    chance = random.Random(limit)
    await world.mkdir("orders")
    await world.close(await world.create("orders/4"))
    for number in range(250):
        lines = b""
        for n in range(chance.randrange(1, 8)):
            length = chance.randrange(9_000 if not chance.randrange(9) else 90)
            lines += b"%d.%d %s\n" % (number, n, b"." * length)
        await world.append(f"orders/{chance.randrange(5)}", lines)
        world.clock.advance(chance.randrange(2))
    expected = await world.cat(f"orders@earliest{view}")

    # What was made with all batches in memory is made again of pieces, and of single lines.
    for name, value in ("MARK_BYTES", 7000), ("MERGED_BYTES", 1000), ("_SMALLEST_PIECE", 1500):
        monkeypatch.setattr(merging, name, value)
    buffers = world.operations.files.buffers = Buffers(limit)
    monkeypatch.setattr(merging, "PART_BYTES", 1 if limit else 0)
    handles = [await world.open(f"orders@earliest{view}") for _ in range(3)]
    offsets = [0, 0, 0]
    for _ in range(150):
        one = chance.randrange(3)
        if not chance.randrange(4):
            offsets[one] = chance.randrange(len(expected))
        offset, size = offsets[one], chance.randrange(1, 9000)
        data = await world.read(handles[one], offset, size)
        assert data == expected[offset : offset + size]
        assert buffers.kept_bytes <= limit
        offsets[one] = offset + len(data)
    for handle in handles:
        await world.close(handle)
    assert buffers.kept_bytes == 0


@pytest.mark.expect_log("orders@…: with this one, open files that merge partitions would keep 8192")
async def test_files_that_would_take_too_much_are_not_opened(world: World) -> None:
    await large_batches(world, 4)
    size = 4 * merging.PART_BYTES
    world.operations.files.buffers = Buffers(2 * 3 * size)
    handles = [await world.open("orders@earliest") for _ in range(3)]
    assert await refused(world.open("orders@earliest")) == errno.ENOMEM
    await world.close(handles.pop())
    handles.append(await world.open("orders@earliest.jsonl"))
    assert await refused(world.open("orders@earliest")) == errno.ENOMEM
    for handle in handles:
        assert len(await world.read(handle, 0, 1000)) == 1000
        await world.close(handle)


async def test_ranges_that_were_looked_up_take_little_until_they_are_opened(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.mkdir("orders")
    await world.close(await world.create("orders/49"))
    for number in range(50):
        await world.append(f"orders/{number}", b"line\n" * 100)
    monkeypatch.setattr(nodes, "MOST_KNOWN_PARTS", 200)
    await world.cat("orders@earliest")
    tracemalloc.start()
    try:
        for number in range(80):
            await world.find(f"orders@offset={number}..offset={number + 1}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < MIB


async def test_a_range_that_was_looked_up_long_ago_is_the_same_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await large_batches(world, 3)
    monkeypatch.setattr(nodes, "MOST_KNOWN_PARTS", 3)
    name, other = "orders@offset=1..offset=2", "orders@earliest..offset=3"
    expected = await world.cat(name)
    first = await world.find(name)
    handle = await world.open(name)
    assert await world.cat(other) != expected

    operations, ino = world.operations, first.st_ino
    for _ in range(2):
        found = await operations.getattr(ino, world.user)
        assert (found.st_size, found.st_mtime_ns) == (len(expected), first.st_mtime_ns)
    assert await refused(operations.open(ino, os.O_RDONLY, world.user)) == errno.ESTALE
    assert await world.read(handle, 0) == expected
    await world.close(handle)

    again = await world.open(name)  # the kernel does so after ESTALE: it looks the name up
    assert again.inode == ino
    await world.find(other)
    assert await world.read(again, 0) == expected
    await world.close(again)


async def test_a_range_looked_up_long_ago_obeys_what_has_happened_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await large_batches(world, 3)
    monkeypatch.setattr(nodes, "MOST_KNOWN_PARTS", 3)
    ino = (await world.find("orders@offset=1..offset=2")).st_ino
    await world.find("orders@earliest")
    entry = await world.find("orders/1")
    entry.st_mode = stat.S_IFREG | 0o600
    await world.operations.setattr(entry.st_ino, entry, fields(mode=True), None, world.user)
    assert stat.S_IMODE((await world.operations.getattr(ino, world.user)).st_mode) == 0o400
    await world.delete_topic("orders")
    assert await refused(world.operations.open(ino, os.O_RDONLY, world.user)) == errno.ESTALE
