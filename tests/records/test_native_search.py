import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records._reading import (
    find_offset,
    find_timestamp,
    header_last_offset,
    header_ok,
    measure,
    next_batch,
    whole_batches,
)
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.compression import decompress
from logfs.records.record import Record
from tests.records import oracle
from tests.records.oracle import Batch
from tests.records.strategies import NOW_MS, TIMES, joined, logs, visible

ONE = encode_batch([Record(5, NOW_MS, None, b"v")])


def positions(log: list[Batch]) -> list[int]:
    found = [0]
    for batch in log:
        found.append(found[-1] + len(batch.data))
    return found


@given(log=logs, cut=st.integers(0, 80), data=st.data())
def test_find_offset(log: list[Batch], cut: int, data: st.DataObject) -> None:
    buf = b"##" + joined(log)
    stop = max(2, len(buf) - cut)
    whole = [
        (2 + position, batch)
        for position, batch in zip(positions(log), log, strict=False)
        if 2 + position + len(batch.data) <= stop
    ]
    offset = data.draw(st.integers(0, log[-1].last_offset + 2 if log else 2))
    end = whole[-1][0] + len(whole[-1][1].data) if whole else 2
    at_or_after = [position for position, batch in whole if batch.last_offset >= offset]
    assert find_offset(buf, 2, stop, offset) == (at_or_after or [end])[0]


@given(log=logs, cut=st.integers(0, 1), data=st.data())
def test_measure(log: list[Batch], cut: int, data: st.DataObject) -> None:
    buf = joined(log)
    kept = log[:-1] if cut and log else log
    offset = data.draw(st.integers(0, log[-1].last_offset + 2 if log else 2))
    before = [record for record in visible(kept) if record.offset < offset]
    stop = max(0, len(buf) - cut)
    assert measure(buf, 0, stop, offset, decompress) == oracle.lengths(before)


@given(log=logs, timestamp=st.sampled_from([t + d for t in TIMES for d in (-1, 0, 1)]))
def test_find_timestamp(log: list[Batch], timestamp: int) -> None:
    buf = joined(log)
    at_or_after = [
        (record.offset, record.timestamp)
        for record in visible(log)
        if record.timestamp >= timestamp
    ]
    assert find_timestamp(buf, 0, len(buf), timestamp, decompress) == next(iter(at_or_after), None)


def test_find_timestamp_passes_over_control_and_empty_batches() -> None:
    marker = encode_batch(
        [Record(0, NOW_MS, bytes(4), bytes(6))], BatchFields(is_control=True, is_transactional=True)
    )
    empty = encode_batch([], BatchFields(base_offset=1, last_offset=2, max_timestamp=NOW_MS))
    log = marker + empty + encode_batch([Record(3, NOW_MS - 1), Record(4, NOW_MS)])
    assert find_timestamp(log, 0, len(log), NOW_MS - 5, decompress) == (3, NOW_MS - 1)
    assert find_timestamp(log, 0, len(log), NOW_MS, decompress) == (4, NOW_MS)
    assert find_timestamp(log, 0, len(log), NOW_MS + 1, decompress) is None


def test_damage_is_told_with_its_position() -> None:
    bad = bytearray(encode_batch([Record(6, NOW_MS, None, b"w")]))
    bad[-2] ^= 1
    log = bytes(ONE + bad)
    assert find_offset(log, 0, len(log), 100) == len(log)
    assert measure(log, 0, len(log), 6, decompress) == oracle.lengths(
        [Record(5, NOW_MS, None, b"v")]
    )
    with pytest.raises(CorruptRecordError, match="checksum") as caught:
        measure(log, 0, len(log), 7, decompress)
    assert caught.value.position == len(ONE)
    with pytest.raises(CorruptRecordError, match="checksum"):
        find_timestamp(bytes(bad), 0, len(bad), NOW_MS, decompress)
    assert find_timestamp(bytes(bad), 0, len(bad), NOW_MS + 1, decompress) is None
    nonsense = ONE + bytes(30)
    for search in (
        lambda: find_offset(nonsense, 0, len(nonsense), 9),
        lambda: measure(nonsense, 0, len(nonsense), 9, decompress),
        lambda: find_timestamp(nonsense, 0, len(nonsense), NOW_MS + 1, decompress),
    ):
        with pytest.raises(CorruptRecordError, match="batch length 0") as caught:
            search()
        assert caught.value.position == len(ONE)


def test_next_batch() -> None:
    assert next_batch(ONE, 0, len(ONE)) == len(ONE)
    assert next_batch(b"#" + ONE + b"#", 1, len(ONE) + 2) == len(ONE)
    for stop in range(len(ONE)):
        assert next_batch(ONE, 0, stop) == 0
    assert next_batch(bytes(17), 0, 17) == 0
    with pytest.raises(CorruptRecordError, match="batch length 0 is too small") as caught:
        next_batch(bytes(28), 10, 28)
    assert caught.value.position == 10
    new = bytearray(ONE)
    new[16] = 3
    with pytest.raises(CorruptRecordError, match="unsupported magic 3"):
        next_batch(new, 0, 20)


@given(log=logs)
def test_the_last_offset_is_in_the_header(log: list[Batch]) -> None:
    data, position = joined(log), 0
    for batch in log:
        head = data[position : position + 61]
        assert header_ok(head, 0, len(batch.data))
        assert header_last_offset(head, 0) == batch.last_offset
        position += len(batch.data)
    for cut in (data[:25], data[:60] if data[16:17] == b"\x02" else b""):
        with pytest.raises(ValueError, match="no header fits"):
            header_last_offset(cut, 0)


def test_header_ok() -> None:
    assert header_ok(ONE, 0, len(ONE))
    assert header_ok(ONE[:61], 0, len(ONE))
    assert header_ok(b"#" + ONE, 1, len(ONE) + 1)
    assert not header_ok(ONE, 0, len(ONE) - 1)
    assert not header_ok(ONE[:60], 0, len(ONE))
    assert not header_ok(ONE, 1, 10**6)
    assert not header_ok(ONE, -1, 10**6)
    assert not header_ok(ONE, 10**6, 10**7)
    for position, new in [(0, 255), (8, 255), (11, 48), (16, 3), (22, 5), (23, 255), (57, 255)]:
        bad = bytearray(ONE)
        bad[position] = new
        assert not header_ok(bad, 0, 10**6)


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_a_header_of_an_unknown_format_has_no_last_offset(magic: int) -> None:
    """It was taken for one of format v2, whose fields lie beyond a buffer for one of v1."""
    head = bytearray(ONE[:26])
    head[16] = magic
    with pytest.raises(ValueError, match="no header fits"):
        header_last_offset(head, 0)
    with pytest.raises(ValueError, match=f"format {magic}"):
        header_last_offset(head + bytes(40), 0)


@pytest.mark.parametrize("last", [2**63 - 1, 2**63 - 2])
def test_the_largest_number_is_no_offset(last: int) -> None:
    """There would be no offset after it."""
    batch = bytearray(ONE)
    batch[:8] = last.to_bytes(8, "big")
    batch[23:27] = bytes(4)
    assert header_ok(batch, 0, len(batch)) == (last < 2**63 - 1)
    assert not header_ok(batch, 0, -(2**63))


@given(data=st.binary(max_size=200), flips=st.lists(st.integers(0, 68), max_size=3))
def test_garbage_gives_an_answer_or_an_error(data: bytes, flips: list[int]) -> None:
    damaged = bytearray(ONE)
    for flip in flips:
        damaged[flip] ^= 1 << flip % 8
    for buf in (data, bytes(damaged) + data):
        size = len(buf)
        for search in (
            lambda buf=buf, size=size: next_batch(buf, 0, size),
            lambda buf=buf, size=size: find_offset(buf, 0, size, 2**62),
            lambda buf=buf, size=size: measure(buf, 0, size, 2**62, decompress),
            lambda buf=buf, size=size: find_timestamp(buf, 0, size, -(2**63), decompress),
            lambda buf=buf, size=size: header_ok(buf, 0, size),
        ):
            try:
                search()
            except CorruptRecordError as error:
                assert error.position is not None  # noqa: PT017


def test_how_far_batches_may_be_where_they_are() -> None:
    second = encode_batch([Record(9, NOW_MS, None, b"w")])
    both, end = ONE + second, len(ONE + second)
    assert whole_batches(both, 0, end, 0) == (end, 10, None)
    assert whole_batches(both, 0, end - 1, 0) == (len(ONE), 6, None)
    assert whole_batches(both, 0, end, 6) == (0, 6, "base offset 5 is below 6")
    assert whole_batches(both + ONE, 0, end + len(ONE), 5)[:2] == (end, 10)
    damaged = both[:-1] + bytes([both[-1] ^ 1])
    assert whole_batches(damaged, 0, end, 0) == (end, 10, None)
    stop, after, problem = whole_batches(damaged, 0, end, 0, verify=True)
    assert (stop, after) == (len(ONE), 6)
    assert "checksum differs" in str(problem)
    assert whole_batches(both + bytes(100), 0, end + 100, 0, verify=True)[:2] == (end, 10)
