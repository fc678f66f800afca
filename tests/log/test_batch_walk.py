"""A walk over the batches of a log: whole batches only, and on after damage."""

import pytest

from logfs.disk.vfs import File
from logfs.errors import CorruptRecordError
from logfs.log.segments.batches import BatchWalk, batches_from, read_pieces
from logfs.records.batch import encode_batch
from logfs.records.record import Record
from tests.fakes import FakeDisk


def _log(data: bytes) -> File:
    file = FakeDisk().open("a.log", write=True, create=True)
    file.pwrite(data, 0)
    return file


def _batches(*sizes: int) -> list[bytes]:
    return [encode_batch([Record(n, 1, None, b"v" * size)]) for n, size in enumerate(sizes)]


def test_every_batch_is_in_one_window_and_is_whole_there() -> None:
    batches = _batches(10, 3000, 10, 10, 9000, 10)
    data, seen = b"".join(batches), b""
    for window in BatchWalk(_log(data), 0, len(data), 1000):
        assert window.file_position == len(seen)
        seen += window.buffer[: window.stop]
    assert seen == data
    offsets = [b.header.base_offset for b in batches_from(BatchWalk(_log(data), 0, len(data), 50))]
    assert offsets == list(range(6))


def test_a_walk_continues_where_its_caller_says_after_damage() -> None:
    batches = _batches(100, 100, 100)
    batches[1] = batches[1][:8] + bytes(4) + batches[1][12:]  # its length
    data = b"".join(batches)
    walk = BatchWalk(_log(data), 0, len(data))
    assert next(walk).stop == len(batches[0])
    with pytest.raises(CorruptRecordError, match=f"batch at byte {len(batches[0])} cannot be used"):
        next(walk)
    walk.position += len(batches[1])
    assert next(walk).file_end == len(data)
    assert list(walk) == []


@pytest.mark.parametrize("piece_bytes", [50, 200, 1 << 20])
def test_pieces_hold_whole_batches_of_any_size(piece_bytes: int) -> None:
    batches = _batches(10, 3000, 10, 9000)
    data, seen = b"".join(batches), bytearray()

    def take(buffer: bytearray, size: int) -> int:
        whole = 0
        for batch in batches:
            if whole + len(batch) <= size and buffer[whole : whole + len(batch)] == batch:
                whole += len(batch)
        seen.extend(buffer[:whole])
        return whole

    assert read_pieces(_log(data), "a.log", len(data), piece_bytes, take) == len(data)
    assert seen == data


def test_a_cut_batch_is_named_with_its_file_and_byte() -> None:
    whole, cut = _batches(10, 10)
    data = whole + cut[:-1]

    def take(_buffer: bytearray, size: int) -> int:
        return len(whole) if size == len(data) else 0

    message = rf"a\.log at byte {len(whole)}: a batch of {len(cut)} bytes is cut"
    with pytest.raises(CorruptRecordError, match=message):
        read_pieces(_log(data), "a.log", len(data), 1 << 20, take)
