"""The chunks of a scan: every byte is read once, with batches of any size."""

from logfs.disk.vfs import File
from logfs.log.segments.batches import Chunks
from tests.fakes import FakeDisk

_MIB = 1024 * 1024


def _file(size: int) -> tuple[File, FakeDisk, bytes]:
    """Return a file, its disk, and its bytes."""
    disk, data = FakeDisk(), (bytes(range(251)) * (size // 251 + 1))[:size]
    file = disk.open("a.log", write=True, create=True)
    file.pwrite(data, 0)
    return file, disk, data


def test_what_was_not_used_up_is_not_read_again() -> None:
    file, disk, data = _file(3 * _MIB)
    chunks, position = Chunks(file, len(data)), 0
    while position < len(data):
        size = chunks.read(position)
        assert chunks.data[:size] == data[position : position + size]
        position += min(700_000, size)
    assert disk.bytes_of["pread"] == len(data)
    assert not chunks.is_cut


def test_a_batch_that_is_larger_than_a_chunk() -> None:
    file, disk, data = _file(5 * _MIB)
    chunks = Chunks(file, len(data))
    assert chunks.read(0) == _MIB
    size = chunks.read(100, 2 * _MIB + 1)
    assert size > 2 * _MIB
    assert chunks.data[:size] == data[100 : 100 + size]
    assert disk.bytes_of["pread"] == 100 + size


def test_going_back_and_far_ahead() -> None:
    file, _, data = _file(4 * _MIB)
    chunks = Chunks(file, len(data))
    for position in (2 * _MIB, 5, 3 * _MIB + 5, 2 * _MIB + 1):
        size = chunks.read(position)
        assert size == min(_MIB, len(data) - position)
        assert chunks.data[:size] == data[position : position + size]


def test_a_file_that_gets_shorter() -> None:
    file, _, data = _file(2 * _MIB)
    chunks = Chunks(file, len(data))
    chunks.read(0)
    file.truncate(_MIB + 10)
    assert chunks.read(_MIB - 10) == 20
    assert chunks.is_cut
