"""Batches as Python objects: the records that a reader sees, of a range of offsets."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records._reading import decode_batches
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.compression import decompress
from logfs.records.record import Record
from tests.records.oracle import Batch
from tests.records.strategies import NOW_MS, joined, logs, visible

BATCHES = [encode_batch([Record(n, NOW_MS, None, b"v")]) for n in range(3)]


@given(log=logs, data=st.data())
def test_the_records_of_a_range(log: list[Batch], data: st.DataObject) -> None:
    buf = b"##" + joined(log)
    last = log[-1].last_offset + 2 if log else 2
    first, end = data.draw(st.integers(0, last)), data.draw(st.integers(0, last))
    expected = [record for record in visible(log) if first <= record.offset < end]
    records, position, offset = decode_batches(buf, 2, len(buf), first, end, decompress)
    assert records == expected
    assert all(type(record) is Record for record in records)
    # From there on the rest comes, and nothing twice.
    behind, stop, _ = decode_batches(buf, position, len(buf), offset, last + 9, decompress)
    assert behind == [r for r in visible(log) if r.offset >= max(first, end)]
    assert stop == len(buf)


@given(log=logs, cut=st.integers(1, 60))
def test_a_batch_that_is_cut_is_left_out(log: list[Batch], cut: int) -> None:
    buf = joined(log)
    records, position, _ = decode_batches(buf, 0, max(len(buf) - cut, 0), 0, 2**62, decompress)
    whole = [batch for n, batch in enumerate(log) if len(joined(log[: n + 1])) <= len(buf) - cut]
    assert records == visible(whole)
    assert position == len(joined(whole))


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_damage_is_an_error_once_it_is_the_next(damaged: int) -> None:
    buf = bytearray(b"".join(BATCHES))
    at = sum(map(len, BATCHES[:damaged]))
    buf[at + len(BATCHES[damaged]) - 1] ^= 1
    if damaged:
        records, position, offset = decode_batches(buf, 0, len(buf), 0, 9, decompress)
        assert [record.offset for record in records] == list(range(damaged))
        assert (position, offset) == (at, damaged)
    with pytest.raises(CorruptRecordError, match="checksum") as caught:
        decode_batches(buf, at, len(buf), damaged, 9, decompress)
    assert caught.value.position == at


def test_damage_outside_of_the_range_is_ignored() -> None:
    buf = bytearray(b"".join(BATCHES))
    buf[len(BATCHES[0]) - 1] ^= 1
    buf[-1] ^= 1
    records, _, offset = decode_batches(buf, 0, len(buf), 1, 2, decompress)
    assert ([record.offset for record in records], offset) == ([1], 2)


def test_aborted_records_and_markers_are_passed_over() -> None:
    mine = BatchFields(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    theirs = BatchFields(producer_id=6, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = BatchFields(producer_id=5, producer_epoch=0, is_transactional=True, is_control=True)
    buf = b"".join(
        encode_batch([Record(offset, NOW_MS, None, b"v")], fields)
        for offset, fields in enumerate([mine, theirs, marker, mine])
    )
    everything, _, end = decode_batches(buf, 0, len(buf), 0, 9, decompress)
    assert ([record.offset for record in everything], end) == ([0, 1, 3], 4)
    aborted = array("q", (5, 0, 2)).tobytes()
    seen, _, end = decode_batches(buf, 0, len(buf), 0, 9, decompress, aborted)
    assert ([record.offset for record in seen], end) == ([1, 3], 4)


@given(data=st.binary(max_size=200), flips=st.lists(st.integers(0, 68), max_size=3))
def test_garbage_gives_an_answer_or_an_error(data: bytes, flips: list[int]) -> None:
    damaged = bytearray(BATCHES[0])
    for flip in flips:
        damaged[flip] ^= 1 << flip % 8
    for buf in (data, bytes(damaged) + data):
        try:
            decode_batches(buf, 0, len(buf), 0, 2**62, decompress)
        except CorruptRecordError as error:
            assert error.position is not None  # noqa: PT017
