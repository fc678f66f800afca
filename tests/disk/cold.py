"""Files of which nothing is in memory, and a place where there can be some."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logfs.disk import page_cache
from tests.mounting import ROOT


def write_cold(path: Path, data: bytes) -> None:
    """Write a file and drop it from memory."""
    path.write_bytes(data)
    chill(path)


def chill(path: Path) -> None:
    """Drop a file from memory."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached(path: Path) -> int:
    """Return how many bytes of a file are in memory."""
    with path.open("rb") as file:
        found = page_cache.cached_bytes(file.fileno())
    assert found is not None
    return found


@contextmanager
def cold_place(first: Path) -> Iterator[Path]:
    """Give a directory on a file system that can drop: the first one, or one in the checkout.

    Where the files of a file system live in memory only (tmpfs), or are those of another one
    (overlay), nothing can be cold.
    """
    if _can_be_cold(first):
        yield first
        return
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as place:
        if not _can_be_cold(Path(place)):
            pytest.skip(f"neither {first} nor {build} is on a disk whose pages can be dropped")
        yield Path(place)


def _can_be_cold(place: Path) -> bool:
    probe = place / "probe"
    probe.write_bytes(bytes(1 << 20))
    is_seen = cached(probe) > 0
    chill(probe)
    is_cold = cached(probe) == 0
    probe.unlink()
    return is_seen and is_cold
