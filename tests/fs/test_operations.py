"""Handlers called directly: writing, refusals, topics, attributes, failures."""

import errno
import os
import stat
from types import SimpleNamespace
from typing import cast

import pytest
from pyfuse3 import EntryAttributes, FUSEError, RequestContext

from tests.fs.world import APPEND, TOUCH, World, fields, number_of


@pytest.fixture
async def orders(world: World) -> World:
    await world.mkdir("orders")
    return world


async def refused(call: object) -> int:
    with pytest.raises(FUSEError) as caught:
        await call  # type: ignore[misc]  # any handler's coroutine
    return number_of(caught)


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


async def test_at_a_clean_stop_open_files_are_ended(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.write(handle, b"unfinished")
    await orders.operations.files.close_all()
    orders.restart()
    assert await orders.cat("orders/0") == b"unfinished\n"


@pytest.mark.expect_log("max.message.bytes")
async def test_a_line_that_is_too_long(orders: World) -> None:
    topic = (await orders.find("orders")).st_ino
    await orders.operations.setxattr(topic, b"user.logfs.max.message.bytes", b"100", orders.user)
    handle = await orders.open("orders/0", APPEND)
    assert await orders.write(handle, b"ok\n" + b"x" * 200 + b"\n") == 3
    with pytest.raises(FUSEError) as caught:
        await orders.write(handle, b"x" * 200 + b"\n")
    assert number_of(caught) == errno.EMSGSIZE
    await orders.close(handle)  # the program was told; nothing else is in doubt
    assert await orders.cat("orders/0") == b"ok\n"


@pytest.mark.expect_log("write: ")
@pytest.mark.parametrize("line", [b"not json\n", b'{"colour":1}\n', b"[]\n"])
async def test_a_line_that_does_not_parse(orders: World, line: bytes) -> None:
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
async def test_a_full_disk(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.write(handle, b"before\n")
    orders.disk.space_bytes = orders.disk.used_bytes
    assert await refused(orders.write(handle, b"more\n" * 1000)) == errno.ENOSPC
    orders.disk.space_bytes = None
    await orders.write(handle, b"after\n")
    assert await orders.cat("orders/0") == b"before\nafter\n"


@pytest.mark.parametrize("name", ["0", "0.tsv", "0.jsonl"])
async def test_open_rules_of_what_takes_appends(orders: World, name: str) -> None:
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
async def test_open_rules_of_what_does_not(orders: World, path: str) -> None:
    await orders.close(await orders.open(path))
    assert await refused(orders.open(path, APPEND)) == errno.EPERM
    assert await refused(orders.open(path, os.O_RDWR | os.O_APPEND)) == errno.EPERM


async def test_a_directory_cannot_be_opened_as_a_file(orders: World) -> None:
    assert await refused(orders.open("orders")) == errno.EISDIR


async def test_reading_and_appending_through_one_descriptor(orders: World) -> None:
    handle = await orders.open("orders/0", os.O_RDWR | os.O_APPEND)
    await orders.write(handle, b"one\n")
    assert await orders.read(handle, 0) == b"one\n"
    writer = await orders.open("orders/0", APPEND)
    assert await refused(orders.operations.read(writer.number, 0, 10)) == errno.EPERM


async def test_a_read_larger_than_any_the_kernel_sends(orders: World) -> None:
    await orders.append("orders/0", b"x" * 99 + b"\n")
    handle = await orders.open("orders/0")
    assert len(await orders.read(handle, 0, 3 << 20)) == 100


async def test_what_the_kernel_says_of_the_end_is_ignored(orders: World) -> None:
    handle = await orders.open("orders/0", APPEND)
    await orders.operations.write(handle.number, 0, b"one\n")
    await orders.operations.write(handle.number, 0, b"two\n")
    assert await orders.cat("orders/0") == b"one\ntwo\n"


# Durability


@pytest.mark.allow_log("")
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
async def test_after_a_failed_fsync_the_partition_answers_eio_until_nobody_has_it_open(
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
async def test_a_failure_behind_the_back_of_a_writer_is_reported_when_it_closes(
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


@pytest.mark.expect_log("read: ")
async def test_a_corrupt_batch_ends_a_read_in_front_of_it(orders: World) -> None:
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


# Topics and partitions


async def test_mkdir_makes_a_topic_of_num_partitions() -> None:
    world = World(options="num.partitions=3")
    topic = await world.mkdir("orders")
    assert stat.S_ISDIR(topic.st_mode)
    assert world.store.partitions("orders") == [0, 1, 2]
    world.store.close(world.clock.now_ms)


@pytest.mark.parametrize("name", ["with space", "a/b", "ümlaut", "x" * 250, ".segments", "."])
async def test_an_illegal_topic_name(world: World, name: str) -> None:
    assert await refused(world.mkdir(name)) == errno.EINVAL


async def test_a_topic_name_that_is_not_utf8(world: World) -> None:
    call = world.operations.mkdir(1, b"\xff", stat.S_IFDIR | 0o755, world.user)
    assert await refused(call) == errno.EINVAL


async def test_a_topic_cannot_be_made_twice_or_in_a_topic(orders: World) -> None:
    assert await refused(orders.mkdir("orders")) == errno.EEXIST
    topic = (await orders.find("orders")).st_ino
    call = orders.operations.mkdir(topic, b"sub", stat.S_IFDIR | 0o755, orders.user)
    assert await refused(call) == errno.EPERM


async def test_touch_grows_a_topic(orders: World) -> None:
    handle = await orders.create("orders/3")
    assert orders.store.partitions("orders") == [0, 1, 2, 3]
    assert await refused(orders.write(handle, b"x\n")) == errno.EPERM  # touch does not write
    await orders.close(handle)


@pytest.mark.parametrize(
    ("name", "flags", "number"),
    [
        ("9", APPEND | os.O_CREAT, errno.ENOENT),
        ("9.tsv", APPEND | os.O_CREAT, errno.ENOENT),
        ("9", TOUCH | os.O_EXCL, errno.EPERM),
        ("9", TOUCH | os.O_TRUNC, errno.EPERM),
        ("9", APPEND | os.O_TRUNC, errno.EPERM),
        ("9@-1h", TOUCH, errno.EPERM),
        ("9@bad", TOUCH, errno.EINVAL),
        ("9.meta", TOUCH, errno.EPERM),
        ("9.follow", TOUCH, errno.EPERM),
        ("README", TOUCH, errno.EPERM),
        ("README", APPEND, errno.EPERM),
        ("09", TOUCH, errno.EPERM),
        ("sedXYZ", os.O_RDWR | os.O_CREAT | os.O_EXCL, errno.EPERM),
        ("10000", TOUCH, errno.EINVAL),
        ("2147483647", TOUCH, errno.EINVAL),
    ],
)
async def test_create_rules(orders: World, name: str, flags: int, number: int) -> None:
    assert await refused(orders.create(f"orders/{name}", flags)) == number
    assert orders.store.partitions("orders") == [0]


async def test_with_the_option_create_appending_makes_partitions(orders: World) -> None:
    orders.restart("create")
    handle = await orders.create("orders/2", APPEND | os.O_CREAT)
    await orders.write(handle, b"one\n")
    await orders.close(handle)
    assert await orders.cat("orders/2") == b"one\n"
    assert await refused(orders.create("orders/3", TOUCH | os.O_EXCL)) == errno.EPERM


@pytest.mark.parametrize("folder", ["", ".segments", ".segments/orders-0"])
async def test_no_files_can_be_made_elsewhere(orders: World, folder: str) -> None:
    parent = (await orders.find(folder)).st_ino
    call = orders.operations.create(parent, b"0", 0o644, TOUCH, orders.user)
    assert await refused(call) == errno.EPERM


@pytest.mark.allow_log("unfinished line")
async def test_rmdir_deletes_a_topic(orders: World) -> None:
    await orders.append("orders/0", b"one\n")
    reader, writer = await orders.open("orders/0"), await orders.open("orders/0", APPEND)
    await orders.write(writer, b"two\nunfinished")
    entry = await orders.find("orders/0")
    await orders.rmdir("orders")
    assert await refused(orders.find("orders")) == errno.ENOENT
    orders.clock.advance(3600)
    orders.store.remove_due_files(orders.clock.now_ms)
    assert await orders.read(reader, 0) == b"one\ntwo\n"
    assert (await orders.operations.getattr(entry.st_ino, orders.user)).st_size == 8
    assert await refused(orders.write(writer, b"x\n")) == errno.ESTALE
    call = orders.operations.open(entry.st_ino, os.O_RDONLY, orders.user)
    assert await refused(call) == errno.ESTALE
    await orders.operations.release(writer.number)
    await orders.close(reader)
    orders.store.remove_due_files(orders.clock.now_ms)
    assert not [name for name, _ in orders.disk.list("") if name.startswith("orders-")]


async def test_rmdir_of_anything_else(orders: World) -> None:
    assert await refused(orders.rmdir("nothing")) == errno.ENOENT
    assert await refused(orders.rmdir(".segments")) == errno.EPERM
    assert await refused(orders.rmdir(".segments/orders-0")) == errno.EPERM
    assert await refused(orders.rmdir("orders/0")) == errno.EPERM


# Refusals


async def test_files_cannot_be_removed_renamed_or_linked(orders: World) -> None:
    operations, user = orders.operations, orders.user
    topic, file = (await orders.find("orders")).st_ino, (await orders.find("orders/0")).st_ino
    assert await refused(operations.unlink(topic, b"0", user)) == errno.EPERM
    assert await refused(operations.unlink(topic, b"7", user)) == errno.ENOENT
    assert await refused(operations.rename(topic, b"0", topic, b"1", 0, user)) == errno.EPERM
    assert await refused(operations.rename(topic, b"7", topic, b"1", 0, user)) == errno.ENOENT
    assert await refused(operations.rename(1, b"orders", 1, b"bills", 0, user)) == errno.EPERM
    assert await refused(operations.link(file, topic, b"copy", user)) == errno.EPERM
    assert await refused(operations.symlink(topic, b"copy", b"0", user)) == errno.EPERM
    assert await refused(operations.mknod(topic, b"fifo", stat.S_IFIFO, 0, user)) == errno.EPERM
    assert await refused(operations.readlink(file, user)) == errno.EINVAL
    assert await refused(operations.link(999, topic, b"copy", user)) == errno.ESTALE


async def test_setattr(orders: World) -> None:
    operations, user = orders.operations, orders.user
    file = (await orders.find("orders/0")).st_ino
    new = cast("EntryAttributes", SimpleNamespace(st_mode=0o600, st_uid=33, st_gid=44, st_size=0))
    assert (
        await refused(operations.setattr(file, new, fields(size=True), None, user)) == errno.EPERM
    )
    await operations.setattr(file, new, fields(atime=True, mtime=True), None, user)
    entry = await operations.setattr(file, new, fields(mode=True, uid=True), None, user)
    assert (stat.S_IMODE(entry.st_mode), entry.st_uid, entry.st_gid) == (0o600, 33, os.getgid())
    for path in ("orders/0@-1h", "orders/0.meta", ".segments/orders-0"):
        other = (await orders.find(path)).st_ino
        call = operations.setattr(other, new, fields(mode=True), None, user)
        assert await refused(call) == errno.EPERM
        await operations.setattr(other, new, fields(mtime=True), None, user)  # touch


async def test_chmod_and_chown_are_remembered(orders: World) -> None:
    operations, user = orders.operations, orders.user
    new = cast("EntryAttributes", SimpleNamespace(st_mode=0o750, st_uid=33, st_gid=44))
    for path in ("", "orders", "orders/0.tsv"):
        inode = (await orders.find(path)).st_ino
        await operations.setattr(inode, new, fields(mode=True, uid=True, gid=True), None, user)
    await orders.create("orders/1")
    orders.restart()
    for path in ("", "orders", "orders/0"):
        entry = await orders.find(path)
        assert (stat.S_IMODE(entry.st_mode), entry.st_uid, entry.st_gid) == (0o750, 33, 44)
    other = await orders.find("orders/1")  # belongs to the owner of its topic
    assert (stat.S_IMODE(other.st_mode), other.st_uid, other.st_gid) == (0o644, 33, 44)
    selector = await orders.find("orders/0@-1h")
    assert stat.S_IMODE(selector.st_mode) == 0o550


async def test_a_topic_belongs_to_whoever_makes_it(world: World) -> None:
    world.user = cast("RequestContext", SimpleNamespace(uid=1000, gid=1001, pid=1, umask=0o077))
    entry = await world.mkdir("orders", 0o700)
    assert (stat.S_IMODE(entry.st_mode), entry.st_uid, entry.st_gid) == (0o700, 1000, 1001)


async def test_mount_options_name_owner_and_modes() -> None:
    world = World(options="uid=33,gid=44,umask=027")
    await world.mkdir("orders")
    for path, mode in (
        ("", 0o750),
        ("orders", 0o750),
        ("orders/0", 0o640),
        ("orders/0.meta", 0o440),
    ):
        entry = await world.find(path)
        assert (stat.S_IMODE(entry.st_mode), entry.st_uid, entry.st_gid) == (mode, 33, 44)
    world.store.close(world.clock.now_ms)


# Extended attributes


async def test_facts_of_a_partition(orders: World) -> None:
    await orders.append("orders/0", b"a\nb\nc\n")
    facts = {
        "start": "0",
        "end": "6",
        "log_start_offset": "0",
        "log_end_offset": "3",
        "last_stable_offset": "3",
        "high_watermark": "3",
        "losses": "0",
        "topic_id": str(orders.store.topic_id("orders")),
    }
    assert {name: await orders.xattr("orders/0", name) for name in facts} == facts
    assert await orders.xattr("orders/0@offset=1..offset=2", "start") == "2"
    assert await orders.xattr("orders/0@offset=1..offset=2", "end") == "4"
    assert await orders.xattr("orders/0@offset=1", "end") == "6"
    tsv = (await orders.find("orders/0.tsv")).st_size
    assert await orders.xattr("orders/0.tsv", "end") == str(tsv)
    names = await orders.operations.listxattr((await orders.find("orders/0")).st_ino, orders.user)
    assert {f"user.logfs.{name}".encode() for name in facts} <= set(names)


async def test_configuration_of_a_topic(orders: World) -> None:
    operations, user = orders.operations, orders.user
    topic = (await orders.find("orders")).st_ino
    assert await operations.listxattr(topic, user) == [b"user.logfs.topic_id"]
    assert await orders.xattr("orders", "retention.ms") == "604800000"
    await operations.setxattr(topic, b"user.logfs.retention.ms", b"86400000", user)
    assert orders.store.topic_config("orders").retention_ms == 86_400_000
    assert b"user.logfs.retention.ms" in await operations.listxattr(topic, user)
    await operations.removexattr(topic, b"user.logfs.retention.ms", user)
    assert await orders.xattr("orders", "retention.ms") == "604800000"
    gone = operations.removexattr(topic, b"user.logfs.retention.ms", user)
    assert await refused(gone) == errno.ENODATA


@pytest.mark.parametrize(
    ("path", "name", "value", "number"),
    [
        ("orders", b"user.logfs.no.such.key", b"1", errno.EINVAL),
        ("orders", b"user.logfs.retention.ms", b"soon", errno.EINVAL),
        ("orders", b"user.logfs.retention.ms", b"\xff", errno.EINVAL),
        ("orders", b"user.logfs.topic_id", b"x", errno.EPERM),
        ("orders", b"user.other", b"x", errno.ENOTSUP),
        ("orders", b"security.selinux", b"x", errno.ENOTSUP),
        ("orders/0", b"user.logfs.start", b"7", errno.EPERM),
        ("orders/0", b"user.other", b"x", errno.ENOTSUP),
        ("", b"user.logfs.retention.ms", b"1", errno.EPERM),
    ],
)
async def test_attributes_that_cannot_be_set(
    orders: World, path: str, name: bytes, value: bytes, number: int
) -> None:
    inode = (await orders.find(path)).st_ino
    assert await refused(orders.operations.setxattr(inode, name, value, orders.user)) == number


@pytest.mark.parametrize(
    "name",
    [b"security.capability", b"system.posix_acl_access", b"user.logfs.nothing", b"user.x",
     b"user.logfs.\xff", b"trusted.x"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["", "orders", "orders/0", ".segments/orders-0"])
async def test_attributes_that_are_not_there(orders: World, path: str, name: bytes) -> None:
    inode = (await orders.find(path)).st_ino
    assert await refused(orders.operations.getxattr(inode, name, orders.user)) == errno.ENODATA


async def test_statfs_is_that_of_the_data_directory(orders: World) -> None:
    orders.disk.space_bytes = 1_000_000
    stats = await orders.operations.statfs(orders.user)
    assert stats.f_blocks * stats.f_frsize == 1_000_000
    assert 0 < stats.f_bavail < 1_000_000


# A mount that only reads


async def test_a_read_only_mount(orders: World) -> None:
    await orders.append("orders/0", b"one\n")
    orders.restart("ro")
    operations, user = orders.operations, orders.user
    changes = orders.disk.counts["pwrite"], orders.disk.counts["open"]
    topic, file = (await orders.find("orders")).st_ino, (await orders.find("orders/0")).st_ino
    new = cast("EntryAttributes", SimpleNamespace(st_mode=0o600))
    for call in (
        orders.mkdir("more"),
        orders.rmdir("orders"),
        orders.open("orders/0", APPEND),
        orders.create("orders/1"),
        operations.unlink(topic, b"0", user),
        operations.rename(topic, b"0", topic, b"1", 0, user),
        operations.link(file, topic, b"x", user),
        operations.symlink(topic, b"x", b"0", user),
        operations.mknod(topic, b"x", stat.S_IFIFO, 0, user),
        operations.setattr(file, new, fields(mode=True), None, user),
        operations.setattr(file, new, fields(size=True), None, user),
        operations.setxattr(topic, b"user.logfs.retention.ms", b"1", user),
        operations.removexattr(topic, b"user.logfs.retention.ms", user),
    ):
        assert await refused(call) == errno.EROFS
    assert await refused(orders.rmdir("nothing")) == errno.ENOENT
    assert await orders.cat("orders/0") == b"one\n"
    handle = await orders.open("orders/0")
    await operations.fsync(handle.number, False)
    assert orders.disk.counts["pwrite"] == changes[0]


# Directories and the rest


async def test_directories_open_and_close(orders: World) -> None:
    operations, user = orders.operations, orders.user
    number = await operations.opendir((await orders.find("orders")).st_ino, user)
    await operations.fsyncdir(number, False)
    await operations.releasedir(number)
    file = (await orders.find("orders/0")).st_ino
    assert await refused(operations.opendir(file, user)) == errno.ENOTDIR
    assert await operations.access(file, os.R_OK, user)


async def test_forget_get_and_look_up_in_any_order(orders: World) -> None:
    operations, user = orders.operations, orders.user
    topic = await orders.find("orders")
    entry = await orders.find("orders/0")
    await operations.forget([(topic.st_ino, 1000), (entry.st_ino, 1000), (77, 1)])
    assert await refused(operations.getattr(entry.st_ino, user)) == errno.ESTALE
    assert await refused(operations.lookup(topic.st_ino, b"0", user)) == errno.ESTALE
    assert (await orders.find("orders/0")).st_ino == entry.st_ino


async def test_an_open_file_outlives_the_look_ups_of_its_name(orders: World) -> None:
    await orders.append("orders/0", b"one\n")
    handle = await orders.open("orders/0")
    await orders.operations.forget([(handle.inode, 1000)])
    assert await orders.read(handle, 0) == b"one\n"


@pytest.mark.expect_log("a bug in logfs")
async def test_a_bug_is_answered_with_eio(orders: World) -> None:
    assert await refused(orders.operations.read(12345, 0, 10)) == errno.EIO
