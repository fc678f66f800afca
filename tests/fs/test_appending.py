"""Writing through handlers called directly: lines, durability, failures, damage."""

import errno
import os

import pytest
from pyfuse3 import FUSEError

from tests.fs.world import APPEND, World, number_of, refused

# Appending


async def test_complete_lines_are_records_at_once(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    assert await orders.write(handle, b"one\ntwo\n") == 8
    assert await orders.cat("orders/0") == b"one\ntwo\n"
    assert await orders.xattr("orders/0", "log_end_offset") == "2"


async def test_an_unfinished_line_is_a_record_when_the_file_is_released(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.write(handle, b"a")
    await orders.operations.flush(handle.number)  # close(2) of a duplicate
    await orders.write(handle, b"b\nc")
    assert await orders.cat("orders/0") == b"ab\n"
    await orders.close(handle)
    assert await orders.cat("orders/0") == b"ab\nc\n"
    assert await orders.xattr("orders/0", "log_end_offset") == "2"


async def test_lines_of_two_open_files_do_not_mix(orders: World) -> None:
    first = await orders.open("orders/0", APPEND)
    second = await orders.open("orders/0", APPEND)
    await orders.write(first, b"aa")
    await orders.write(second, b"bb")
    await orders.write(first, b"AA\n")
    await orders.write(second, b"BB\n")
    assert await orders.cat("orders/0") == b"aaAA\nbbBB\n"


async def test_an_unfinished_line_survives_a_kill(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.write(handle, b"one\ntw")
    killed = World(orders.disk.after_kill(), clock=orders.clock)
    assert await killed.cat("orders/0") == b"one\ntw\n"
    killed.store.close(killed.clock.now_ms)


async def test_a_clean_stop_ends_unfinished_lines(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.write(handle, b"unfinished")
    await orders.operations.files.close_all()
    orders.restart()
    assert await orders.cat("orders/0") == b"unfinished\n"


@pytest.mark.expect_log("orders --config max.message.bytes=270' or more lets it in")
async def test_a_line_that_is_too_long_is_refused(orders: World) -> None:
    topic = (await orders.find("orders")).st_ino
    await orders.operations.setxattr(topic, b"user.logfs.max.message.bytes", b"100", orders.user)
    handle = await orders.open("orders/0", APPEND)
    assert await orders.write(handle, b"ok\n" + b"x" * 200 + b"\n") == 3
    with pytest.raises(FUSEError) as caught:
        await orders.write(handle, b"x" * 200 + b"\n")
    assert number_of(caught) == errno.EMSGSIZE
    await orders.close(handle)  # the program was told; nothing else is in doubt
    assert await orders.cat("orders/0") == b"ok\n"


@pytest.mark.expect_log("orders --config max.message.bytes=300' or more lets it in")
async def test_a_long_unfinished_line_is_refused_with_a_limit_that_lets_it_in(
    orders: World,
) -> None:
    topic = (await orders.find("orders")).st_ino
    await orders.operations.setxattr(topic, b"user.logfs.max.message.bytes", b"250", orders.user)
    handle = await orders.open("orders/0", APPEND)
    with pytest.raises(FUSEError):
        await orders.write(handle, b"x" * 200)
    await orders.close(handle)


@pytest.mark.expect_log("write: ")
@pytest.mark.parametrize("line", [b"not json\n", b'{"colour":1}\n', b"[]\n"])
async def test_a_line_that_does_not_parse_is_refused(orders: World, line: bytes) -> None:
    handle = await orders.open("orders/0.jsonl", APPEND)
    with pytest.raises(FUSEError) as caught:
        await orders.write(handle, line)
    assert number_of(caught) == errno.EINVAL
    await orders.close(handle)


@pytest.mark.expect_log("orders/0: line 1: this topic needs a key")
async def test_a_compacted_topic_takes_no_records_without_a_key(orders: World) -> None:
    topic = (await orders.find("orders")).st_ino
    await orders.operations.setxattr(topic, b"user.logfs.cleanup.policy", b"compact", orders.user)
    handle = await orders.open("orders/0", APPEND)
    assert await refused(orders.write(handle, b"value\n")) == errno.EINVAL
    await orders.append("orders/0.tsv", b"key\tvalue\n")
    assert await orders.cat("orders/0") == b"value\n"


@pytest.mark.allow_log("No space")
async def test_a_full_disk_refuses_writes_until_there_is_space(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.write(handle, b"before\n")
    orders.disk.space_bytes = orders.disk.used_bytes
    assert await refused(orders.write(handle, b"more\n" * 1000)) == errno.ENOSPC
    orders.disk.space_bytes = None
    await orders.write(handle, b"after\n")
    assert await orders.cat("orders/0") == b"before\nafter\n"


@pytest.mark.parametrize("name", ["0", "0.tsv", "0.jsonl"])
async def test_open_rules_of_names_that_take_appends(orders: World, name: str) -> None:
    path = f"orders/{name}"
    for flags in (os.O_RDONLY, APPEND, os.O_RDWR | os.O_APPEND, os.O_RDONLY | os.O_APPEND):
        await orders.close(await orders.open(path, flags))
    for flags in (
        os.O_WRONLY,
        os.O_RDWR,
        os.O_WRONLY | os.O_TRUNC,
        APPEND | os.O_TRUNC,
        os.O_RDONLY | os.O_TRUNC,
    ):
        assert await refused(orders.open(path, flags)) == errno.EPERM


@pytest.mark.parametrize(
    "path",
    ["orders/0@-1h", "orders/0@earliest..latest", "orders/0@-1h.jsonl", "orders/0.meta",
     ".segments/orders-0/00000000000000000000.log", ".segments/orders-0/00000000000000000000.txt"],
)  # fmt: skip
async def test_open_rules_of_names_that_take_none(orders: World, path: str) -> None:
    await orders.close(await orders.open(path))
    assert await refused(orders.open(path, APPEND)) == errno.EPERM
    assert await refused(orders.open(path, os.O_RDWR | os.O_APPEND)) == errno.EPERM


async def test_a_directory_cannot_be_opened_as_a_file(orders: World) -> None:
    assert await refused(orders.open("orders")) == errno.EISDIR


async def test_one_descriptor_can_read_and_append(orders: World) -> None:
    handle = await orders.open("orders/0", os.O_RDWR | os.O_APPEND)
    await orders.write(handle, b"one\n")
    assert await orders.read(handle, 0) == b"one\n"
    writer = await orders.open("orders/0", APPEND)
    assert await refused(orders.operations.read(writer.number, 0, 10)) == errno.EPERM


async def test_a_read_larger_than_the_kernels_largest(orders: World) -> None:
    await orders.append("orders/0", b"x" * 99 + b"\n")
    handle = await orders.open("orders/0")
    assert len(await orders.read(handle, 0, 3 << 20)) == 100


async def test_the_offset_of_a_write_is_ignored(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.operations.write(handle.number, 0, b"one\n")
    await orders.operations.write(handle.number, 0, b"two\n")
    assert await orders.cat("orders/0") == b"one\ntwo\n"


# Durability


async def test_fsync_makes_records_and_the_unfinished_line_durable(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.write(handle, b"one\ntw")
    await orders.operations.fsync(handle.number, False)
    await orders.write(handle, b"o\nlost")
    after = World(orders.disk.after_crash(None), clock=orders.clock, boot="boot-2")
    assert await after.cat("orders/0") == b"one\ntw\n"
    after.store.close(after.clock.now_ms)


@pytest.mark.parametrize("flag", [os.O_SYNC, os.O_DSYNC])
async def test_with_o_sync_every_write_is_durable(orders: World, flag: int) -> None:
    handle = await orders.open("orders/0", APPEND | flag)
    before = orders.disk.counts["sync"]
    await orders.write(handle, b"one\n")
    assert orders.disk.counts["sync"] > before
    after = World(orders.disk.after_crash(None), clock=orders.clock, boot="boot-2")
    assert await after.cat("orders/0") == b"one\n"
    after.store.close(after.clock.now_ms)


async def test_the_mount_option_sync_does_the_same() -> None:
    world = World(options="sync")
    await world.mkdir("orders")
    handle = await world.open("orders/0", APPEND)
    await world.write(handle, b"one\n")
    after = World(world.disk.after_crash(None), clock=world.clock, boot="boot-2")
    assert await after.cat("orders/0") == b"one\n"
    after.store.close(after.clock.now_ms)


async def test_flush_commits_nothing_and_syncs_nothing(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.write(handle, b"unfinished")
    before = orders.disk.counts["sync"]
    await orders.operations.flush(handle.number)
    assert orders.disk.counts["sync"] == before
    assert await orders.cat("orders/0") == b""


async def offline(world: World) -> None:
    """Let an fsync of ``orders/0`` fail."""
    handle = await world.open("orders/0", APPEND)
    await world.write(handle, b"one\n")
    world.disk.fail_next_sync("orders-0/*.log")
    assert await refused(world.operations.fsync(handle.number, False)) == errno.EIO
    assert await refused(world.operations.flush(handle.number)) == errno.EIO
    await world.operations.flush(handle.number)  # it is reported once
    assert await refused(world.write(handle, b"two\n")) == errno.EIO
    assert await refused(world.operations.fsync(handle.number, False)) == errno.EIO
    await world.operations.release(handle.number)


@pytest.mark.expect_log("is offline")
@pytest.mark.allow_log("fsync: ", "flush: ", "write: ")
async def test_after_a_failed_fsync_the_partition_answers_eio_until_its_files_are_closed(
    orders: World,
) -> None:
    reader = await orders.open("orders/0")
    await offline(orders)
    writer = await orders.open("orders/0", APPEND)
    assert await refused(orders.write(writer, b"three\n")) == errno.EIO
    assert await refused(orders.operations.flush(writer.number)) == errno.EIO
    await orders.operations.release(writer.number)
    await orders.close(reader)
    await orders.append("orders/0", b"four\n")
    assert (await orders.cat("orders/0")).endswith(b"four\n")


@pytest.mark.expect_log("is offline")
@pytest.mark.allow_log("fsync: ", "flush: ", "write: ")
async def test_close_reports_a_failure_that_the_writer_has_not_seen(
    orders: World,
) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.write(handle, b"one\n")
    orders.disk.fail_next_sync("orders-0/*.log")
    with pytest.raises(OSError, match=r"."):
        orders.store.partition("orders", 0).flush()  # flush.ms
    assert await refused(orders.operations.flush(handle.number)) == errno.EIO
    await orders.operations.flush(handle.number)
    await orders.operations.release(handle.number)


def damage(world: World, offset: int) -> None:
    """Flip a byte in a batch of the first, sealed segment of ``orders/0``."""
    name = f"orders-0/{0:020d}.log"
    data = bytearray(world.disk.read(name))
    data[data.index(b"%d" % offset)] ^= 1
    file = world.disk.open(name, write=True)
    file.pwrite(data, 0)


@pytest.mark.expect_log("read: ", "[loss: corrupt, ")
async def test_a_corrupt_batch_ends_a_read_before_it(orders: World) -> None:
    for number in range(5):
        await orders.append("orders/0", b"%d\n" % number * 9)
    orders.store.partition("orders", 0).roll(orders.clock.now_ms)
    await orders.append("orders/0", b"end\n")
    expected = await orders.cat("orders/0")
    orders.restart()
    damage(orders, 3)
    for path in ("orders/0", "orders/0@byte=0"):
        handle = await orders.open(path)
        assert await orders.read(handle, 0) == expected[:54]
        assert await refused(orders.read(handle, 54)) == errno.EIO
        assert await orders.read(handle, 72) == expected[72:]
    # What the kernel may cache must not end early: it would take that for the end of the file.
    handle = await orders.open("orders/0@earliest..latest")
    assert await refused(orders.read(handle, 0)) == errno.EIO
    assert await orders.read(handle, 0, 54) == expected[:54]
    assert await orders.read(handle, 72) == expected[72:]
    # Opened again it is read directly, to the byte.
    handle = await orders.open("orders/0@earliest..latest")
    assert handle.is_direct
    assert await orders.read(handle, 0) == expected[:54]
    assert await refused(orders.read(handle, 54)) == errno.EIO


@pytest.mark.allow_log("orders/0")
async def test_a_partition_that_could_not_be_loaded_is_not_shown_as_empty(orders: World) -> None:
    await orders.append("orders/0", b"one\n")
    orders.store.close(orders.clock.now_ms)
    table = orders.disk.read("orders-0/logfs.segments")
    orders.disk.replace("orders-0/logfs.segments", table[:4] + b"\0\0\0\x63" + table[8:])
    orders.open_store()
    assert orders.store.partition("orders", 0).offline is not None
    assert await refused(orders.open("orders/0")) == errno.EIO
    assert b"offline" in await orders.cat("orders/0.meta")
    orders.disk.replace("orders-0/logfs.segments", table)
    orders.clock.advance(2)  # it is not tried more often than once a second
    await refused(orders.open("orders/0"))  # the inode was that of an unknown log
    assert await orders.cat("orders/0") == b"one\n"
