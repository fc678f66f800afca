"""Marks inside a batch: every part between two of them is a batch of the same records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records._rendering import BatchMarks, Renderer, mark_batch
from logfs.records.batch import BatchFields, decode_records, encode_batch
from logfs.records.compression import Compression, decompress
from logfs.records.layout import HEADER_BYTES
from logfs.records.record import Record
from logfs.types import View
from tests.records.oracle import rendering, renderings
from tests.records.strategies import record_lists

each_view = pytest.mark.parametrize("view", list(View))


def marks_of(data: bytes, view: View, piece: int) -> BatchMarks:
    marks = mark_batch(data, 0, len(data), view, piece)
    assert marks is not None
    return marks


def part_of(data: bytes, marks: BatchMarks, first: int, last: int) -> bytes:
    part = bytearray(HEADER_BYTES) + data[marks.at(first) : marks.at(last)]
    assert marks.make_batch(part, first, last) == len(part)
    return bytes(part)


@given(record_lists(min_size=1, max_size=30), st.sampled_from(list(View)), st.integers(1, 300))
def test_parts_are_batches_of_the_records_between_two_marks(
    records: list[Record], view: View, piece: int
) -> None:
    data = encode_batch(records, BatchFields())
    placed = decode_records(data)
    whole = renderings(view, placed)
    marks = marks_of(data, view, piece)
    assert marks.length == len(whole)
    starts = [0]
    for record in placed:
        starts.append(starts[-1] + len(rendering(view, record)))
    for first in range(marks.last):
        assert marks.before(first) in starts
        for last in (first + 1, marks.last):
            part = part_of(data, marks, first, last)
            out, renderer = bytearray(len(whole) + 1), Renderer(view, decompress)
            renderer.load(part, 0, len(part))
            got = renderer.render(out, 0, len(out))
            assert out[:got] == whole[marks.before(first) : marks.before(last)]


@given(record_lists(min_size=1, max_size=30), st.data())
def test_marks_around_some_bytes_hold_them_and_little_more(
    records: list[Record], data: st.DataObject
) -> None:
    batch = encode_batch(records, BatchFields())
    marks = marks_of(batch, View.TEXT, 40)
    length = data.draw(st.integers(0, marks.length - 1))
    wanted = data.draw(st.integers(0, 200))
    first, last = marks.around(length, wanted)
    end = min(length + wanted, marks.length)
    assert marks.before(first) <= length < marks.before(first + 1)
    assert end <= marks.before(last)
    assert last == first + 1 or marks.before(last - 1) < end


@each_view
def test_no_marks_without_plain_records_to_show(view: View) -> None:
    records = [Record(0, 1, None, b"v" * 100, ())]
    packed = encode_batch(records, BatchFields(compression=Compression.ZSTD))
    fields = BatchFields(producer_id=1, producer_epoch=0, is_transactional=True, is_control=True)
    control = encode_batch([Record(0, 1, b"\0\0\0\1", b"\0" * 6, ())], fields)
    two = encode_batch(records, BatchFields()) * 2
    for data in (packed, control, two):
        assert mark_batch(data, 0, len(data), view, 10) is None


@each_view
def test_a_damaged_batch_has_no_marks_and_other_bytes_make_no_part(view: View) -> None:
    data = bytearray(
        encode_batch([Record(0, n, b"k", b"v" * 50, ()) for n in range(20)], BatchFields())
    )
    marks = marks_of(bytes(data), view, 100)
    part = bytearray(HEADER_BYTES) + data[marks.at(1) : marks.at(3)]
    part[HEADER_BYTES + 70] ^= 4
    assert marks.make_batch(part, 1, 3) == 0
    data[200] ^= 4
    with pytest.raises(CorruptRecordError):
        mark_batch(data, 0, len(data), view, 100)


def test_wrong_numbers_are_refused() -> None:
    data = encode_batch([Record(0, n, None, b"v" * 50, ()) for n in range(20)], BatchFields())
    marks = marks_of(data, View.TEXT, 100)
    for refused in (
        lambda: marks.at(marks.last + 1),
        lambda: marks.before(-1),
        lambda: marks.around(marks.length, 1),
        lambda: marks.around(-1, 1),
        lambda: marks.around(0, -1),
        lambda: marks.make_batch(bytearray(5000), 3, 3),
        lambda: marks.make_batch(bytearray(5000), 0, marks.last + 1),
        lambda: marks.make_batch(bytearray(HEADER_BYTES), 0, 1),
        lambda: mark_batch(data, 0, len(data), 3, 100),
        lambda: mark_batch(data, 0, len(data), View.TEXT, 0),
        lambda: mark_batch(data, 0, len(data) + 1, View.TEXT, 100),
    ):
        with pytest.raises(ValueError, match=r"."):
            refused()
