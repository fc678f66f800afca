"""One index file: append, restart, seal. What is left when the disk fails is beside this."""

import threading
from pathlib import Path

import pytest

from logfs.disk.posix import PosixDisk
from logfs.errors import CorruptIndexError, UnsupportedFormatError
from logfs.log.indexes.index import OFFSET_INDEX, IndexFormat
from logfs.log.indexes.indexfile import IndexFile, IndexMode
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


def active(disk: FakeDisk, capacity_bytes: int | None = 100, count: int | None = 0) -> IndexFile:
    return IndexFile(disk, NAME, OFFSET_INDEX, capacity_bytes=capacity_bytes, count=count)


def sealed(disk: FakeDisk, form: IndexFormat = OFFSET_INDEX) -> IndexFile:
    return IndexFile(disk, NAME, form, mode=IndexMode.SEALED)


def test_nothing_is_touched_until_needed(disk: FakeDisk) -> None:
    disk.counts.clear()
    index = active(disk)
    assert index.count == 0
    assert not index.is_full()
    assert bytes(index.entries()) == b""
    index.sync()
    index.release()
    index.close()
    sealed(disk)
    assert not disk.counts


def test_active_file_has_kafkas_size_and_its_entries(disk: FakeDisk) -> None:
    index = active(disk)
    index.append(entry(1))
    index.append(entry(2) + entry(3))
    index.append(b"")
    assert bytes(index.entries()) == entries(3)
    assert index.count == 3
    assert disk.read(NAME) == entries(3) + bytes(96 - 24)  # 100, rounded down
    assert disk.used_bytes == 24


def test_index_without_capacity_grows_with_its_entries(disk: FakeDisk) -> None:
    index = active(disk, capacity_bytes=None)
    for number in range(1, 201):
        index.append(entry(number))
    assert not index.is_full(1000)
    assert disk.read(NAME) == entries(200)
    assert bytes(index.entries()) == entries(200)


def test_full_index_refuses(disk: FakeDisk) -> None:
    index = active(disk, capacity_bytes=30)
    index.append(entries(2))
    assert not index.is_full()
    assert index.is_full(reserve=1)
    with pytest.raises(ValueError, match="16 bytes do not fit"):
        index.append(entries(2))
    index.append(entry(3))
    assert index.is_full()
    with pytest.raises(ValueError, match="8 bytes do not fit"):
        index.append(entry(4))
    assert bytes(index.entries()) == entries(3)


def test_an_index_of_no_capacity_is_always_full(disk: FakeDisk) -> None:
    assert active(disk, capacity_bytes=7).is_full()


def test_a_part_of_an_entry_is_refused(disk: FakeDisk) -> None:
    index = active(disk)
    with pytest.raises(ValueError, match="7 bytes do not fit"):
        index.append(bytes(7))
    assert index.count == 0


def test_views_keep_their_contents(disk: FakeDisk) -> None:
    index = active(disk, capacity_bytes=None)
    index.append(entries(3))
    view = index.entries()
    index.truncate_entries(1)
    index.append(entry(77) + entry(78))
    for number in range(100, 300):
        index.append(entry(number))
    assert bytes(view) == entries(3)
    late = index.entries()
    expected = bytes(late)
    index.seal()
    index.release()
    index.close()
    assert bytes(late) == expected


def test_trim_and_restart_after_a_clean_stop(disk: FakeDisk) -> None:
    index = active(disk)
    index.append(entries(3))
    index.trim()
    index.sync()
    index.close()
    assert disk.read(NAME) == entries(3)
    again = active(disk, count=None)
    assert again.count == 3
    assert bytes(again.entries()) == entries(3)
    again.append(entry(4))
    assert disk.read(NAME) == entries(4) + bytes(96 - 32)
    again.trim()
    assert disk.read(NAME) == entries(4)


def test_trim_creates_the_file_that_kafka_expects(disk: FakeDisk) -> None:
    active(disk).trim()
    assert disk.read(NAME) == b""
    text = IndexFile(disk, "orders-0/a.textindex", TEXT_INDEX, count=0)
    text.trim()
    assert disk.read("orders-0/a.textindex") == TEXT_INDEX.header


def test_trim_of_an_untouched_trimmed_file_writes_nothing(disk: FakeDisk) -> None:
    disk.replace(NAME, entries(3))
    disk.counts.clear()
    index = active(disk, count=None)
    index.trim()
    index.sync()
    assert set(disk.counts) == {"stat"}


def test_trim_after_a_restart_cuts_what_is_not_valid(disk: FakeDisk) -> None:
    disk.replace(NAME, entries(5))
    index = active(disk, count=3)
    index.trim()
    assert disk.read(NAME) == entries(3)


def test_new_index_empties_a_file_of_its_name(disk: FakeDisk) -> None:
    disk.replace(NAME, b"left over" * 10)
    index = active(disk, count=0)
    assert bytes(index.entries()) == b""
    index.append(entry(1))
    assert disk.read(NAME) == entry(1) + bytes(96 - 8)


def test_valid_count_hides_the_rest_of_the_file(disk: FakeDisk) -> None:
    disk.replace(NAME, entries(5) + bytes(56))
    index = active(disk, count=2)
    assert bytes(index.entries()) == entries(2)
    index.append(entry(9))
    assert bytes(index.entries()) == entries(2) + entry(9)


def test_truncated_entries_are_zeros_in_the_file(disk: FakeDisk) -> None:
    index = active(disk)
    index.append(entries(5))
    index.truncate_entries(2)
    assert bytes(index.entries()) == entries(2)
    assert disk.read(NAME) == entries(2) + bytes(96 - 16)
    with pytest.raises(ValueError, match="cannot keep 3 entries"):
        index.truncate_entries(3)
    index.append(entry(3))
    index.truncate_entries(3)
    assert bytes(index.entries()) == entries(3)
    index.truncate_entries(0)
    assert disk.read(NAME) == bytes(96)
    assert bytes(index.entries()) == b""


def test_truncating_to_nothing_mends_any_file(disk: FakeDisk) -> None:
    disk.replace(NAME, b"LFXX" + bytes(99))
    index = IndexFile(disk, NAME, TEXT_INDEX)
    with pytest.raises(CorruptIndexError):
        index.entries()
    index.truncate_entries(0)
    assert disk.read(NAME) == TEXT_INDEX.header
    index.append(bytes(31) + b"\1")
    assert bytes(index.entries()) == bytes(31) + b"\1"


def test_truncating_to_nothing_repairs_an_unread_header(disk: FakeDisk) -> None:
    disk.replace(NAME, b"LFXX" + bytes(99))
    index = IndexFile(disk, NAME, TEXT_INDEX, count=1)
    index.trim()
    index.truncate_entries(0)
    assert disk.read(NAME) == TEXT_INDEX.header


def test_seal_trims_and_opens_the_file_for_look_ups(disk: FakeDisk) -> None:
    index = active(disk, capacity_bytes=100_000)
    index.append(entries(1000))
    index.seal()
    index.sync()
    assert index.is_sealed
    assert disk.read(NAME) == entries(1000)
    opened = disk.counts["open"]
    assert bytes(index.entries()) == entries(1000)
    assert disk.counts["open"] == opened + 1
    index.entries()
    assert disk.counts["open"] == opened + 1
    index.release()
    assert bytes(index.entries()) == entries(1000)
    assert disk.counts["open"] == opened + 2
    with pytest.raises(ValueError, match="sealed"):
        index.append(entry(1))
    with pytest.raises(ValueError, match="sealed"):
        index.truncate_entries(0)
    index.trim()
    index.seal()
    assert disk.read(NAME) == entries(1000)


def test_small_sealed_file_is_read(disk: FakeDisk) -> None:
    disk.replace(NAME, entries(512))
    assert bytes(sealed(disk).entries()) == entries(512)
    assert disk.counts["map"] == 0


def test_foreign_file_is_never_mapped(disk: FakeDisk) -> None:
    disk.replace(NAME, entries(1000))
    index = IndexFile(disk, NAME, OFFSET_INDEX, mode=IndexMode.FOREIGN)
    assert bytes(index.entries()) == entries(1000)
    assert disk.counts["map"] == 0
    with pytest.raises(ValueError, match="foreign"):
        index.append(entry(1))
    disk.replace(NAME, entries(2))  # a view has its own bytes, after any change by its owner
    assert bytes(index.entries()) == entries(1000)


@pytest.mark.parametrize("count", [1, 600])
def test_sealed_file_counts_whole_entries_only(disk: FakeDisk, count: int) -> None:
    disk.replace(NAME, entries(count) + b"torn")
    index = sealed(disk)
    assert index.count == count
    assert bytes(index.entries()) == entries(count)


def test_empty_sealed_file(disk: FakeDisk) -> None:
    disk.replace(NAME, b"")
    assert bytes(sealed(disk).entries()) == b""


def test_missing_sealed_file(disk: FakeDisk) -> None:
    index = sealed(disk)
    with pytest.raises(FileNotFoundError):
        _ = index.count
    with pytest.raises(FileNotFoundError):
        index.entries()


def test_missing_or_short_file_of_known_count(disk: FakeDisk) -> None:
    with pytest.raises(FileNotFoundError):
        active(disk, count=3).entries()
    disk.replace(NAME, entries(2))
    with pytest.raises(
        CorruptIndexError, match="16 bytes of entries after the header, expected 24"
    ):
        active(disk, count=3).entries()
    with pytest.raises(CorruptIndexError, match="4800"):
        IndexFile(disk, NAME, OFFSET_INDEX, count=600, mode=IndexMode.SEALED).entries()


def test_header_is_written_first_and_checked(disk: FakeDisk) -> None:
    index = IndexFile(disk, NAME, TEXT_INDEX, count=0)
    index.append(b"x" * 64)
    index.trim()
    assert disk.read(NAME) == TEXT_INDEX.header + b"x" * 64
    assert bytes(sealed(disk, TEXT_INDEX).entries()) == b"x" * 64
    assert sealed(disk, TEXT_INDEX).count == 2
    again = IndexFile(disk, NAME, TEXT_INDEX)
    again.append(b"y" * 32)
    assert disk.read(NAME) == TEXT_INDEX.header + b"x" * 64 + b"y" * 32
    disk.replace(NAME, b"LFTI\0\0\0\2" + bytes(40))
    with pytest.raises(UnsupportedFormatError, match=r"\.index: version 2"):
        sealed(disk, TEXT_INDEX).entries()
    disk.replace(NAME, b"LFTI\0\0")
    with pytest.raises(CorruptIndexError, match=r"\.index: the header is 4c4654490000,"):
        sealed(disk, TEXT_INDEX).entries()


def test_readers_see_a_prefix_while_the_index_grows(disk: FakeDisk) -> None:
    index = active(disk, capacity_bytes=None)
    expected, wrong = entries(3000), []

    def read() -> None:
        seen = 0
        while seen < len(expected):
            view = bytes(index.entries())
            if not (len(view) >= seen and expected.startswith(view)):
                wrong.append(view)
                return
            seen = len(view)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for start in range(0, len(expected), 8):
        index.append(expected[start : start + 8])
    for reader in readers:
        reader.join()
    assert not wrong


def test_rename_is_followed_by_name(disk: FakeDisk) -> None:
    disk.replace(NAME, entries(3))
    index = sealed(disk)
    disk.rename("orders-0", "orders-0.x-delete")
    index.name = NAME.replace("orders-0", "orders-0.x-delete")
    assert bytes(index.entries()) == entries(3)


def test_on_a_real_disk(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    index = IndexFile(disk, "a.index", OFFSET_INDEX, capacity_bytes=10485760, count=0)
    index.append(entries(2000))
    index.append(entry(2001))
    assert disk.stat("a.index").size == 10485760
    assert (tmp_path / "a.index").stat().st_blocks * 512 < 1 << 20
    before = bytes(index.entries())
    index.seal()
    index.sync()
    assert disk.stat("a.index").size == 2001 * 8
    view = index.entries()
    disk.remove("a.index")
    index.close()
    assert bytes(view) == before == entries(2001)


def test_a_sealed_file_that_another_process_cuts_is_damaged(disk: FakeDisk) -> None:
    disk.replace(NAME, entries(1000))
    index = sealed(disk)
    before = index.entries()
    disk.open(NAME, write=True).truncate(4000)
    with pytest.raises(CorruptIndexError, match="4000 bytes of entries after the header"):
        index.entries()
    with pytest.raises(CorruptIndexError, match=NAME):
        bytes(before)
