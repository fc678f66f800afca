"""Topics, partitions, owners and modes, through handlers called directly."""

import errno
import os
import stat

import pytest

from tests.fs.world import APPEND, TOUCH, World, refused

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


async def test_rmdir_refuses_a_topic_that_holds_records(orders: World) -> None:
    await orders.append("orders/0", b"one\n")
    assert await refused(orders.rmdir("orders")) == errno.ENOTEMPTY
    assert await orders.cat("orders/0") == b"one\n"
    orders.store.partition("orders", 0).advance_log_start_offset(1, orders.clock.now_ms)
    await orders.rmdir("orders")
    assert await refused(orders.find("orders")) == errno.ENOENT


async def test_rmdir_refuses_a_topic_with_an_unfinished_line(orders: World) -> None:
    writer = await orders.open("orders/0", APPEND)
    await orders.write(writer, b"unfinished")
    assert await refused(orders.rmdir("orders")) == errno.ENOTEMPTY
    await orders.close(writer)
    assert await orders.cat("orders/0") == b"unfinished\n"


async def test_with_the_option_rmdir_deletes_records_too(orders: World) -> None:
    orders.restart("rmdir=delete")
    await orders.append("orders/0", b"one\n")
    await orders.rmdir("orders")
    assert await refused(orders.find("orders")) == errno.ENOENT


@pytest.mark.allow_log("unfinished line")
async def test_a_deleted_topic_is_read_to_its_end_by_open_files(orders: World) -> None:
    await orders.append("orders/0", b"one\n")
    reader, writer = await orders.open("orders/0"), await orders.open("orders/0", APPEND)
    await orders.write(writer, b"two\nunfinished")
    entry = await orders.find("orders/0")
    await orders.delete_topic("orders")
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
