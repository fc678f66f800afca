"""The native half of compaction: which key is where last, and what is left of a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.log.indexes.textindex import decode_text_entry, find_gaps
from logfs.records._compaction import BatchFilter
from logfs.records._indexing import IndexBuilder
from logfs.records.batch import BatchFields, decode_header, decode_records
from logfs.records.compression import Compression, decompress
from logfs.records.record import Record
from logfs.types import Positions
from tests.records.compacting import (
    NOW_MS,
    Keys,
    Round,
    batch_of,
    batches,
    offset_map,
    record,
)
from tests.records.messages import KAFKA_SETS, kafka_records, kafka_set
from tests.records.oracle import lengths


def positions_of(log: bytes, text_index: bytes) -> list[tuple[Record, Positions]]:
    """The records of a segment, each with its positions, which gaps say again."""
    gaps = find_gaps(text_index)
    assert not set(gaps) & {number + 1 for number in gaps}, "three entries for one place"
    behind = {
        decode_text_entry(text_index, number + 1).relative_offset: decode_text_entry(
            text_index, number + 1
        ).lengths
        for number in find_gaps(text_index)
    }
    placed, at, position = [], Positions(), 0
    while position < len(log):
        header = decode_header(log, position)
        for found in [] if header.is_control else decode_records(log, position):
            at = behind.pop(found.offset, at)
            placed.append((found, at))
            at = at.plus(lengths([found]))
        position += header.size_bytes
    assert not behind, "a gap before no record"
    return placed


def clean(
    log: bytes,
    round_: Round,
    text_index: bytes | None,
    interval: int = 100,
    *,
    by_bits: bool = False,
) -> tuple[bytes, bytes, BatchFilter]:
    """Clean a segment by the map or by its bits; its log, its text index, what the filter says."""
    table = offset_map()
    table.put_batches(log, 0, len(log), 0, decompress)
    builder = IndexBuilder(0, interval, decompress)
    batch_filter = BatchFilter(
        table,
        builder,
        now_ms=round_.now_ms,
        delete_retention_ms=round_.delete_retention_ms,
        upper_bound=round_.upper_bound,
        retained=dict(round_.retained),
        decompress=decompress,
    )
    lasts = table.lasts(0, table.latest_offset + 1) if by_bits else None
    batch_filter.begin_segment(0, 0, 0, 0, text_index, False, lasts)
    assert batch_filter.filter_batches(log, 0, len(log)) == len(log)
    data, offset_entries, time_entries, text_entries = batch_filter.take()
    again = IndexBuilder(0, interval, decompress)
    assert again.feed(data, 0, len(data), True) == len(data), again.problem
    assert (offset_entries, time_entries) == again.take()[:2], "not the index of a recovery scan"
    return data, text_entries, batch_filter


@given(batches(), st.integers(0, 200), st.integers(0, 200), st.booleans())
def test_what_is_left_is_what_the_plain_rules_leave(
    log: list[bytes], upper_bound: int, retained: int, by_bits: bool
) -> None:
    known = Keys()
    for batch in log:
        known.put_batch(batch)
    round_ = Round(known, NOW_MS, upper_bound=upper_bound, retained={retained: 7})
    filtered = [round_.filtered(batch) for batch in log]
    data, text_index, batch_filter = clean(b"".join(log), round_, None, by_bits=by_bits)
    assert data == b"".join(batch for batch, _, _ in filtered if batch is not None)
    survivors = [found for _, _, kept in filtered for found in kept]
    assert batch_filter.kept_lengths == lengths(survivors)
    at, places = Positions(), {}
    for found in [found for _, seen, _ in filtered for found in seen]:
        places[found.offset] = at
        at = at.plus(lengths([found]))
    expected = [(found, places[found.offset]) for found in survivors]
    assert positions_of(data, text_index) == expected
    assert batch_filter.has_gaps == bool(find_gaps(text_index))
    if survivors:
        last = lengths(survivors[-1:])
        assert batch_filter.ends == places[survivors[-1].offset].plus(last)
    # Once more, with other keys: positions stay where they are, old gaps included.
    known.offsets.update(dict.fromkeys([b"a", b""], 1 << 40))
    table = offset_map()
    for key in (b"a", b""):
        newer = batch_of(record(1 << 40, key))
        table.put_batches(newer, 0, len(newer), 0, decompress)
    builder = IndexBuilder(0, 100, decompress)
    second = BatchFilter(
        table,
        builder,
        now_ms=NOW_MS,
        delete_retention_ms=0,
        upper_bound=-1,
        retained={},
        decompress=decompress,
    )
    second.begin_segment(0, 0, 0, 0, text_index if batch_filter.has_gaps else None)
    second.filter_batches(data, 0, len(data))
    left, _, _, index = second.take()
    assert [row for row in expected if row in positions_of(left, index)] == positions_of(
        left, index
    )
    assert not {b"a", b""} & {found.key for found, _ in positions_of(left, index)}


def test_a_segment_of_a_group_begins_where_it_says() -> None:
    first, second = batch_of(record(0, b"a"), record(1, b"b")), batch_of(record(5, b"c"))
    table = offset_map()
    table.put_batches(first + second, 0, len(first + second), 0, decompress)
    batch_filter = BatchFilter(
        table,
        IndexBuilder(0, 0, decompress),
        now_ms=NOW_MS,
        delete_retention_ms=0,
        upper_bound=-1,
        retained={},
        decompress=decompress,
    )
    batch_filter.begin_segment(0, 0, 0, 0, None)
    batch_filter.filter_batches(first, 0, len(first))
    batch_filter.begin_segment(5, 1000, 2000, 3000, None)
    batch_filter.filter_batches(second, 0, len(second))
    data, _, _, text_index = batch_filter.take()
    assert data == first + second
    assert positions_of(data, text_index)[-1] == (record(5, b"c"), (1000, 2000, 3000))


def test_transactions_are_left_to_the_caller() -> None:
    plain = batch_of(record(0, b"a"))
    inside = batch_of(record(1, b"a"), fields=BatchFields(producer_id=1, is_transactional=True))
    marker = batch_of(
        Record(2, NOW_MS, b"\0\0\0\0", b"\0" * 6, ()),
        fields=BatchFields(producer_id=1, is_transactional=True, is_control=True),
    )
    log = plain + inside + marker
    table = offset_map()
    assert table.put_batches(log, 0, len(log), 0, decompress) == len(plain)
    behind = table.put_batch(log, len(plain), len(log), 0, decompress, True)
    assert (behind, table.get(b"a"), table.latest_offset) == (len(plain + inside), 0, 1)
    assert table.put_batch(log, len(plain), len(log), 0, decompress, False) == behind
    assert table.get(b"a") == 1
    assert table.put_batch(log, behind, len(log), 0, decompress, False) == len(log)
    assert table.get(b"\0\0\0\0") == -1, "a marker has no key"
    for discard, is_empty, retain in [
        (False, False, False),
        (False, True, False),
        (True, False, False),
        (True, False, True),
    ]:
        batch_filter = BatchFilter(
            offset_map(),
            IndexBuilder(0, 0, decompress),
            now_ms=NOW_MS,
            delete_retention_ms=5,
            upper_bound=-1,
            retained={},
            decompress=decompress,
        )
        batch_filter.begin_segment(0, 0, 0, 0, None)
        round_ = Round(Keys(), NOW_MS, 5)
        for batch in (inside, marker):
            at = log.index(batch)
            stop = batch_filter.filter_batch(
                log, at, len(log), discard=discard, is_empty=is_empty, retain=retain
            )
            assert stop == at + len(batch)
            expected, _, _ = round_.filtered(
                batch, discard=discard, is_empty=is_empty, retain=retain
            )
            assert batch_filter.take()[0] == (expected or b"")


def test_damage_is_not_passed_over() -> None:
    batch = batch_of(record(0, b"a"), record(1, b"a"))
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    legacy = bytearray(batch)
    legacy[16] = 3
    for bad, problem in ((damaged, "checksum differs"), (legacy, "unsupported magic 3")):
        with pytest.raises(CorruptRecordError, match=problem):
            offset_map().put_batches(bad, 0, len(bad), 0, decompress)
        batch_filter = clean(b"", Round(Keys(), 0), None)[2]
        with pytest.raises(CorruptRecordError, match=problem):
            batch_filter.filter_batches(bad, 0, len(bad))
        assert batch_filter.take()[0] == b""
    batch_filter = clean(b"", Round(Keys(), 0), None)[2]
    with pytest.raises(CorruptRecordError, match="base offset 0 is below 2"):
        batch_filter.filter_batches(batch + batch, 0, 2 * len(batch))


@pytest.mark.parametrize(("magic", "codec"), [(m, c) for m, c, late in KAFKA_SETS if not late])
def test_messages_of_old_formats_become_batches(magic: int, codec: str) -> None:
    messages, expected = kafka_set(magic, codec), kafka_records(magic)
    table = offset_map()
    assert table.put_batches(messages, 0, len(messages), 0, decompress) == len(messages)
    assert table.get(b"k") == 7
    for drops_tombstones in (False, True):
        batch_filter = BatchFilter(
            table,
            IndexBuilder(0, 0, decompress),
            now_ms=NOW_MS,
            delete_retention_ms=5,
            upper_bound=-1,
            retained={},
            decompress=decompress,
        )
        batch_filter.begin_segment(0, 0, 0, 0, None, drops_tombstones)
        assert batch_filter.filter_batches(messages, 0, len(messages)) == len(messages)
        data = batch_filter.take()[0]
        found, position = [], 0
        while position < len(data):
            header = decode_header(data, position)
            assert header.compression is Compression[codec.upper()]
            assert (header.producer_id, header.partition_leader_epoch) == (-1, -1)
            found += decode_records(data, position)
            assert header.last_offset == found[-1].offset
            has_tombstone = any(r.value is None for r in decode_records(data, position))
            assert header.delete_horizon_ms == (NOW_MS + 5 if has_tombstone else None)
            position += header.size_bytes
        kept = {8} if drops_tombstones else {7, 8}
        assert found == [r for r in expected if r.offset in kept]
