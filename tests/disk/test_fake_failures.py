"""What a fake disk does when it fails, is full, loses its cache, or its process dies."""

import errno

import pytest

from tests.disk.crashes import SEEDS, file_of, outcomes
from tests.fakes import FakeDisk
from tests.fakestate import Stopped


def test_a_crash_keeps_any_sectors_of_the_rest() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"-" * 1536)
    for number, letter in enumerate((b"a", b"b", b"c")):
        file.pwrite(letter * 512, 512 * number)
    found = {outcome[::512] for outcome in outcomes(disk)}
    assert {a + b + c for a in (b"a", b"-") for b in (b"b", b"-") for c in (b"c", b"-")} <= found


def test_a_sector_is_as_it_was_after_any_write() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"0" * 1024)
    file.pwrite(b"1", 0)
    file.pwrite(b"2", 0)
    file.pwrite(b"3", 1023)
    found = {outcome[:1] + outcome[-1:] for outcome in outcomes(disk)}
    assert {b"00", b"10", b"20", b"03", b"13", b"23"} <= found


def test_what_a_cut_has_freed_is_not_found_after_it() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"old" * 400)
    file.truncate(0)
    file.pwrite(b"new", 600)
    for outcome in outcomes(disk):
        assert b"old" not in outcome or b"new" not in outcome


def test_a_disk_that_loses_its_cache_is_mounted_again() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"old")
    file.pwrite(b"new", 3)
    disk.lose_cache(None)
    assert disk.read("a") == b"old"
    assert disk.mounts == 2
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(3, 0)


def test_a_fault_may_last_until_it_is_healed() -> None:
    disk = FakeDisk()
    file = file_of(disk, durable=b"bytes")
    disk.fail("pread", "a", errno.EIO)
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            file.pread(5, 0)
    disk.heal()
    assert file.pread(5, 0) == b"bytes"


def test_a_write_that_fails_has_left_something_out() -> None:
    disk = FakeDisk()
    file = file_of(disk)
    disk.fail_next_write("a", after_bytes=100)
    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite(b"bytes", 0)
    assert disk.read("a") == b"byte"


def test_nothing_reaches_the_disk_once_the_process_has_died() -> None:
    disk = FakeDisk()
    file = file_of(disk)
    disk.stop_before(2)
    file.pwrite(b"one", 0)
    file.sync()
    for _ in range(3):
        with pytest.raises(Stopped):
            file.pwrite(b"two", 3)
        with pytest.raises(Stopped):
            disk.remove("a")
    disk.kill()
    assert disk.read("a") == b"one"


@pytest.mark.parametrize("torn", [0.0, 0.5, 1.0])
def test_a_process_may_die_in_the_middle_of_a_write(torn: float) -> None:
    disk = FakeDisk()
    file = file_of(disk)
    disk.stop_before(0, torn=torn)
    with pytest.raises(Stopped):
        file.pwrite(b"12345678", 0)
    disk.kill()
    assert disk.read("a") == b"12345678"[: int(8 * torn)]


def test_a_death_that_did_not_come_can_be_taken_back() -> None:
    disk = FakeDisk()
    disk.stop_before(3)
    disk.live_on()
    for _ in SEEDS:
        disk.open("a", write=True, create=True)
    assert disk.exists("a")
