"""The last offset of each key: what the map holds, what its bits say, and how it is merged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.records._compaction import OffsetMap
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.compression import Compression, decompress
from tests.records.compacting import KEY, ROOMY, Keys, batch_of, batches, keys, offset_map, record


@pytest.mark.parametrize("codec", list(Compression))
def test_the_map_knows_the_last_offset_of_many_keys(codec: Compression) -> None:
    table = offset_map(64 << 20)
    known = Keys()
    for number in range(0, 40_000, 2_000):
        records = [
            record(offset, b"%d" % (offset * 7919 % 25_000))
            for offset in range(number, number + 2_000)
        ]
        batch = encode_batch(records, BatchFields(compression=codec))
        known.put_batch(batch)
        assert table.put_batches(batch, 0, len(batch), 0, decompress) == len(batch)
    assert table.size == len(known.offsets) == 25_000
    assert table.records_read == 40_000
    assert {key: table.get(key) for key in known.offsets} == known.offsets
    assert table.get(b"25000") == -1
    assert table.latest_offset == 39_999
    assert set_bits(table.lasts(0, 40_000), 0) == set(known.offsets.values())


def set_bits(bits: bytes | None, base_offset: int) -> set[int]:
    """The offsets whose bits are set."""
    assert bits is not None
    return {base_offset + n for n in range(8 * len(bits)) if bits[n // 8] >> (n % 8) & 1}


@given(batches(), st.integers(0, 60), st.integers(0, 60))
def test_a_bit_says_which_records_are_the_last_of_their_key(
    log: list[bytes], start: int, base_offset: int
) -> None:
    table, end = offset_map(), 8 * ROOMY // 16
    for batch in log:
        table.put_batches(batch, 0, len(batch), start, decompress)
    if base_offset < start:
        assert table.lasts(base_offset, 300) is None, "not known of those before the start"
        base_offset += start
    all_keys = [b"", b"a", b"b", b"c", b"a longer key, of more than 8 bytes"]
    lasts = {table.get(key) for key in all_keys} - {-1}
    expected = {offset for offset in lasts if offset >= base_offset}
    assert set_bits(table.lasts(base_offset, base_offset + 300), base_offset) == expected
    assert table.lasts(base_offset, start + end - 8) is not None
    assert table.lasts(base_offset, start + end + 8) is None, "not known of those so far on"


def test_bits_are_not_asked_if_they_might_differ_from_the_map() -> None:
    batch, backwards = batch_of(record(5, b"a")), batch_of(record(4, b"a"))
    assert offset_map().lasts(0, 8) is None
    table = offset_map()
    for start, then in ((0, backwards), (6, batch_of(record(9, b"b")))):
        table = offset_map()
        table.put_batches(batch, 0, len(batch), 0, decompress)
        assert table.lasts(0, 8) == b"\x20"
        table.put_batches(then, 0, len(then), start, decompress)
        assert table.lasts(0, 8) is None
    merged = offset_map()
    merged.merge(table.entries())
    merged.put_batches(batch, 0, len(batch), 0, decompress)
    assert merged.lasts(0, 8) is None


@pytest.mark.parametrize(("slots", "limit"), [(10, 9), (5, 4), (2, 1)])
def test_a_full_map_stops_at_the_next_keyed_record(slots: int, limit: int) -> None:
    table, known = offset_map(24 * slots + 23), Keys(limit)
    batch = batch_of(
        *[record(offset, b"%d" % offset) for offset in range(limit)],
        record(limit, None),
        record(limit + 1, b"0"),
        record(limit + 2, b"0"),
    )
    known.put_batch(batch)
    assert table.limit == limit
    assert table.put_batches(batch, 0, len(batch), 0, decompress) == 0
    assert table.is_full
    assert table.latest_offset == known.latest_offset == limit - 1
    assert table.get(b"0") == 0
    assert table.put_batches(batch, 0, len(batch), 0, decompress) == 0, "a full map continues"


def test_a_map_can_be_filled_to_its_last_slot() -> None:
    table = offset_map(24 * 100, 1.0)
    batch = batch_of(*[record(offset, b"%d" % offset) for offset in range(100)])
    assert table.put_batches(batch, 0, len(batch), 0, decompress) == len(batch)
    assert not table.is_full
    assert table.get(b"100") == -1


def test_records_below_the_start_are_not_noted() -> None:
    table = offset_map()
    first, second = batch_of(record(0, b"a"), record(1, b"b")), batch_of(record(2, b"a"))
    log = first + second
    assert table.put_batches(log, 0, len(log), 1, decompress) == len(log)
    assert (table.get(b"a"), table.get(b"b"), table.size) == (2, 1, 2)
    table = offset_map()
    table.put_batches(log, 0, len(first), 2, decompress)
    assert table.latest_offset == -1
    table.pass_to(9)
    assert table.latest_offset == 9


@pytest.mark.parametrize(
    ("memory_bytes", "load_factor", "key"),
    [(24, 0.9, KEY), (0, 1, KEY), (99, 2, KEY), (99, 1, b"")],
)
def test_a_map_that_can_hold_nothing_is_refused(
    memory_bytes: int, load_factor: float, key: bytes
) -> None:
    with pytest.raises(ValueError, match=r"hold no key|expected 16"):
        OffsetMap(memory_bytes, load_factor, key)


@given(st.lists(st.lists(st.tuples(keys, st.integers(0, 1000)), max_size=60), max_size=4))
def test_maps_are_merged(parts: list[list[tuple[bytes | None, int]]]) -> None:
    """What several maps hold is in one, whichever comes first: the larger offset of each key."""
    merged, expected = offset_map(), dict[bytes, int]()
    for part in parts:
        one = offset_map()
        for key, offset in sorted(part, key=lambda pair: pair[1]):
            data = batch_of(record(offset, key))
            one.put_batches(data, 0, len(data), 0, decompress)
            if key is not None:
                expected[key] = max(offset, expected.get(key, 0))
        assert len(one.entries()) == 24 * one.size
        merged.merge(one.entries())
    assert merged.size == len(expected)
    assert {key: merged.get(key) for key in expected} == expected


def test_what_does_not_fit_into_a_map_is_refused() -> None:
    one = offset_map()
    for number in range(20):
        data = batch_of(record(number, b"key %d" % number))
        one.put_batches(data, 0, len(data), 0, decompress)
    small = offset_map(24 * 12)
    with pytest.raises(ValueError, match="more than 10 keys"):
        small.merge(one.entries())
    with pytest.raises(ValueError, match="a multiple of 24"):
        small.merge(b"x" * 23)
