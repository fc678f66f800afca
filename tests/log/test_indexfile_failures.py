"""What is left of an index file when the disk fails, and what is synced when."""

import errno

import pytest

from logfs.log.indexes.index import OFFSET_INDEX, TIME_INDEX
from logfs.log.indexes.indexfile import IndexFile
from logfs.log.indexes.textindex import TEXT_INDEX
from tests.fakes import FakeDisk
from tests.log.entries import encode_offset_entry

NAME = "orders-0/00000000000000000000.index"


@pytest.fixture
def disk() -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory("orders-0")
    disk.sync_directory("")
    return disk


def entry(number: int) -> bytes:
    return encode_offset_entry(number, number * 100)


def entries(count: int) -> bytes:
    return b"".join(entry(number) for number in range(1, count + 1))


def active(disk: FakeDisk) -> IndexFile:
    return IndexFile(disk, NAME, OFFSET_INDEX, capacity_bytes=100, count=0)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("after_bytes", [0, 5])
def test_failed_append_changes_nothing(disk: FakeDisk, error: int, after_bytes: int) -> None:
    index = active(disk)
    index.append(entries(2))
    disk.fail_next_write("*.index", error, after_bytes)
    with pytest.raises(OSError, match=r"\.index"):
        index.append(entry(77))
    assert index.count == 2
    assert bytes(index.entries()) == entries(2)
    index.append(entry(3))
    assert bytes(index.entries()) == entries(3)
    index.trim()
    assert disk.read(NAME) == entries(3)


@pytest.mark.parametrize("operation", ["open", "truncate", "pwrite"])
def test_failed_first_append_changes_nothing(disk: FakeDisk, operation: str) -> None:
    for form in (TEXT_INDEX, TIME_INDEX):
        index = IndexFile(disk, NAME, form, capacity_bytes=None, count=0)
        disk.fail_next(operation, "*.index", errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            index.append(b"x" * form.entry_bytes)
        assert bytes(index.entries()) == b""
        index.append(b"y" * form.entry_bytes)
        assert disk.read(NAME) == form.header + b"y" * form.entry_bytes


def test_failed_truncation_has_taken_the_entries(disk: FakeDisk) -> None:
    index = active(disk)
    index.append(entries(5))
    disk.fail_next("truncate")
    with pytest.raises(OSError, match="Input/output error"):
        index.truncate_entries(2)
    assert bytes(index.entries()) == entries(2)
    index.append(entry(9))
    index.trim()
    assert disk.read(NAME) == entries(2) + entry(9)


def test_sync_only_if_there_is_something_to_sync(disk: FakeDisk) -> None:
    index = active(disk)
    index.append(entry(1))
    index.sync()
    index.sync()
    assert disk.counts["sync"] == 1
    index.append(entry(2))
    disk.fail_next_sync()
    with pytest.raises(OSError, match="Input/output error"):
        index.sync()
    index.sync()
    assert disk.counts["sync"] == 3
    disk.sync_directory("orders-0")
    survived = disk.after_crash(None).read(NAME)
    assert survived[:8] == entry(1)


def test_what_was_written_before_sealing_is_synced_after_it(disk: FakeDisk) -> None:
    index = active(disk)
    index.append(entries(3))
    index.seal()
    index.entries()
    index.release()
    index.sync()
    disk.sync_directory("orders-0")
    assert disk.after_crash(None).read(NAME) == entries(3)
