"""What many open files take of the daemon's memory."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fs.mounting import Mounted, resident_bytes

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

FILES = 10_000
NAMES = ("0", "0.tsv", "0@earliest", "0@earliest..latest.jsonl", "0@offset=7")
MOST_BYTES = 256 * 1024 * 1024
LINES = "".join(f"line {n:06d} {'x' * 50}\n" for n in range(10_000)).encode()


@pytest.fixture
def many_files() -> Iterator[int]:
    """How many files this process may have open; raised as far as it may be."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def fill(mounted: Mounted) -> Path:
    """Make a partition of eight batches, each larger than a reader's window."""
    mounted.shell("mkdir orders")
    path = mounted.point / "orders/0"
    for _ in range(8):
        with path.open("ab", buffering=0) as file:
            file.write(LINES)
    return path


def test_ten_thousand_open_readers(mounted: Mounted, many_files: int) -> None:
    if many_files < FILES + 500:
        pytest.skip(f"a process may have {many_files} files open here")
    fill(mounted)
    files = [
        os.open(mounted.point / "orders" / NAMES[n % len(NAMES)], os.O_RDONLY) for n in range(FILES)
    ]
    first = [os.pread(file, 100, 0) for file in files]
    assert resident_bytes(mounted.pid) < MOST_BYTES
    assert [os.pread(file, 50, 100) for file in files[::97]] == [
        os.pread(file, 150, 0)[100:] for file in files[::97]
    ]
    assert resident_bytes(mounted.pid) < MOST_BYTES
    assert first[0] == LINES[:100]
    for file in files:
        os.close(file)
