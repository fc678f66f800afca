"""Extended attributes, through handlers called directly."""

import errno

import pytest

from tests.fs.world import World, refused

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


@pytest.mark.expect_log("topic orders: segment.ms=604800000 is longer than retention.ms=86400000")
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
