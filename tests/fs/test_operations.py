"""Handlers called directly: refusals, attributes, a read-only mount, what else there is."""

import errno
import os
import stat
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from pyfuse3 import EntryAttributes, RequestContext

from tests.fs.world import APPEND, World, fields, refused

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
    other = await orders.find("orders/1")  # it belongs to its creator
    assert (stat.S_IMODE(other.st_mode), other.st_uid, other.st_gid) == (0o644, 0, 0)
    selector = await orders.find("orders/0@-1h")
    assert stat.S_IMODE(selector.st_mode) == 0o550


async def test_a_topic_belongs_to_its_creator(world: World) -> None:
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
    handle = await orders.open("orders/0")
    assert await refused(orders.operations.read(handle.number, 0, cast("int", None))) == errno.EIO


async def test_an_open_file_that_is_not_known_is_stale_and_its_end_is_ignored(
    orders: World,
) -> None:
    assert await refused(orders.operations.read(12345, 0, 10)) == errno.ESTALE
    assert await refused(orders.operations.write(12345, 0, b"x\n")) == errno.ESTALE
    await orders.operations.flush(12345)
    await orders.operations.release(12345)
    await orders.operations.releasedir(12345)


async def test_other_changes_take_turns_with_many_new_partitions(orders: World) -> None:
    done = []

    async def create() -> None:
        await orders.create("orders/199")
        done.append("199")

    async def mkdir() -> None:
        await orders.mkdir("bills")
        done.append("bills")

    async with trio.open_nursery() as nursery:
        orders.disk.before = lambda *_: trio.from_thread.run_sync(begin_mkdir)

        def begin_mkdir() -> None:
            orders.disk.before = None
            nursery.start_soon(mkdir)

        nursery.start_soon(create)
    assert done == ["bills", "199"]
    assert orders.store.partitions("orders") == list(range(200))
