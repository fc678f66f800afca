"""What of a file is in memory: the two ways to ask say the same."""

import os
from pathlib import Path

import pytest

from logfs.disk import page_cache
from logfs.disk.posix import PosixDisk

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("size", [0, 1, 3 * PAGE + 7, 5 * 1024 * 1024])
def test_what_was_just_written_is_in_memory(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * size)
    assert PosixDisk(tmp_path).cached_bytes("file") == size
    with (tmp_path / "file").open("rb") as file:
        pages = -(-size // PAGE) * PAGE
        assert page_cache.by_mincore(file.fileno(), size) == pages
        # Older kernels do not have it; then the other one is asked.
        assert page_cache.by_cachestat(file.fileno()) in (pages, None)


def test_an_unread_hole_is_not(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(64 * PAGE)
        os.pwrite(file.fileno(), b"x", 0)
    with (tmp_path / "file").open("rb") as file:
        assert page_cache.by_mincore(file.fileno(), 64 * PAGE) == PAGE
        assert page_cache.cached_bytes(file.fileno()) == PAGE


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PosixDisk(tmp_path).cached_bytes("file")
