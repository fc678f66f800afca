"""Large reads of an uncached file leave the page cache as it was."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.disk import page_cache
from logfs.disk.posix import PosixDisk
from logfs.disk.posixfile import PosixFile
from logfs.disk.uncached_file import UNCACHED_BYTES, UncachedFile
from tests.disk.cold import cached, chill, cold_place, write_cold

PAGE = page_cache.PAGE_BYTES
SIZE = 8 * 1024 * 1024 + 123
PIECE = 512 * 1024 + 77
DATA = os.urandom(SIZE)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A file of which nothing is in memory."""
    with cold_place(tmp_path) as place:
        write_cold(place / "file", DATA)
        yield place / "file"


@pytest.fixture(params=[True, False], ids=["the kernel drops", "dropped after"])
def uncached(request: pytest.FixtureRequest, path: Path) -> Iterator[UncachedFile]:
    file = UncachedFile(str(path), os.open(path, os.O_RDONLY), asks_kernel=request.param)
    yield file
    file.close()


def read_through(file: PosixFile, *, asks_first: bool = False) -> bytes:
    """Read a file from its beginning to its end, in pieces that end within pages."""
    parts, position = [], 0
    while position < SIZE:
        buffer = memoryview(bytearray(PIECE))
        got = file.pread_nowait_into(buffer, position) if asks_first else None
        if got is None:
            got = file.pread_into(buffer, position)
        parts.append(bytes(buffer[:got]))
        position += got
    return b"".join(parts)


@pytest.mark.parametrize("asks_first", [False, True], ids=["waits", "asks first"])
def test_nothing_is_left_of_what_was_cold(
    uncached: UncachedFile, path: Path, asks_first: bool
) -> None:
    assert cached(path) == 0
    assert read_through(uncached, asks_first=asks_first) == DATA
    assert cached(path) <= PAGE


def test_an_ordinary_file_leaves_all_of_it(path: Path) -> None:
    file = PosixFile(str(path), os.open(path, os.O_RDONLY))
    assert read_through(file) == DATA
    file.close()
    assert cached(path) == SIZE


def test_what_others_have_read_stays(uncached: UncachedFile, path: Path) -> None:
    with path.open("rb", buffering=0) as other:
        os.posix_fadvise(other.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for start, length in ((0, 64 * PAGE), (600 * PAGE, 700 * PAGE), (2000 * PAGE, SIZE)):
            os.pread(other.fileno(), length, start)
    before = cached(path)
    assert read_through(uncached, asks_first=True) == DATA
    assert cached(path) >= before


def test_what_is_all_in_memory_needs_no_wait_and_stays(uncached: UncachedFile, path: Path) -> None:
    assert path.read_bytes() == DATA
    buffer = memoryview(bytearray(PIECE))
    assert uncached.pread_nowait_into(buffer, 1000) == PIECE
    assert uncached.pread_nowait_into(buffer, SIZE - 100) == 100
    assert uncached.pread_nowait_into(buffer, SIZE + 100) == 0
    assert cached(path) == SIZE


def test_a_read_that_does_not_wait_fetches_nothing_cold(uncached: UncachedFile, path: Path) -> None:
    assert uncached.pread_nowait_into(memoryview(bytearray(PIECE)), 0) is None
    for start in range(0, SIZE, PIECE):
        uncached.pread_nowait_into(memoryview(bytearray(PIECE)), start)
    # The kernel may have begun to read ahead, and drops those pages once they are read.
    assert read_through(uncached) == DATA
    assert cached(path) <= PAGE


def test_a_look_up_is_kept(uncached: UncachedFile, path: Path) -> None:
    buffer = memoryview(bytearray(UNCACHED_BYTES - 1))
    assert uncached.pread_into(buffer, 4 * PAGE) == len(buffer)
    assert cached(path) >= len(buffer)
    assert buffer == DATA[4 * PAGE :][: len(buffer)]


def test_the_end_of_the_file(uncached: UncachedFile) -> None:
    buffer = memoryview(bytearray(PIECE))
    assert uncached.pread_into(buffer, SIZE - 10) == 10
    assert buffer[:10] == DATA[-10:]
    assert uncached.pread_into(buffer, SIZE) == 0
    assert uncached.pread_into(buffer, SIZE + PIECE) == 0


def test_a_disk_opens_it_only_for_reading(path: Path) -> None:
    disk = PosixDisk(path.parent)
    assert type(disk.open("file", uncached=True)) is UncachedFile
    assert type(disk.open("file")) is PosixFile
    assert type(disk.open("file", write=True, uncached=True)) is PosixFile


def test_a_range_is_counted_in_whole_pages(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), 10 * PAGE, 20 * PAGE)
        count = page_cache.cached_pages
        assert count(file.fileno(), 0, SIZE) == 10
        assert count(file.fileno(), 25 * PAGE + 1, 2 * PAGE) == 3
        assert count(file.fileno(), 30 * PAGE, PAGE) == 0
        assert count(file.fileno(), SIZE, PAGE) == 0
    chill(path)
    assert cached(path) == 0
