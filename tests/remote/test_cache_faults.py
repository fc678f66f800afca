"""A cache directory that is full, gone, damaged or not ours: readers get the right bytes.

They get them from the store meanwhile. When the fault is over, the directory is used again.
"""

import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from logfs.disk.remote.cache import CacheDirectory
from logfs.disk.remote.cachedfile import CachedFile
from logfs.disk.remote.remotefile import RemoteFiles
from tests.loopdevices import LoopDevice, loop_device
from tests.mounting import ROOT, environment, wait_until
from tests.remote import cachereader
from tests.remote.fakestore import FakeStore
from tests.remote.files import MIB, StoredLog, files_of, some_bytes

SIZE = 4 * MIB + 777
NAME = "t-0/x.log"


class Reading:
    """Objects in a store that are read through a cache directory.

    Args:
        path: The directory.
        count: Objects.
        caplog: The log.
    """

    def __init__(self, path: Path, count: int, caplog: pytest.LogCaptureFixture) -> None:
        self.path = path
        self.store = FakeStore()
        self.logs = [StoredLog(self.store, f"{n}", some_bytes(SIZE, seed=n)) for n in range(count)]
        self._caplog = caplog
        caplog.set_level(logging.INFO, "logfs.disk.remote.cache")
        self.files = self._files()

    def _files(self) -> RemoteFiles:
        cache = CacheDirectory(str(self.path), self.store.url, 100 * MIB, now_ns=time.time_ns)
        return files_of(self.store, cache=cache)

    def restart(self) -> None:
        """Begin as a new process."""
        self.files = self._files()

    def read(self, *numbers: int) -> int:
        """Read objects, not from memory; returns the requests that this took."""
        before = self.files.blocks.counters.requests
        for number in numbers or range(len(self.logs)):
            log = self.logs[number]
            self.files.blocks.forget(self.files.blocks.object(log.key, SIZE))
            file = self.files.open(NAME, log.part())
            for block in (3, 1, 4, 0, 2):
                expected = log.data[block * MIB : block * MIB + MIB]
                is_right = file.pread(MIB, block * MIB) == expected
                assert is_right  # a difference of so many bytes takes minutes to print
            file.close()
        return self.files.blocks.counters.requests - before

    def open_whole(self, number: int) -> CachedFile:
        """Return an object that is in the directory, open."""
        file = self.files.open(NAME, self.logs[number].part())
        assert isinstance(file, CachedFile)
        return file

    def check_file(self, file: CachedFile, number: int) -> None:
        """See that an open file has the right bytes."""
        data = bytearray(SIZE + 10)
        assert file.pread_into(memoryview(data), 0) == SIZE
        is_right = data[:SIZE] == self.logs[number].data
        assert is_right
        piece = memoryview(bytearray(100))
        assert file.pread_nowait_into(piece, MIB) in {None, 100}
        assert file.pread(100, SIZE - 50) == self.logs[number].data[-50:]

    @property
    def errors(self) -> int:
        return self.files.blocks.counters.cache_errors

    def warnings(self) -> int:
        """How many warnings of the directory there were since the last call."""
        found = [r for r in self._caplog.records if r.levelno == logging.WARNING]
        self._caplog.clear()
        return len(found)

    def check_use(self, *, is_told: bool = True) -> None:
        """See that the directory is used: a second read sends no request, also after a restart."""
        for _ in range(5):
            self.forget_kept()
            self.read()
        assert any("is used again" in r.message for r in self._caplog.records) == is_told
        assert self.warnings() == 0
        assert self.read() == 0
        self.restart()
        assert self.read(0) <= 1  # the checksums of its blocks may be in memory only

    def forget_kept(self) -> None:
        """Let all be fetched and written again."""
        for path in self.path.glob("*"):
            path.unlink()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[LoopDevice]:
    with loop_device(tmp_path, 64) as found:
        yield found


@pytest.fixture
def reading(device: LoopDevice, caplog: pytest.LogCaptureFixture) -> Reading:
    return Reading(Path(device.point, "cache"), 3, caplog)


@pytest.mark.expect_log("No space left")
def test_a_full_file_system(reading: Reading, device: LoopDevice) -> None:
    device.fill()
    for _ in range(2):
        assert reading.read() > 0
    assert reading.errors > 2
    assert reading.warnings() == 1
    device.make_room()
    reading.check_use()


def test_on_a_small_file_system_the_files_that_were_used_last_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with loop_device(tmp_path, 16) as device:
        reading = Reading(Path(device.point, "cache"), 8, caplog)
        for number in (0, 1, 2, 3, 4, 5, 6, 7, 2):
            reading.read(number)
        assert reading.warnings() == 0
        assert reading.errors == 0
        assert reading.read(2) == 0


@pytest.mark.expect_log("Read-only file system")
def test_a_read_only_file_system(reading: Reading, device: LoopDevice) -> None:
    reading.read(0)
    subprocess.run(["mount", "-o", "remount,ro", device.point], check=True)
    assert reading.read(0) == 0  # it can still be read
    for _ in range(2):
        assert reading.read(1) > 0
    assert reading.warnings() == 1
    assert reading.errors > 2
    reading.restart()
    assert reading.read(0) <= 1
    assert reading.read(1) > 0
    assert reading.warnings() == 1
    subprocess.run(["mount", "-o", "remount,rw", device.point], check=True)
    reading.check_use()


@pytest.mark.expect_log("Input/output error")
def test_a_device_that_is_gone(reading: Reading, device: LoopDevice) -> None:
    reading.read()
    file = reading.open_whole(0)
    other = reading.open_whole(1)
    device.go_away()
    reading.check_file(file, 0)
    for _ in range(2):
        assert reading.read() > 0
    reading.check_file(other, 1)
    assert reading.warnings() == 1
    assert reading.errors > 2
    file.close()
    other.close()
    # What is read ahead may still use it.
    unmount = ["umount", device.point]
    wait_until(lambda: subprocess.run(unmount, check=False).returncode == 0, "it is not used")
    device.mount()
    reading.check_use()


def test_a_file_system_that_is_unmounted_and_mounted_again(
    reading: Reading, device: LoopDevice
) -> None:
    reading.read(0, 1)
    file = reading.open_whole(0)
    subprocess.run(["umount", "-l", device.point], check=True)
    reading.check_file(file, 0)
    file.close()
    assert reading.read(1) > 0
    assert reading.read(1) == 0  # kept below the empty mount point
    device.mount()
    assert reading.read(2) > 0
    assert reading.read(0, 1) <= 2  # what it has is known again
    device.unmount()
    shutil.rmtree(reading.path)
    device.mount()


def test_a_directory_that_is_deleted_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reading = Reading(tmp_path / "far" / "cache", 3, caplog)
    reading.read()
    file = reading.open_whole(0)
    shutil.rmtree(tmp_path / "far")
    reading.check_file(file, 0)
    assert reading.read() > 0
    assert reading.read() == 0
    assert reading.path.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(reading.path)
    reading.path.mkdir()  # by another process
    assert reading.read() > 0
    assert reading.read() == 0
    assert reading.warnings() == 0


@pytest.mark.expect_log("File exists")
def test_a_file_in_the_place_of_the_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache"
    path.write_bytes(b"no directory")
    reading = Reading(path, 3, caplog)
    for _ in range(2):
        assert reading.read() > 0
    assert reading.warnings() == 1
    path.unlink()
    reading.read()
    reading.check_use()


def garbage(path: Path) -> None:
    path.write_bytes(Random(1).randbytes(path.stat().st_size))


def flipped(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(2 * MIB + 5)
        byte = file.read(1)
        file.seek(2 * MIB + 5)
        file.write(bytes([byte[0] ^ 1]))


def cut(path: Path) -> None:
    os.truncate(path, 2 * MIB + 5)


def cut_and_extended(path: Path) -> None:
    os.truncate(path, 2 * MIB + 5)
    os.truncate(path, SIZE)
    with path.open("r+b") as file:
        file.seek(2 * MIB + 5)
        file.write(bytes(SIZE - 2 * MIB - 5))


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


DAMAGES = [garbage, flipped, cut, cut_and_extended, emptied, as_fifo, as_directory, as_link]


@pytest.mark.allow_log("the cache of the store")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_damaged_files(
    damage: Callable[[Path], None],
    is_restarted: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reading = Reading(tmp_path, 3, caplog)
    reading.read()
    files = [reading.open_whole(number) for number in range(3)]
    time.sleep(0.02)  # the clock of the file system advances in steps
    for path in list(tmp_path.iterdir()):
        if path.stat().st_size == SIZE:
            damage(path)
    for number, file in enumerate(files):
        reading.check_file(file, number)
    if is_restarted:
        reading.restart()
    for _ in range(3):
        reading.read()
    assert reading.warnings() <= 1
    if damage in {garbage, flipped, cut_and_extended}:
        assert reading.files.blocks.counters.cache_corrupt > 0
    for path in tmp_path.iterdir():
        if path.is_dir():
            path.rmdir()
        elif not path.is_file() or path.is_symlink():
            path.unlink()
    reading.read()
    assert reading.read() == 0  # mended


def test_files_with_other_names_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "note").write_bytes(b"mine")
    (tmp_path / ("f" * 32)).write_bytes(b"not of the cache")
    (tmp_path / ("e" * 32)).mkdir()
    reading = Reading(tmp_path, 2, caplog)
    reading.read()
    assert reading.read() == 0
    assert (tmp_path / "note").read_bytes() == b"mine"
    assert reading.warnings() == 0


@pytest.mark.expect_log("Permission denied")
def test_a_directory_of_another_user(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    path = tmp_path / "cache"
    reading = Reading(path, 3, caplog)
    reading.read(0)
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)
    tmp_path.chmod(0o755)
    os.seteuid(65534)
    try:
        for _ in range(2):
            assert reading.read(1, 2) > 0
        reading.restart()
        assert reading.read() > 0
        assert reading.warnings() == 2  # one of each process
        assert reading.errors > 2
        os.seteuid(0)
        path.chmod(0o755)
        for file in path.iterdir():
            file.chmod(0o644)
        os.seteuid(65534)
        reading.restart()
        assert reading.read(0) <= 1  # it can be read
        os.seteuid(0)
        os.chown(path, 65534, 65534)
        os.seteuid(65534)
        reading.restart()
        reading.read()
        reading.check_use(is_told=False)
    finally:
        os.seteuid(0)


def reader(path: Path, seed: int, rounds: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.remote.cachereader", str(path), str(seed), str(rounds)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_two_processes_with_one_directory(tmp_path: Path) -> None:
    readers = [reader(tmp_path, seed, 800) for seed in (1, 2)]
    for one in readers:
        with one:
            out, errors = one.communicate(timeout=120)
        assert (one.returncode, out) == (0, b"reading\n"), errors.decode()
    taken = sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir())
    assert taken <= 2 * cachereader.LIMIT_BYTES


def test_processes_that_are_killed_while_they_write(tmp_path: Path) -> None:
    chance = Random(3)
    for seed in range(8):
        with reader(tmp_path, seed, 1_000_000) as one:
            assert one.stdout is not None
            assert one.stdout.readline() == b"reading\n"
            time.sleep(chance.random() * 0.2)
            assert one.poll() is None
            one.kill()
    with reader(tmp_path, 100, 300) as last:
        out, errors = last.communicate(timeout=120)
    assert (last.returncode, out) == (0, b"reading\n"), errors.decode()


def test_open_files_do_not_keep_room_that_others_need(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with loop_device(tmp_path, 16) as device:
        reading = Reading(Path(device.point, "cache"), 8, caplog)
        kept = []
        for number in range(8):
            reading.read(number)
            kept.append(reading.open_whole(number))
        assert reading.errors == 0
        for number, file in enumerate(kept):
            reading.check_file(file, number)
        assert reading.read(7) == 0
