"""Blocks that are set aside for what is going to be written, as stat(2) shows them."""

import os
from pathlib import Path

import pytest

from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import Disk, File
from tests.fakes import FakeDisk

MIB = 1 << 20


@pytest.fixture(params=["posix", "fake"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return PosixDisk(tmp_path) if request.param == "posix" else FakeDisk()


def allocated(file: File) -> int:
    return os.fstat(file.fileno()).st_blocks * 512


def test_preallocated_blocks_are_invisible(disk: Disk) -> None:
    file = disk.open("a", write=True, create=True)
    file.pwrite(b"0123456789", 0)
    assert file.make_room(10, MIB)
    assert file.size() == disk.stat("a").size == 10
    assert file.pread(100, 0) == disk.read("a") == b"0123456789"
    file.pwrite(b"next", 10)
    assert disk.read("a") == b"0123456789next"


def test_room_is_on_the_disk_until_the_file_is_cut_to_its_end(tmp_path: Path) -> None:
    file = PosixDisk(tmp_path).open("a", write=True, create=True)
    file.pwrite(bytes(10), 0)
    assert file.make_room(10, MIB)
    assert allocated(file) >= MIB
    file.truncate(10)
    assert file.size() == 10
    assert allocated(file) < MIB


def test_room_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    file = PosixDisk(tmp_path).open("a", write=True, create=True)
    assert not file.make_room(0, 1 << 60)
    file.close()
    assert not file.make_room(0, MIB)
