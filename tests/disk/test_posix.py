"""What only the real disk has: descriptors, short system calls, other processes."""

import contextlib
import errno
import gc
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.disk.beneath import Beneath
from logfs.disk.link_or_copy import copy_bytes
from logfs.disk.posix import PosixDisk
from logfs.disk.posixfile import PosixFile
from logfs.errors import LockedError

HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def disk(tmp_path: Path) -> PosixDisk:
    return PosixDisk(tmp_path)


def open_descriptors() -> set[int]:
    def is_open(descriptor: int) -> bool:
        try:
            os.fstat(descriptor)
        except OSError:
            return False  # the one that listed them
        return True

    return set(filter(is_open, map(int, os.listdir("/proc/self/fd"))))


def holder_of(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def end(process: "subprocess.Popen[str]") -> None:
    process.communicate()


SMALL = 1000


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """Let no file grow beyond SMALL bytes: the kernel then writes a part, and fails the rest.

    No longer than a call takes: the test's own report may be going to a larger file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_root_is_absolute_and_need_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    disk = PosixDisk("data")
    assert disk.root == str(tmp_path / "data")
    assert not disk.exists("")
    disk.make_directory("")
    assert disk.list("") == []


def test_descriptor_goes_with_the_last_reference(disk: PosixDisk) -> None:
    gc.collect()  # what other tests have left
    before = open_descriptors()
    file = disk.open("a", write=True, create=True)
    assert open_descriptors() > before
    del file
    gc.collect()
    assert open_descriptors() == before


def test_nothing_is_left_open_after_whole_operations(disk: PosixDisk) -> None:
    before = open_descriptors()
    disk.replace("a", b"x")
    disk.read("a")
    disk.sync_directory("")
    with pytest.raises(FileNotFoundError):
        disk.open("missing")
    assert open_descriptors() == before


def test_descriptors_are_not_inherited(disk: PosixDisk) -> None:
    before = open_descriptors()
    file = disk.open("a", write=True, create=True)
    lock = disk.lock(".lock")
    new = open_descriptors() - before
    assert len(new) == 2
    assert not any(map(os.get_inheritable, new))
    file.close()
    lock.close()


def test_failed_write_may_leave_a_prefix(disk: PosixDisk) -> None:
    file = disk.open("a", write=True, create=True)
    with pytest.raises(OSError, match="/a'") as caught, small_files():
        file.pwrite(b"x" * (SMALL + 1), 0)
    assert caught.value.errno == errno.EFBIG
    assert disk.read("a") == b"x" * SMALL


def test_failed_replace_keeps_the_old_contents_and_no_remains(disk: PosixDisk) -> None:
    disk.replace("a", b"old")
    with pytest.raises(OSError, match=r"/a\.tmp'"), small_files():
        disk.replace("a", b"x" * (SMALL + 1))
    assert disk.read("a") == b"old"
    assert disk.list("") == [("a", False)]


def test_reads_are_put_together_from_short_ones(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(100))
    disk.replace("a", data)
    file = disk.open("a", write=True)
    preadv, pread, pwrite = os.preadv, os.pread, os.pwrite

    def short_preadv(fd: int, buffers: tuple[memoryview], position: int) -> int:
        return preadv(fd, [buffers[0][:7]], position)

    monkeypatch.setattr(os, "preadv", short_preadv)
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 7), at))
    monkeypatch.setattr(os, "pwrite", lambda fd, part, at: pwrite(fd, bytes(part)[:7], at))
    buffer = bytearray(60)
    assert file.pread_into(memoryview(buffer), 10) == 60
    assert buffer == data[10:70]
    assert file.pread_into(memoryview(buffer), 80) == 20
    assert file.pread(60, 10) == data[10:70]
    assert file.pread(60, 80) == data[80:]
    file.pwrite(memoryview(data)[::-1].tobytes(), 0)
    assert disk.read("a") == data[::-1]


def test_read_without_waiting_does_not_go_to_the_device(disk: PosixDisk) -> None:
    data = os.urandom(1 << 20)
    disk.replace("a", data)
    descriptor = os.open(f"{disk.root}/a", os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    buffer = bytearray(1 << 20)
    count = disk.open("a").pread_nowait_into(memoryview(buffer), 0)
    assert buffer[: count or 0] == data[: count or 0]


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_read_without_waiting_is_none_if_it_would_wait_or_cannot_tell(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    disk.replace("a", b"abc")
    file = disk.open("a")
    monkeypatch.setattr(os, "preadv", refuse)
    assert file.pread_nowait_into(memoryview(bytearray(3)), 0) is None


def test_lock_of_another_process_is_refused_with_its_pid(disk: PosixDisk) -> None:
    path = Path(disk.root) / ".lock"
    process = holder_of(path)
    with pytest.raises(LockedError, match=rf"/\.lock is locked by process {process.pid}:"):
        disk.lock(".lock")
    end(process)
    disk.lock(".lock").close()


def test_own_lock_keeps_another_process_out(disk: PosixDisk) -> None:
    lock = disk.lock(".lock")
    with pytest.raises(LockedError):  # opens and closes nothing, or the lock would be gone
        disk.lock(".lock")
    attempt = (
        "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    command = [sys.executable, "-c", attempt, f"{disk.root}/.lock"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    lock.close()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_lock_through_another_name_of_the_file_is_refused(disk: PosixDisk) -> None:
    lock = disk.lock(".lock")
    os.link(f"{disk.root}/.lock", f"{disk.root}/again")
    with pytest.raises(LockedError, match="by this process"):
        disk.lock("again")
    lock.close()


@pytest.mark.parametrize("is_made_again", [False, True])
def test_lock_file_that_was_removed_meanwhile_is_locked_again(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch, is_made_again: bool
) -> None:
    """Kafka deletes its lock file at shutdown: a lock on the deleted file would exclude nothing."""
    path = f"{disk.root}/.lock"
    really_open = os.open

    def open_and_lose(
        name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        descriptor = really_open(name, flags, mode, dir_fd=dir_fd)
        if name != ".lock":
            return descriptor
        monkeypatch.setattr(os, "open", really_open)
        Path(path).unlink()
        if is_made_again:
            Path(path).touch()
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    lock = disk.lock(".lock")
    with pytest.raises(LockedError):
        disk.lock(".lock")
    lock.close()


def test_a_file_with_two_names_is_copied_before_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"shared")
    (tmp_path / "log").chmod(0o640)
    os.link(tmp_path / "log", tmp_path / "backup")
    disk = PosixDisk(tmp_path)
    reader = disk.open("log")
    file = disk.open("log", write=True)
    file.truncate(2)
    file.pwrite(b"!", 2)
    assert disk.read("log") == b"sh!"
    assert (tmp_path / "backup").read_bytes() == b"shared"
    assert reader.pread(10, 0) == b"shared"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o640
    before = (tmp_path / "log").stat().st_ino
    disk.open("log", write=True).pwrite(b"?", 0)
    assert (tmp_path / "log").stat().st_ino == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "log"]


def test_a_copy_that_cannot_read_its_source_names_the_source(tmp_path: Path) -> None:
    with (tmp_path / "copy").open("wb") as copy, Path("/proc/self/mem").open("rb") as source:
        with pytest.raises(OSError, match="/mem'") as caught:
            copy_bytes(source.fileno(), copy.fileno(), 10)
        assert caught.value.errno == errno.EIO
        with (
            pytest.raises(OSError, match="/mem'"),
            Beneath(str(tmp_path), "copy"),
        ):
            copy_bytes(source.fileno(), copy.fileno(), 10)


def test_a_read_that_fails_says_where() -> None:
    file = PosixFile("log", os.open("/proc/self/mem", os.O_RDONLY))
    for read in (lambda: file.pread(10, 0), lambda: file.pread_into(memoryview(bytearray(10)), 0)):
        with pytest.raises(OSError, match=r"reading 10 bytes from byte 0\): 'log'"):
            read()
    file.close()
