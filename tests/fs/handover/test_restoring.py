"""Names and open files under the numbers that the kernel knows, after the daemon was replaced."""

import errno
import os
from collections.abc import Callable

import pytest

from logfs.fs.handover import restoring
from logfs.fs.handover.state import Word
from logfs.fs.metrics.mounts import MountMetrics, MountPlace
from logfs.fs.tree import nodes
from logfs.services.retention.trimming import trim
from tests.fs.handover.kept import SEALED, KeptWorld, orders
from tests.fs.world import APPEND, MIB, refused

ENDS = pytest.mark.parametrize("end", [KeptWorld.kill, KeptWorld.hand_over])
FILES = {
    "orders/0": b"zero\none\ntwo\nthree\n",
    "orders/0.tsv": b"\\N\tzero\n\\N\tone\n\\N\ttwo\n\\N\tthree\n",
    "orders/0@offset=1": b"one\ntwo\nthree\n",
    "orders/0@byte=2..offset=3": b"ro\none\ntwo\n",
    "orders/0@offset=1..offset=900.tsv": b"\\N\tone\n\\N\ttwo\n\\N\tthree\n",
    "orders/0@offset=2..2100-01-01": b"two\nthree\n",
    "orders/0.follow": b"zero\none\ntwo\nthree\n",
    "orders/0@offset=3.follow": b"three\n",
    "orders/0@earliest..latest": b"zero\none\ntwo\nthree\n",
    "orders/0@offset=3..latest.tsv": b"\\N\tthree\n",
    "orders/0@latest..latest": b"",
    "orders@offset=1": b"one\ntwo\nthree\n",
    "orders@earliest..latest.tsv": b"\\N\tzero\n\\N\tone\n\\N\ttwo\n\\N\tthree\n",
    ".segments/orders-0/00000000000000000000.txt": b"zero\none\n",
}
RAW = [SEALED, SEALED[:-5] + "2.log", ".segments/orders-0/partition.metadata"]
DIRECTORIES = ["", "orders", ".segments", ".segments/orders-0"]


@ENDS
@pytest.mark.parametrize("path", FILES)
async def test_an_open_file_reads_the_same_bytes_under_the_same_number(
    path: str, end: Callable[[KeptWorld], None]
) -> None:
    world = await orders()
    handle = await world.open(path)
    before = await world.operations.getattr(handle.inode, world.user)
    end(world)

    assert await world.read(handle, 0) == FILES[path] or not FILES[path]
    after = await world.operations.getattr(handle.inode, world.user)
    assert (after.st_ino, after.st_size, after.st_mode) == (
        *(before.st_ino, before.st_size, before.st_mode),
    )
    assert after.st_mtime_ns == before.st_mtime_ns or not path.count("latest")
    assert (await world.find(path)).st_ino == handle.inode
    again = await world.operations.open(handle.inode, os.O_RDONLY, world.user)
    assert bytes(await world.operations.read(again.fh, 0, MIB)) == FILES[path]
    await world.close(handle)


@pytest.mark.allow_log("cached instead of passed")
@pytest.mark.parametrize("path", RAW)
async def test_a_raw_file_continues_where_it_was_read(path: str) -> None:
    world = await orders()
    world.kernel.refuses = errno.ENOMEM
    handle = await world.open(path)
    whole = await world.read(handle, 0)
    world.kernel.refuses = None
    world.hand_over()

    assert whole[3:] == await world.read(handle, 3)
    again = await world.open(path)
    assert again.inode == handle.inode
    assert not world.kernel.attached, "the kernel has cached it"
    await world.close(handle)


@ENDS
@pytest.mark.parametrize("path", DIRECTORIES)
async def test_a_directory_keeps_its_number(path: str, end: Callable[[KeptWorld], None]) -> None:
    world = await orders()
    number = (await world.find(path)).st_ino
    end(world)

    assert (await world.operations.getattr(number, world.user)).st_ino == number
    child = {"": b"orders", "orders": b"0", ".segments": b"orders-0"}.get(
        path, b"partition.metadata"
    )
    found = await world.operations.lookup(number, child, world.user)
    assert (await world.find(f"{path}/{child.decode()}".lstrip("/"))).st_ino == found.st_ino


@ENDS
async def test_an_open_file_takes_appends(end: Callable[[KeptWorld], None]) -> None:
    world = await orders()
    handle = await world.open("orders/0", APPEND)
    await world.write(handle, b"four\n")
    end(world)
    await world.write(handle, b"five\n")
    await world.close(handle)

    assert await world.cat("orders/0@offset=4") == b"four\nfive\n"


@ENDS
async def test_a_name_that_was_used_by_no_successor_outlives_many(
    end: Callable[[KeptWorld], None],
) -> None:
    world = await orders()
    handle = await world.open("orders/0@offset=1")
    for _ in range(3):
        end(world)

    assert await world.read(handle, 0) == b"one\ntwo\nthree\n"


async def test_a_restored_node_stays_when_the_kernel_takes_look_ups_back() -> None:
    world = await orders()
    number = (await world.find("orders/0")).st_ino
    world.kill()
    await world.operations.getattr(number, world.user)
    await world.operations.forget([(number, 1)])

    assert (await world.operations.getattr(number, world.user)).st_ino == number


async def test_a_forgotten_node_is_stale_in_the_same_daemon() -> None:
    world = await orders()
    number = (await world.find("orders/0@offset=1")).st_ino
    await world.operations.forget([(number, 1)])

    assert await refused(world.operations.getattr(number, world.user)) == errno.ESTALE


async def test_files_of_a_topic_that_was_created_again_are_stale() -> None:
    world = await orders()
    handle, other = await world.open("orders/0"), await world.open("orders/0@earliest..latest")
    topic = (await world.find("orders")).st_ino
    await world.delete_topic("orders")
    await world.mkdir("orders")
    await world.append("orders/0", b"another\n")
    world.kill()

    for number in (handle.number, other.number):
        assert await refused(world.operations.read(number, 0, 10)) == errno.ESTALE
    for inode in (handle.inode, other.inode, topic):
        assert await refused(world.operations.getattr(inode, world.user)) == errno.ESTALE
    await world.close(handle)
    await world.close(other)
    assert world.journal.files == {}


async def test_a_file_keeps_its_partition_from_being_reloaded_before_it_is_used() -> None:
    world = await orders()
    handles = [await world.open(path) for path in ("orders/0", "orders/0.tsv", "orders/0.meta")]
    world.kill()
    partition = world.operations.tree.partition("orders", 0)
    assert partition.open_files == 2
    await world.read(handles[0], 0)
    assert partition.open_files == 2
    for handle in handles:
        await world.close(handle)

    assert partition.open_files == 0


@pytest.mark.expect_log("allows no more")
async def test_open_files_of_a_user_are_limited_after_the_daemon_was_replaced() -> None:
    world = KeptWorld(options="user_max_open_files=2")
    await world.mkdir("orders")
    world.user.uid = 4711  # type: ignore[misc]
    first = await world.open("orders/0")
    inode = (await world.find("orders")).st_ino
    directory = await world.operations.opendir(inode, world.user)
    world.kill()
    world.user.uid = 4711  # type: ignore[misc]

    assert (
        await refused(world.operations.open(first.inode, os.O_RDONLY, world.user)) == errno.EMFILE
    )
    await world.operations.releasedir(directory)
    await world.open("orders/0")
    await world.close(first)
    await world.open("orders/0")


async def test_a_sealed_file_is_read_on_from_its_backing_file() -> None:
    world = await orders()
    handles = [await world.open(SEALED), await world.open(SEALED)]
    world.hand_over()
    third = await world.open(SEALED)
    assert world.kernel.attached[third.number] == world.kernel.attached[handles[0].number]
    assert len(world.kernel.open) == 1
    for handle in (*handles, third):
        assert world.kernel.open
        await world.close(handle)

    assert not world.kernel.open
    world.hand_over()
    assert (await world.open(SEALED)).number in world.kernel.attached


async def test_a_backing_file_that_no_open_file_reads_is_closed_at_the_take_over() -> None:
    world = await orders()
    world.journal.backing(77, 5)
    world.kernel.open.add(5)
    world.kill()

    assert world.kernel.open == set()
    assert world.journal.backings == {}


async def test_an_open_that_is_sent_again_is_one_open_file() -> None:
    world = await orders()
    handle = await world.open("orders/0")
    inode = (await world.find("orders")).st_ino
    directory = await world.operations.opendir(inode, world.user)
    world.kill()
    world.kernel.send_again(handle.number)
    again = await world.operations.open(handle.inode, os.O_RDONLY, world.user)
    world.kernel.send_again(directory)
    assert await world.operations.opendir(inode, world.user) == directory

    assert again.fh == handle.number
    assert world.operations.tree.partition("orders", 0).open_files == 1
    await world.close(handle)
    assert world.operations.tree.partition("orders", 0).open_files == 0


async def test_a_close_that_is_sent_again_is_ignored() -> None:
    world = await orders()
    handle = await world.open("orders/0")
    await world.close(handle)
    world.kill()
    await world.close(handle)

    assert world.operations.tree.partition("orders", 0).open_files == 0


async def test_an_open_fixed_name_keeps_its_segments_before_it_is_read_again() -> None:
    world = await orders()
    handle = await world.open("orders/0@earliest..latest")
    world.kill()
    await world.operations.files.restore_all(list(world.journal.files))
    log = world.store.partition("orders", 0)
    trim(log, 2, world.clock.now_ms)
    world.clock.advance(3600)
    log.remove_due_files(world.clock.now_ms)

    assert await world.read(handle, 0) == b"zero\none\ntwo\nthree\n"
    await world.close(handle)


async def test_the_metrics_say_how_often_the_mount_was_continued() -> None:
    world = await orders()
    words = [0] * (max(Word) + 1)
    words[Word.ADOPTIONS], words[Word.RESENT], words[Word.WITHOUT_SLOT] = 2, 5, 1
    world.operations.take_over(world.journal, words)
    metrics = MountMetrics(
        world.store, world.operations, world.clock.both(), MountPlace("/data", "/mnt")
    )
    found = {family.name: family.rows[0].value for family in metrics.families() if family.rows}

    assert found["logfs_takeovers_total"] == 2
    assert found["logfs_resent_requests_total"] == 5
    assert found["logfs_unnoted_writes_total"] == 1


@ENDS
@pytest.mark.parametrize("path", ["orders/0", "orders/0.follow", "orders/0.tsv"])
async def test_a_program_that_has_read_across_a_hole_continues_after_it(
    path: str, end: Callable[[KeptWorld], None]
) -> None:
    world = await orders()
    trim(world.store.partition("orders", 0), 2, world.clock.now_ms)
    handle = await world.open(path)
    whole = await world.read(handle, 0)
    end(world)
    await world.append("orders/0", b"four\n")

    last = (await world.cat(path.removesuffix(".follow"))).splitlines(keepends=True)[-1]
    assert await world.read(handle, len(whole)) == last
    end(world)
    assert await world.read(handle, len(whole) - 3) == whole[-3:] + last
    end(world)
    assert await world.read(handle, 0) == whole + last
    await world.close(handle)


@ENDS
async def test_a_file_without_more_bytes_is_not_ready_after_the_end(
    end: Callable[[KeptWorld], None],
) -> None:
    world = await orders()
    handle = await world.open("orders/0.follow")
    whole = await world.read(handle, 0)
    files = world.operations.files
    assert files.poll(handle.number, None) == 0
    end(world)
    files = world.operations.files
    assert files.poll(handle.number, None) == 0
    await world.append("orders/0", b"four\n")
    assert files.poll(handle.number, None) != 0
    assert await world.read(handle, len(whole)) == b"four\n"
    end(world)

    assert world.operations.files.poll(handle.number, None) == 0
    await world.close(handle)


async def test_a_merged_name_is_noted_when_it_is_opened() -> None:
    world = await orders()
    entry = await world.find("orders@earliest")
    assert entry.st_ino not in world.journal.nodes
    world.kill()
    assert await refused(world.operations.getattr(entry.st_ino, world.user)) == errno.ESTALE
    handle = await world.open("orders@earliest")
    assert handle.inode in world.journal.nodes
    world.kill()
    assert await world.read(handle, 0) == b"zero\none\ntwo\nthree\n"


async def test_open_merged_names_are_restored_however_many_others_were_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "MOST_KNOWN_PARTS", 1)
    world = await orders()
    names = ["orders@earliest", "orders@offset=1", "orders@earliest", "orders@offset=2"]
    handles = [await world.open(name) for name in names]
    trim(world.store.partition("orders", 0), 2, world.clock.now_ms)
    expected = [b"zero\none\ntwo\nthree\n", b"one\ntwo\nthree\n"] * 2
    expected[3] = b"two\nthree\n"
    for _ in range(2):
        world.kill()
        for handle, text in zip(handles, expected, strict=True):
            assert await world.read(handle, 0) == text
            await world.cat("orders@latest")


@pytest.mark.expect_log("orders@…: open files of this name, which merges 1 partitions, end with")
async def test_merged_names_for_which_there_is_no_room_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await orders()
    first = await world.open("orders@earliest")
    monkeypatch.setattr(restoring, "_MOST_MERGED_BYTES", len(world.journal.nodes[first.inode]) + 10)
    world.kill()
    second = await world.open("orders@earliest..latest.jsonl")
    world.kill()
    assert await world.read(first, 0) == b"zero\none\ntwo\nthree\n"
    assert await refused(world.read(second, 0)) == errno.ESTALE


@pytest.mark.expect_log("orders@…: open files of this name, which merges 1 partitions, end with")
async def test_a_merged_name_that_is_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "_LARGEST_MERGED_BYTES", 10)
    world = await orders()
    handle = await world.open("orders@earliest")
    world.kill()
    assert await refused(world.read(handle, 0)) == errno.ESTALE
