"""A range of a topic as one name, ``orders@-1h.jsonl``, over a disk in memory and in a mount."""

import errno
import json
import random
import stat

import pytest

from logfs.services.views import merging
from tests.fs.mounting import Mounted
from tests.fs.world import APPEND, START_MS, World, fields, refused

PARTITIONS = 3


async def filled(world: World, count: int = 60) -> list[bytes]:
    """Make ``orders`` whose lines go to three partitions at random, a second apart."""
    chance = random.Random(4)
    await world.mkdir("orders")
    await world.close(await world.create("orders/2"))
    lines = []
    for number in range(count):
        lines.append(b"%d\n" % number)
        await world.append(f"orders/{chance.randrange(PARTITIONS)}", lines[-1])
        world.clock.advance(1)
    return lines


async def test_a_range_of_a_topic_has_the_records_of_all_partitions_by_time(world: World) -> None:
    lines = await filled(world)
    assert await world.cat("orders@earliest") == b"".join(lines)
    assert await world.cat("orders@-10s") == b"".join(lines[-10:])
    assert await world.cat("orders@-20s..-10s") == b"".join(lines[40:50])
    assert await world.cat("orders@-10s..-20s") == b""
    records = map(json.loads, (await world.cat("orders@-10s.jsonl")).splitlines())
    assert [record["value"].encode() + b"\n" for record in records] == lines[-10:]
    assert await world.cat("orders@-1s.tsv") == b"\\N\t59\n"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("nothing@-1h", errno.ENOENT),
        ("nothing@nowhere", errno.ENOENT),
        ("orders@-1h.meta", errno.ENOENT),
        ("orders@-1h.follow", errno.ENOENT),
        ("orders@", errno.EINVAL),
        ("orders@.jsonl", errno.EINVAL),
        ("orders@lastweek", errno.EINVAL),
        ("orders@byte=0", errno.EINVAL),
        ("orders@-1h..byte=-1", errno.EINVAL),
        ("@-1h", errno.ENOENT),
        ("orders@-1h@-2h", errno.EINVAL),
    ],
)
async def test_names_that_are_no_range_of_a_topic(world: World, name: str, number: int) -> None:
    await world.mkdir("orders")
    assert await refused(world.find(name)) == number


async def test_it_is_a_file_of_what_was_there_at_look_up(world: World) -> None:
    lines = await filled(world)
    handle = await world.open("orders@earliest")
    entry = await world.find("orders@earliest")
    assert (handle.inode, entry.st_size) == (entry.st_ino, sum(map(len, lines)))
    assert not handle.is_direct
    assert stat.S_IMODE(entry.st_mode) == 0o444
    await world.append("orders/1", b"later\n")
    assert await world.read(handle, 0) == b"".join(lines)
    assert (await world.find("orders@earliest")).st_ino != handle.inode
    assert await world.cat("orders@earliest") == b"".join(lines) + b"later\n"
    assert await refused(world.open("orders@earliest", APPEND)) == errno.EPERM
    assert await refused(world.operations.unlink(1, b"orders@earliest", world.user)) == errno.EPERM
    await world.close(handle)


async def test_records_of_the_same_time_are_in_the_order_of_their_partitions(world: World) -> None:
    await world.mkdir("orders")
    await world.close(await world.create("orders/2"))
    for number in (2, 0, 1):
        await world.append(f"orders/{number}", b"first of %d\nsecond of %d\n" % (number, number))
    expected = b"".join(b"first of %d\nsecond of %d\n" % (n, n) for n in range(3))
    assert await world.cat("orders@earliest") == expected


async def test_the_order_of_a_partition_is_kept_where_its_times_go_back(world: World) -> None:
    await world.mkdir("orders")
    await world.close(await world.create("orders/1"))
    line = '{{"value":"{}","timestamp":{}}}\n'
    for number, value, time in [(0, "a", 5), (0, "b", 2), (1, "c", 3), (0, "d", 9), (1, "e", 7)]:
        text = line.format(value, START_MS + time)
        await world.append(f"orders/{number}.jsonl", text.encode())
    assert await world.cat("orders@earliest") == b"c\na\nb\ne\nd\n"


async def test_any_part_can_be_read_in_any_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "MARK_BYTES", 700)
    monkeypatch.setattr(merging, "MARKS", 4)
    chance = random.Random(8)
    await world.mkdir("orders")
    await world.close(await world.create("orders/2"))
    for number in range(300):
        value = b"%d %s\n" % (number, b"." * chance.randrange(2000))
        await world.append(f"orders/{chance.randrange(PARTITIONS)}", value)
        world.clock.advance(chance.randrange(2))
    whole = await world.cat("orders@earliest.jsonl")
    handle = await world.open("orders@earliest.jsonl")
    for _ in range(100):
        offset, size = chance.randrange(len(whole)), chance.randrange(1, 5000)
        assert await world.read(handle, offset, size) == whole[offset : offset + size]
    assert await world.read(handle, len(whole)) == b""
    await world.close(handle)


async def test_an_open_file_outlives_the_deletion_of_its_topic(world: World) -> None:
    lines = await filled(world)
    handle = await world.open("orders@earliest")
    await world.delete_topic("orders")
    assert await world.read(handle, 0) == b"".join(lines)
    await world.close(handle)
    assert await refused(world.find("orders@earliest")) == errno.ENOENT


async def test_only_users_that_may_read_every_partition_may_read_it(world: World) -> None:
    await filled(world)
    topics = world.operations._topics
    del topics
    entry = await world.find("orders/1")
    entry.st_mode = stat.S_IFREG | 0o600
    await world.operations.setattr(entry.st_ino, entry, fields(mode=True), None, world.user)
    assert stat.S_IMODE((await world.find("orders@earliest")).st_mode) == 0o400
    entry.st_uid = 7
    await world.operations.setattr(entry.st_ino, entry, fields(uid=True), None, world.user)
    found = await world.find("orders@earliest")
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o400)


@pytest.mark.fuse
def test_unix_tools_read_it(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; touch orders/3")
    now_ms = int(mounted.shell("date +%s000"))
    for number in range(4):
        path = mounted.point / f"orders/{number}.jsonl"
        with path.open("a") as file:
            for n in range(number, 400, 4):
                file.write(json.dumps({"value": f"order {n}", "timestamp": now_ms + n}) + "\n")
    expected = "".join(f"order {n}\n" for n in range(400))
    assert mounted.shell("ls") == "orders\n"
    assert mounted.shell("cat orders@-1h") == expected
    assert mounted.shell("wc -l < orders@-1h") == "400\n"
    assert mounted.shell("grep -c 'order 9' orders@earliest") == "11\n"
    assert mounted.shell("head -n 1 orders@-1h; tail -n 1 orders@-1h") == "order 0\norder 399\n"
    assert mounted.shell("tac orders@-1h | head -n 1") == "order 399\n"
    assert mounted.shell("cp orders@-1h ../copy; diff orders@-1h ../copy") == ""
    assert mounted.shell("head -n 1 orders@-1h.jsonl").count('"value":"order 0"') == 1
    assert "Invalid argument" in mounted.run("cat orders@lastweek").stdout
