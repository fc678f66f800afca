"""Names, attributes and inodes, over a disk in memory and without a mount."""

import errno
import stat

import pytest
from pyfuse3 import FUSEError

from logfs.fs.tree.nodes import CACHED_S
from tests.fs.world import START_MS, World, number_of


async def errno_of_lookup(world: World, path: str) -> int:
    with pytest.raises(FUSEError) as caught:
        await world.find(path)
    return number_of(caught)


async def filled(world: World) -> None:
    """Make ``orders`` with ten records, a second apart: value 0 to 9."""
    await world.mkdir("orders")
    for number in range(10):
        await world.append("orders/0", b"%d\n" % number)
        world.clock.advance(1)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("1", errno.ENOENT),
        ("00", errno.ENOENT),
        ("-1", errno.ENOENT),
        ("0.txt", errno.ENOENT),
        ("0.follow.jsonl", errno.ENOENT),
        ("0.jsonl.follow", errno.ENOENT),
        ("1.follow", errno.ENOENT),
        ("0@-1h.meta", errno.ENOENT),
        ("0@-1h.in", errno.ENOENT),
        ("0.in@-1h", errno.ENOENT),
        ("0.in.tsv", errno.ENOENT),
        ("0.meta.in", errno.ENOENT),
        ("1.in", errno.ENOENT),
        ("README", errno.ENOENT),
        ("1@-1h", errno.ENOENT),
        ("2147483648", errno.ENOENT),
        ("0@", errno.EINVAL),
        ("0@20261120", errno.EINVAL),
        ("0@..now", errno.EINVAL),
        ("0@lastweek", errno.EINVAL),
        ("1@lastweek", errno.EINVAL),
        ("0@offset=01", errno.EINVAL),
    ],
)
async def test_names_that_do_not_exist_in_a_topic(world: World, name: str, number: int) -> None:
    await world.mkdir("orders")
    assert await errno_of_lookup(world, f"orders/{name}") == number


@pytest.mark.parametrize(
    "path",
    ["nothing", "nothing/0", ".hidden", ".segments/nothing-0", ".segments/orders-1",
     ".segments/orders-00", ".segments/orders", ".segments/orders-0/nothing.log",
     ".segments/orders-0/00000000000000000001.txt", ".segments/orders-0/.."  + "x"],
)  # fmt: skip
async def test_names_that_do_not_exist_elsewhere(world: World, path: str) -> None:
    await world.mkdir("orders")
    assert await errno_of_lookup(world, path) == errno.ENOENT


async def test_a_name_that_is_not_utf8_does_not_exist(world: World) -> None:
    topic = await world.mkdir("orders")
    for parent in (1, topic.st_ino):
        with pytest.raises(FUSEError) as caught:
            await world.operations.lookup(parent, b"\xff\xfe", world.user)
        assert number_of(caught) == errno.ENOENT


async def test_a_name_below_a_file_is_enotdir(world: World) -> None:
    await filled(world)
    entry = await world.find("orders/0")
    with pytest.raises(FUSEError) as caught:
        await world.operations.lookup(entry.st_ino, b"x", world.user)
    assert number_of(caught) == errno.ENOTDIR


async def test_an_inode_that_is_not_known_is_stale(world: World) -> None:
    with pytest.raises(FUSEError) as caught:
        await world.operations.getattr(12345, world.user)
    assert number_of(caught) == errno.ESTALE


def listed(world: World, *path: str) -> list[str]:
    tree = world.operations.tree
    node = tree.root
    for name in path:
        found = tree.find(node, name.encode())
        assert not isinstance(found, tuple)
        node = found  # type: ignore[assignment]
    names = tree.names(node)
    return names if isinstance(names, list) else names.ask(*names.args)


async def test_a_listing_shows_every_record_once(world: World) -> None:
    for topic in ("orders", "__offsets", "a.b"):
        await world.mkdir(topic)
    await world.create("orders/2")
    await world.append("orders/0", b"a\n")
    assert listed(world) == ["a.b", "orders"]
    assert listed(world, "orders") == ["0", "1", "2"]
    assert listed(world, ".segments") == [
        "__offsets-0", "a.b-0", "orders-0", "orders-1", "orders-2"
    ]  # fmt: skip
    assert {"00000000000000000000.log", "partition.metadata"} <= set(
        listed(world, ".segments", "orders-0")
    )
    assert await world.cat("__offsets/0") == b""


async def test_every_directory_knows_itself_and_its_parent(world: World) -> None:
    await world.mkdir("orders")
    for path, parent in (
        ("", ""),
        ("orders", ""),
        (".segments", ""),
        (".segments/orders-0", ".segments"),
    ):
        here = await world.find(path)
        assert (await world.find(f"{path}/." if path else ".")).st_ino == here.st_ino
        above = await world.find(parent)
        assert (await world.find(f"{path}/.." if path else "..")).st_ino == above.st_ino


async def test_attributes_of_a_growing_name(world: World) -> None:
    await filled(world)
    entry = await world.find("orders/0")
    assert stat.S_ISREG(entry.st_mode)
    assert stat.S_IMODE(entry.st_mode) == 0o644
    assert (entry.st_size, entry.st_blocks, entry.st_blksize) == (20, 1, 1 << 20)
    assert entry.attr_timeout == 0
    assert entry.st_mtime_ns == (START_MS + 9000) * 1_000_000
    handle = await world.open("orders/0")
    assert handle.is_direct
    assert handle.keeps_cache


async def test_attributes_of_a_fixed_name(world: World) -> None:
    await filled(world)
    before = await world.find("orders/0@earliest..offset=5")
    assert (before.st_size, before.st_blocks) == (10, 1)
    assert stat.S_IMODE(before.st_mode) == 0o444
    assert before.attr_timeout == CACHED_S
    assert before.entry_timeout == 0
    handle = await world.open("orders/0@earliest..offset=5")
    assert not handle.is_direct
    assert handle.keeps_cache
    await world.append("orders/0", b"more\n")
    after = await world.find("orders/0@earliest..offset=5")
    assert after.st_ino == before.st_ino
    assert after.st_mtime_ns == before.st_mtime_ns  # or the kernel would drop its cache


async def test_blocks_cover_the_length(world: World) -> None:
    await world.mkdir("orders")
    await world.append("orders/0", b"x" * 512 + b"\n")
    assert (await world.find("orders/0")).st_blocks == 2


async def test_names_that_mean_the_same_bytes_share_one_inode(world: World) -> None:
    await filled(world)
    same = (
        "0@offset=3",
        "0@byte=6",
        "0@1700000003000",
        "0@2023-11-14T22:13:23Z",
        "0@-7s",
        "0@offset=-7",
    )
    numbers = {(await world.find(f"orders/{name}")).st_ino for name in same}
    assert len(numbers) == 1
    fixed = ("0@offset=3..offset=5", "0@byte=6..byte=10", "0@offset=3..-5s")
    others = {(await world.find(f"orders/{name}")).st_ino for name in fixed}
    assert len(others) == 1
    assert numbers.isdisjoint(others)


async def test_different_things_are_different_inodes(world: World) -> None:
    await filled(world)
    names = [
        "orders", "orders/0", "orders/0.tsv", "orders/0.jsonl", "orders/0.meta", "orders/0@byte=0",
        "orders/0@earliest..latest", "orders/0@earliest..latest.tsv", "orders/0@offset=1",
        "orders/0@earliest..offset=1000", "orders/0@earliest..byte=1000", ".segments",
        ".segments/orders-0", ".segments/orders-0/00000000000000000000.log",
        ".segments/orders-0/00000000000000000000.index",
    ]  # fmt: skip
    numbers = [(await world.find(name)).st_ino for name in names]
    assert len(set(numbers)) == len(names)


async def test_inodes_survive_a_restart(world: World) -> None:
    await filled(world)
    names = [
        "orders",
        "orders/0",
        "orders/0.tsv",
        "orders/0@offset=3",
        "orders/0@offset=3..offset=5",
    ]
    before = [(await world.find(name)).st_ino for name in names]
    world.restart()
    assert [(await world.find(name)).st_ino for name in names] == before


async def test_a_topic_made_again_is_another_inode(world: World) -> None:
    first = await world.mkdir("orders")
    file = await world.find("orders/0")
    await world.delete_topic("orders")
    assert (await world.mkdir("orders")).st_ino != first.st_ino
    assert (await world.find("orders/0")).st_ino != file.st_ino


async def test_the_directory_of_a_deleted_topic_finds_nothing_of_its_successor(
    world: World,
) -> None:
    old = await world.mkdir("orders")
    await world.delete_topic("orders")
    await world.mkdir("orders")
    with pytest.raises(FUSEError) as caught:
        await world.operations.lookup(old.st_ino, b"0", world.user)
    assert number_of(caught) == errno.ENOENT


@pytest.mark.parametrize(
    "selector",
    [
        "@earliest..latest",
        "@earliest..now",
        "@offset=-1000..latest",
        "@byte=-1000..latest",
        "@-1h..now",
    ],
)
async def test_a_look_up_includes_what_was_written_before_it(world: World, selector: str) -> None:
    await filled(world)
    before = await world.cat(f"orders/0{selector}")
    for text in (b"one\n", b"two\n"):
        await world.append("orders/0", text)
        world.clock.advance(0.001)
        before += text
        assert await world.cat(f"orders/0{selector}") == before


@pytest.mark.parametrize("selector", ["@latest", "@offset=-1", "@now"])
async def test_a_name_begins_at_the_end_of_its_look_up(world: World, selector: str) -> None:
    await filled(world)
    before = await world.find(f"orders/0{selector}")
    await world.append("orders/0", b"more\n")
    world.clock.advance(0.001)
    assert (await world.find(f"orders/0{selector}")).st_ino != before.st_ino


@pytest.mark.parametrize(
    "selector", ["@earliest..latest", "@earliest..now", "@-1h..now", "@latest", "@offset=-3..-2s"]
)
async def test_a_name_that_means_the_same_bytes_later_is_the_same_inode(
    world: World, selector: str
) -> None:
    """Programs look a name up more than once, and what the kernel has cached stays."""
    await filled(world)
    world.clock.advance(60)
    before = await world.find(f"orders/0{selector}")
    for seconds in (0.001, 2, 60):
        world.clock.advance(seconds)
        after = await world.find(f"orders/0{selector}")
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert (await world.open(f"orders/0{selector}")).keeps_cache


async def test_a_name_whose_end_lies_ahead_is_fixed_once_its_time_has_come(world: World) -> None:
    await filled(world)
    name = f"orders/0@earliest..{START_MS + 14_000}"
    assert (await world.find(name)).attr_timeout == 0
    world.clock.advance(6)
    assert (await world.find(name)).attr_timeout == CACHED_S
    world.clock.advance(-3)
    assert (await world.find(name)).attr_timeout == 0


async def test_an_absolute_selector_is_resolved_every_time(world: World) -> None:
    await filled(world)
    name = "orders/0@offset=10..offset=11"
    growing = await world.find(name)
    assert growing.attr_timeout == 0
    await world.append("orders/0", b"more\n")
    fixed = await world.find(name)
    assert fixed.st_ino != growing.st_ino
    assert (fixed.attr_timeout, fixed.st_size) == (CACHED_S, 5)


async def test_a_growing_name_with_an_end_stops_there(world: World) -> None:
    await filled(world)
    handle = await world.open("orders/0@offset=9..offset=11")
    assert await world.read(handle, 0) == b"9\n"
    await world.append("orders/0", b"10\n11\n12\n")
    assert await world.read(handle, 2) == b"10\n"
    assert await world.read(handle, 5) == b""
    inode = handle.inode
    assert (await world.operations.getattr(inode, world.user)).st_size == 5


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("@offset=7", b"7\n8\n9\n"),
        ("@offset=-2", b"8\n9\n"),
        ("@offset=100", b""),
        ("@byte=18", b"9\n"),
        ("@byte=17", b"\n9\n"),
        ("@byte=-3", b"\n9\n"),
        ("@earliest..offset=2", b"0\n1\n"),
        ("@earliest..latest", b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
        ("@offset=3..offset=5", b"3\n4\n"),
        ("@offset=5..offset=3", b""),
        ("@byte=3..byte=6", b"\n2\n"),
        ("@1700000008000", b"8\n9\n"),
        ("@1700000007001..1700000009000", b"8\n"),
        ("@-2s", b"8\n9\n"),
        ("@2023-11-14T22:13:28", b"8\n9\n"),
        ("@2023-11-14T23:13:28+01:00..now", b"8\n9\n"),
        ("@now", b""),
        ("@latest", b""),
        ("@1w", None),
        ("@-1w..-5s", b"0\n1\n2\n3\n4\n"),
        ("@offset=8..offset=9.tsv", b"\\N\t8\n"),
    ],
)
async def test_selectors(world: World, selector: str, expected: bytes | None) -> None:
    await filled(world)
    path = f"orders/0{selector}"
    if expected is None:
        assert await errno_of_lookup(world, path) == errno.EINVAL
        return
    assert await world.cat(path) == expected
    assert (await world.find(path)).st_size == len(expected)


async def test_the_start_of_an_open_file_never_moves(world: World) -> None:
    await filled(world)
    handle = await world.open("orders/0@-2s")
    assert await world.read(handle, 0, 2) == b"8\n"
    world.clock.advance(3600)
    assert await world.read(handle, 0) == b"8\n9\n"
    assert (await world.operations.getattr(handle.inode, world.user)).st_size == 4


async def test_views_of_records(world: World) -> None:
    await world.mkdir("orders")
    await world.append("orders/0.tsv", b"k\tv\\n\nplain\n\\N\t\\N\n")
    await world.append(
        "orders/0.jsonl", b'{"key":"k","value":{"base64":"/w=="},"headers":[["h",null]]}\n'
    )
    assert await world.cat("orders/0") == b"v\n\nplain\n\n\xff\n"
    assert await world.cat("orders/0.tsv") == b"k\tv\\n\n\\N\tplain\n\\N\t\\N\nk\t\xff\n"
    lines = (await world.cat("orders/0.jsonl")).splitlines()
    assert (
        lines[0] == b'{"offset":0,"timestamp":1700000000000,"key":"k","value":"v\\n","headers":[]}'
    )
    assert lines[3].endswith(b'"key":"k","value":{"base64":"/w=="},"headers":[["h",null]]}')
    for suffix in ("", ".tsv", ".jsonl"):
        assert (await world.find(f"orders/0{suffix}")).st_size == len(
            await world.cat(f"orders/0{suffix}")
        )


async def test_meta_is_json(world: World) -> None:
    import json

    await filled(world)
    meta = json.loads(await world.cat("orders/0.meta"))
    assert meta["log_end_offset"] == 10
    assert meta["positions"]["text"] == {"start": 0, "end": 20}
    assert meta["losses"] == []
    assert (await world.find("orders/0.meta")).st_size == len(await world.cat("orders/0.meta"))


async def test_segments_are_raw_and_text(world: World) -> None:
    await filled(world)
    world.store.partition("orders", 0).roll(world.clock.now_ms)
    await world.append("orders/0", b"ten\n")
    folder = ".segments/orders-0"
    first, second = f"{folder}/{0:020d}", f"{folder}/{10:020d}"
    assert await world.cat(f"{first}.log") == world.disk.read(f"orders-0/{0:020d}.log")
    assert await world.cat(f"{first}.txt") == b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"
    assert await world.cat(f"{second}.txt") == b"ten\n"
    sealed, active = await world.open(f"{first}.log"), await world.open(f"{second}.log")
    assert (sealed.is_direct, active.is_direct) == (False, True)
    assert (await world.find(f"{first}.log")).attr_timeout == CACHED_S
    assert (await world.find(f"{second}.log")).attr_timeout == 0
    # What grew and was sealed is another inode: the kernel may keep the pages of the new one.
    world.store.partition("orders", 0).roll(world.clock.now_ms)
    assert (await world.find(f"{second}.log")).st_ino != active.inode
    assert await world.read(active, 0) == world.disk.read(f"orders-0/{10:020d}.log")


async def test_a_fixed_name_whose_segments_went_before_it_was_opened_is_stale(
    world: World,
) -> None:
    await filled(world)
    await world.operations.setxattr(
        (await world.find("orders")).st_ino, b"user.logfs.file.delete.delay.ms", b"0", world.user
    )
    log = world.store.partition("orders", 0)
    log.roll(world.clock.now_ms)
    await world.append("orders/0", b"ten\n")
    entry = await world.find("orders/0@earliest..latest")
    kept = await world.open("orders/0@earliest..offset=10")
    log.advance_log_start_offset(10, world.clock.now_ms)
    world.store.remove_due_files(world.clock.now_ms)
    assert await world.read(kept, 0) == b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"
    await world.close(kept)
    world.store.remove_due_files(world.clock.now_ms)
    with pytest.raises(FUSEError) as caught:
        await world.operations.open(entry.st_ino, 0, world.user)
    assert number_of(caught) == errno.ESTALE
    # The kernel looks the name up again after ESTALE, within the second that answers are kept.
    assert await world.cat("orders/0@earliest..latest") == b"ten\n"


async def test_dates_are_of_the_time_zone_of_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    import time
    from datetime import datetime

    from logfs.machine.host import LOCAL_ZONE

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        winter = datetime(2026, 1, 15, 12, tzinfo=LOCAL_ZONE)
        summer = datetime(2026, 7, 15, 12, tzinfo=LOCAL_ZONE)
        missing = datetime(2026, 3, 29, 2, 30, tzinfo=LOCAL_ZONE)
        assert [d.timestamp() for d in (winter, summer, missing)] == [
            1768474800.0, 1784109600.0, 1774747800.0
        ]  # fmt: skip
        assert datetime(1, 1, 1, tzinfo=LOCAL_ZONE).utcoffset() is not None
    finally:
        monkeypatch.undo()
        time.tzset()
