"""The same promises, kept by the real disk and by the fake one."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import Disk, File, parent_of, write_again
from logfs.errors import LockedError
from tests.fakes import FakeDisk


@pytest.fixture(params=["posix", "fake"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return PosixDisk(tmp_path) if request.param == "posix" else FakeDisk()


def new_file(disk: Disk, name: str = "a", data: bytes = b"") -> File:
    file = disk.open(name, write=True, create=True)
    file.pwrite(data, 0)
    return file


def test_written_bytes_are_read_back_by_any_handle(disk: Disk) -> None:
    file = new_file(disk, data=b"0123456789")
    assert file.size() == 10
    assert file.pread(4, 3) == b"3456"
    assert disk.open("a").pread(100, 8) == b"89"
    assert disk.read("a") == b"0123456789"


def test_read_fills_the_buffer_and_is_short_only_at_the_end(disk: Disk) -> None:
    file = new_file(disk, data=b"0123456789")
    buffer = bytearray(b"......")
    assert file.pread_into(memoryview(buffer)[1:5], 2) == 4
    assert buffer == b".2345."
    assert file.pread_into(memoryview(buffer), 7) == 3
    assert buffer == b"78945."
    assert file.pread_into(memoryview(buffer), 10) == 0
    assert file.pread_into(memoryview(buffer), 1000) == 0
    assert file.pread_into(memoryview(bytearray()), 0) == 0
    assert file.pread(5, 10) == b""
    assert file.pread(0, 0) == b""


def test_read_without_waiting_gives_a_prefix_or_none(disk: Disk) -> None:
    file = new_file(disk, data=b"0123456789")
    buffer = bytearray(4)
    count = file.pread_nowait_into(memoryview(buffer), 2)
    assert count is None or (0 < count <= 4 and buffer[:count] == b"2345"[:count])
    assert file.pread_nowait_into(memoryview(buffer), 10) in {0, None}


def test_write_after_the_end_leaves_zeros(disk: Disk) -> None:
    file = new_file(disk, data=b"ab")
    file.pwrite(b"c", 5)
    assert disk.read("a") == b"ab\0\0\0c"


def test_holes_are_passed_over(disk: Disk) -> None:
    size = 1 << 30
    file = disk.open("f", write=True, create=True)
    assert file.next_data(0) == 0
    file.pwrite(b"x" * 10, 0)
    file.truncate(size)
    assert file.next_data(3) == 3
    position = steps = 0
    while (position := file.next_data(position)) < size:
        position += 1 << 20
        steps += 1
    assert position == size
    assert steps <= 2  # the rest of the first block, or of the first page
    assert file.next_data(size + 5) == size + 5


@pytest.mark.parametrize("data", [b"xy", bytearray(b"xy"), memoryview(b"axyb")[1:3]])
def test_write_takes_any_bytes(disk: Disk, data: bytes | bytearray | memoryview) -> None:
    file = new_file(disk, data=b"0123")
    file.pwrite(data, 1)
    assert disk.read("a") == b"0xy3"


def test_writing_nothing_does_nothing(disk: Disk) -> None:
    file = new_file(disk, data=b"ab")
    file.pwrite(b"", 9)
    assert file.size() == 2


def test_truncate_cuts_and_extends_with_zeros(disk: Disk) -> None:
    file = new_file(disk, data=b"0123")
    file.truncate(2)
    assert disk.read("a") == b"01"
    file.truncate(4)
    assert disk.read("a") == b"01\0\0"
    file.pwrite(b"x", 3)
    assert disk.read("a") == b"01\0x"
    file.truncate(0)
    assert disk.read("a") == b""


def test_open_does_not_truncate_and_needs_a_file_or_create(disk: Disk) -> None:
    new_file(disk, data=b"old")
    assert disk.open("a", write=True, create=True).pread(9, 0) == b"old"
    assert disk.open("a", write=True).pread(9, 0) == b"old"
    for write in (False, True):
        with pytest.raises(FileNotFoundError) as caught:
            disk.open("missing", write=write)
        assert str(caught.value.filename).endswith("/missing")
    with pytest.raises(FileNotFoundError):
        disk.open("no/folder", write=True, create=True)
    with pytest.raises(ValueError, match="create needs write"):
        disk.open("a", create=True)


def test_a_directory_is_not_a_file(disk: Disk) -> None:
    disk.make_directory("d")
    for write in (False, True):
        with pytest.raises(IsADirectoryError):
            disk.open("d", write=write)
    with pytest.raises(IsADirectoryError):
        disk.read("d")
    with pytest.raises(IsADirectoryError):
        disk.remove("d")
    new_file(disk, "f")
    with pytest.raises(NotADirectoryError):
        disk.list("f")
    with pytest.raises(NotADirectoryError):
        disk.sync_directory("f")


def test_a_file_opened_for_reading_refuses_changes_and_names_its_path(disk: Disk) -> None:
    new_file(disk, data=b"ab")
    file = disk.open("a")
    with pytest.raises(OSError, match="/a'") as caught:
        file.pwrite(b"x", 0)
    assert caught.value.errno == errno.EBADF
    with pytest.raises(OSError, match="/a'"):
        file.truncate(0)
    assert disk.read("a") == b"ab"


def test_closed_file_is_of_no_use_and_close_again_is_fine(disk: Disk) -> None:
    file = new_file(disk, data=b"ab")
    file.close()
    file.close()
    for call in (file.size, file.sync, lambda: file.pread(1, 0)):
        with pytest.raises(OSError, match="/a'") as caught:
            call()
        assert caught.value.errno == errno.EBADF


def test_sync_of_file_and_directory_is_quiet(disk: Disk) -> None:
    disk.make_directory("d")
    for name, data in (("d/empty", b""), ("d/full", b"x")):
        new_file(disk, name, data).sync()
    disk.sync_directory("d")
    disk.sync_directory("")
    with pytest.raises(FileNotFoundError):
        disk.sync_directory("missing")


def test_list_is_sorted_and_tells_directories(disk: Disk) -> None:
    assert disk.list("") == []
    disk.make_directory("b")
    disk.make_directory("b/c")
    new_file(disk, "a")
    new_file(disk, "b/d")
    assert disk.list("") == [("a", False), ("b", True)]
    assert disk.list("b") == [("c", True), ("d", False)]
    assert disk.list("b/c") == []
    with pytest.raises(FileNotFoundError):
        disk.list("missing")


def test_stat_and_exists(disk: Disk) -> None:
    disk.make_directory("d")
    new_file(disk, "d/a", b"abc")
    disk.touch_times("d/a", 1_700_000_000_123)
    assert disk.stat("d/a")[:3] == (3, 1_700_000_000_123, False)
    assert disk.stat("d").is_directory
    assert disk.stat("").is_directory
    assert disk.exists("d/a")
    assert disk.exists("d")
    assert disk.exists("")
    assert not disk.exists("x")
    assert not disk.exists("d/a/x")
    with pytest.raises(FileNotFoundError):
        disk.stat("x")
    with pytest.raises(FileNotFoundError):
        disk.touch_times("x", 0)


def test_an_inode_tells_which_file_has_a_name(disk: Disk) -> None:
    disk.make_directory("d")
    new_file(disk, "d/a", b"old")
    old = disk.open("d/a")
    assert disk.inodes("d") == {"a": old.inode()}
    assert disk.stat("d/a").inode == old.inode()
    new_file(disk, "d/b", b"new")
    disk.rename("d/b", "d/a")
    new = disk.open("d/a")
    assert disk.inodes("d") == {"a": new.inode()}
    assert old.inode() != new.inode() == disk.stat("d/a").inode
    with pytest.raises(FileNotFoundError):
        disk.inodes("missing")


def test_make_directory_takes_a_free_name_in_an_existing_folder(disk: Disk) -> None:
    disk.make_directory("d")
    new_file(disk, "f")
    for name in ("d", "f", ""):
        with pytest.raises(FileExistsError):
            disk.make_directory(name)
    with pytest.raises(FileNotFoundError):
        disk.make_directory("x/y")


def test_rename_replaces_and_open_files_go_along(disk: Disk) -> None:
    old = new_file(disk, "a", b"new")
    replaced = new_file(disk, "b", b"old")
    disk.rename("a", "b")
    old.pwrite(b"!", 3)
    assert disk.read("b") == b"new!"
    assert not disk.exists("a")
    assert replaced.pread(9, 0) == b"old"
    disk.rename("b", "b")
    assert disk.read("b") == b"new!"
    with pytest.raises(FileNotFoundError):
        disk.rename("a", "c")
    with pytest.raises(FileNotFoundError):
        disk.rename("b", "x/b")


def test_rename_of_a_directory_takes_its_files_along(disk: Disk) -> None:
    disk.make_directory("d")
    file = new_file(disk, "d/a", b"x")
    disk.rename("d", "e")
    file.pwrite(b"y", 1)
    assert disk.read("e/a") == b"xy"
    assert not disk.exists("d")


def test_remove_leaves_open_files_usable(disk: Disk) -> None:
    file = new_file(disk, data=b"ab")
    disk.remove("a")
    assert not disk.exists("a")
    assert file.pread(2, 0) == b"ab"
    new_file(disk, data=b"other")
    assert file.pread(9, 0) == b"ab"
    with pytest.raises(FileNotFoundError):
        disk.remove("missing")


def test_remove_tree_removes_everything_below(disk: Disk) -> None:
    disk.make_directory("d")
    disk.make_directory("d/e")
    new_file(disk, "d/e/a", b"x")
    new_file(disk, "d/b", b"y")
    disk.remove_tree("d")
    assert disk.list("") == []
    with pytest.raises(FileNotFoundError):
        disk.remove_tree("d")


def test_replace_makes_and_replaces_and_leaves_nothing_else(disk: Disk) -> None:
    disk.make_directory("d")
    disk.replace("d/c", b"first, longer")
    assert disk.read("d/c") == b"first, longer"
    new_file(disk, "d/c.tmp", b"left over from an earlier crash")
    disk.replace("d/c", b"second")
    assert disk.read("d/c") == b"second"
    assert disk.list("d") == [("c", False)]
    disk.replace("d/c", b"")
    assert disk.read("d/c") == b""
    with pytest.raises(FileNotFoundError):
        disk.replace("x/c", b"")


def test_lock_excludes_a_second_one_and_keeps_the_file(disk: Disk) -> None:
    lock = disk.lock(".lock")
    with pytest.raises(LockedError, match=r"\.lock is locked by this process already"):
        disk.lock(".lock")
    # The refusal must not have let go of it.
    with pytest.raises(LockedError):
        disk.lock(".lock")
    other = disk.lock("other")
    lock.close()
    lock.close()
    assert disk.exists(".lock")
    again = disk.lock(".lock")
    lock.close()  # long let go: must not let go of the new one
    with pytest.raises(LockedError):
        disk.lock(".lock")
    again.close()
    other.close()


def test_to_ask_for_a_lock_takes_and_makes_nothing(disk: Disk) -> None:
    assert not disk.is_locked(".lock")
    assert not disk.exists(".lock")
    lock = disk.lock(".lock")
    assert disk.is_locked(".lock")
    assert disk.is_locked(".lock")  # asking has not let go of it
    lock.close()
    assert not disk.is_locked(".lock")


def test_lock_goes_with_its_last_reference(disk: Disk) -> None:
    lock = disk.lock(".lock")
    assert disk.is_locked(".lock")
    del lock
    assert not disk.is_locked(".lock")
    disk.lock(".lock").close()


def test_free_tells_of_room(disk: Disk) -> None:
    free = disk.free()
    assert isinstance(free, os.statvfs_result)
    assert free.f_bavail * free.f_frsize > 1 << 20


@pytest.mark.parametrize("name", ["/a", "../a", "d/../../a", ".."])
def test_names_do_not_lead_out(disk: Disk, name: str) -> None:
    with pytest.raises(ValueError, match="leads out of"):
        disk.open(name)
    with pytest.raises(ValueError, match="leads out of"):
        disk.list(name)


def test_parent_of_a_name() -> None:
    assert parent_of("orders-0/a.log") == "orders-0"
    assert parent_of("a") == ""
    assert parent_of("a/b/c") == "a/b"


changes = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 40), st.binary(max_size=20)),
        st.tuples(st.just("truncate"), st.integers(0, 60), st.just(b"")),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
    ),
    max_size=12,
)


@given(changes=changes)
def test_both_hold_the_same_bytes_after_any_changes(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int, bytes]]
) -> None:
    real = PosixDisk(tmp_path_factory.mktemp("disk"))
    fake = FakeDisk()
    for disk in (real, fake):
        file = new_file(disk)
        for what, at, data in changes:
            if what == "write":
                file.pwrite(data, at)
            elif what == "truncate":
                file.truncate(at)
            else:
                file.sync()
        assert file.pread(file.size(), 0) == disk.read("a")
    assert fake.read("a") == real.read("a")
    assert fake.after_kill().read("a") == real.read("a")


def test_a_file_is_written_again_as_it_is_under_a_new_inode(disk: Disk) -> None:
    data = os.urandom(3 << 19)
    new_file(disk, "f", data).close()
    disk.touch_times("f", 1_700_000_000_000)
    old = disk.open("f")
    write_again(disk, "f")
    assert disk.read("f") == data
    assert disk.stat("f").mtime_ms == 1_700_000_000_000
    assert (disk.stat("f").inode != old.inode(), disk.list("")) == (True, [("f", False)])


def test_a_file_knows_whether_it_has_a_name(disk: Disk) -> None:
    file = new_file(disk, "f", b"a")
    assert file.has_name()
    disk.rename("f", "g")
    assert file.has_name()
    file.drop_cached()
    assert disk.read("g") == b"a"
    disk.remove("g")
    assert not file.has_name()
    disk.make_directory("d")
    inside = new_file(disk, "d/f", b"a")
    disk.remove_tree("d")
    assert not inside.has_name()
