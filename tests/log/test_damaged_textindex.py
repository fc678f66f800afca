"""Text indexes whose numbers are wrong: a reader gets the bytes of the log, or an error."""

from contextlib import suppress
from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.log.indexes.textindex import TEXT_INDEX, TextEntry, decode_text_entry, encode_text_entry
from logfs.log.names import FileKind
from logfs.log.partition import PartitionLog
from logfs.log.reading.address import parse_partition_name
from logfs.log.reading.lookup import positions_of_offset
from logfs.log.reading.reader import TextReader
from logfs.log.segments.segment import Segment
from logfs.records.record import Record
from logfs.services.compaction.manual import compact_now
from logfs.services.views.resolve import resolve
from logfs.types import View
from tests.fakes import START_MS
from tests.log.compaction import tools
from tests.log.gaps import HoledLog
from tests.log.support import Bench

PROPERTIES = {"internal.segment.bytes": "3000", "index.interval.bytes": "150"}
RECORDS = 120
HEADER = TEXT_INDEX.header_bytes
NUMBERS = st.one_of(
    st.integers(-3, 2000),
    st.sampled_from((-(2**63), -(2**31), 2**31 - 1, 2**40, 2**63 - 1)),
)
FIELDS = ("relative_offset", "file_position", "text", "tsv", "jsonl")


def line(number: int) -> bytes:
    return b"line number %04d" % number


def filled() -> HoledLog:
    log = HoledLog(PROPERTIES)
    for number in range(RECORDS):
        log.append([Record(0, START_MS, None, line(number), ())])
    return log


def compacted() -> HoledLog:
    log = filled()
    log.compact(lambda offset: offset % 7 != 3)
    return log


class Index:
    """The entries of the text index of a partition's first segment, which is sealed."""

    def __init__(self, log: HoledLog) -> None:
        self._log = log
        self.segment: Segment = log.log.snapshot.segments[0]
        self._name = self.segment.file_name(FileKind.TEXT_INDEX)
        data = log.bench.disk.read(self._name)[HEADER:]
        self.entries = [decode_text_entry(data, n) for n in range(len(data) // 32)]
        assert len(self.entries) > 5

    def change(self, number: int, **fields: int) -> None:
        self.entries[number] = self.entries[number]._replace(**fields)

    def write(self) -> None:
        data = b"".join(encode_text_entry(e[0], e[1], e[2:]) for e in map(clamped, self.entries))
        self.segment.close_files()
        self._log.bench.disk.open(self._name, write=True).pwrite(data, HEADER)


def clamped(entry: TextEntry) -> TextEntry:
    low, high = -(2**31), 2**31 - 1
    return entry._replace(
        relative_offset=min(max(entry.relative_offset, low), high),
        file_position=min(max(entry.file_position, low), high),
    )


def read_at(log: HoledLog, view: View, position: int, size: int = 100) -> bytes:
    reader, out = TextReader(view, lambda: log.log.snapshot), bytearray(size)
    reader.seek(position)
    return bytes(out[: reader.read_into(memoryview(out), log.log.snapshot.end.positions[view])])


def asked_by_bisection(count: int) -> set[int]:
    """Which entries a search for a position after the last one looks at."""
    asked, low = set(), 0
    while low < count:
        middle = (low + count) // 2
        asked.add(middle)
        low = middle + 1
    return asked


@pytest.mark.parametrize("beyond", [1, 500, 40_000, 2**40, 2**62])
def test_an_entry_that_claims_more_than_what_is_looked_for_is_passed_over(beyond: int) -> None:
    """No batch begins where the entries after it point, so a reader steps back to it."""
    log = filled()
    index = Index(log)
    number, asked = len(index.entries) - 1, asked_by_bisection(len(index.entries))
    position = index.entries[number].text + 5
    while number in asked:
        index.change(number, file_position=index.entries[number].file_position + 5)
        number -= 1
    index.change(number, text=position + beyond)
    index.write()
    assert read_at(log, View.TEXT, position) == log.model.bytes_at(View.TEXT, position)[:100]


@pytest.mark.parametrize("field", ["text", "tsv", "jsonl"])
@pytest.mark.parametrize("number", [-1, -(2**63), 2**63 - 1])
def test_one_length_that_is_out_of_order_changes_nothing(field: str, number: int) -> None:
    log = filled()
    index = Index(log)
    index.change(3, **{field: number})
    index.write()
    for view in View:
        whole = log.model.bytes_at(view, 0)
        for position in range(0, index.segment.ends[view], 97):
            assert read_at(log, view, position) == whole[position : position + 100]
    for offset in range(RECORDS):
        assert positions_of_offset(log.log.snapshot, offset) == log.model.records[offset].positions


changes = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(FIELDS), NUMBERS), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(
    changed=changes, position=st.integers(0, 3000), view=st.sampled_from(View), gaps=st.booleans()
)
def test_a_damaged_index_never_changes_the_bytes_of_the_log(
    changed: list[tuple[int, str, int]], position: int, view: View, gaps: bool
) -> None:
    log = compacted() if gaps else filled()
    index = Index(log)
    kept = b"".join(data for _, data in log.model.runs(view))
    for number, field, value in changed:
        index.change(number, **{field: value})
    index.write()
    with suppress(CorruptRecordError):
        assert read_at(log, view, position) in kept
    with suppress(CorruptRecordError):
        found = positions_of_offset(log.log.snapshot, position % RECORDS)
        assert min(found) >= 0
    with suppress(CorruptRecordError):
        resolved = resolve(log.log, parse_partition_name("0@earliest..latest", UTC), START_MS)
        assert all(begin < end for begin, end in resolved.runs)


def test_a_compacted_segment_whose_index_is_out_of_order_is_an_error_that_names_it() -> None:
    log = compacted()
    index = Index(log)
    index.change(4, text=2**40)
    index.write()
    with pytest.raises(CorruptRecordError, match=r"textindex: entry 5 .* out of order"):
        read_at(log, View.TEXT, 0)
    with pytest.raises(CorruptRecordError, match="out of order"):
        positions_of_offset(log.log.snapshot, 20)


def rewritten() -> tuple[Bench, str]:
    """A topic of few keys after a compaction, and the text index of its first segment."""
    bench = Bench({"cleanup.policy": "compact", **PROPERTIES})
    writer = bench.writer(View.TSV)
    for number in range(RECORDS):
        key = number if number % 3 else 0
        writer.write(b"k%d\t%s\n" % (key, line(number)), bench.now_ms)
    bench.log.roll(bench.now_ms)
    compact_now(bench.log, bench.now_ms, tools())
    segment = bench.log.snapshot.segments[0]
    assert segment.has_gaps
    return bench, segment.file_name(FileKind.TEXT_INDEX)


def lines_at(log: PartitionLog, position: int) -> bytes:
    reader, out = TextReader(View.TSV, lambda: log.snapshot), bytearray(1000)
    reader.seek(position)
    return bytes(out[: reader.read_into(memoryview(out), log.snapshot.end.positions[View.TSV])])


@pytest.mark.parametrize("bit", range(0, 32 * 8 * 3, 11))
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_changed_bit_in_the_text_index_of_a_compacted_segment_is_an_error(
    bit: int, is_restarted: bool
) -> None:
    bench, name = rewritten()
    if is_restarted:
        bench.restart()
    data = bytearray(bench.disk.read(name, None))
    data[HEADER + bit // 8] ^= 1 << bit % 8
    bench.log.snapshot.segments[0].close_files()
    bench.disk.open(name, write=True).pwrite(data, 0)
    with pytest.raises(CorruptRecordError, match=r"textindex: the CRC is .* expected"):
        lines_at(bench.log, 0)
    with pytest.raises(CorruptRecordError, match="the positions in it are lost"):
        positions_of_offset(bench.log.snapshot, 5)


def test_compaction_does_not_copy_a_damaged_text_index() -> None:
    bench, name = rewritten()
    bench.writer(View.TSV).write(b"k1\tnew\n", bench.now_ms)
    bench.log.roll(bench.now_ms)
    data = bytearray(bench.disk.read(name, None))
    data[HEADER + 15] ^= 1
    bench.log.snapshot.segments[0].close_files()
    bench.disk.open(name, write=True).pwrite(data, 0)
    with pytest.raises(CorruptRecordError, match="the positions in it are lost"):
        compact_now(bench.log, bench.now_ms, tools())
    assert bench.disk.read(name, None) == data


@pytest.mark.parametrize("wrong", [-2, 2])
def test_an_entry_that_does_not_name_a_record_of_its_batch_is_an_error(wrong: int) -> None:
    """The checksum of the text index is not known."""
    log = compacted()
    index = Index(log)
    number = next(
        n for n in range(2, len(index.entries)) if index.entries[n][:2] != index.entries[n - 1][:2]
    )
    entry = index.entries[number]
    index.change(number, relative_offset=entry.relative_offset + wrong)
    index.write()
    with pytest.raises(CorruptRecordError, match="the positions in it are lost"):
        read_at(log, View.TEXT, entry.text + 1)
    if wrong < 0:
        with pytest.raises(CorruptRecordError, match="the positions in it are lost"):
            positions_of_offset(log.log.snapshot, entry.relative_offset + 1)


@pytest.mark.parametrize("field", ["text", "tsv", "jsonl"])
@pytest.mark.parametrize("by", [-3, 1, 20])
def test_a_length_that_is_in_order_and_wrong_changes_nothing(field: str, by: int) -> None:
    log = filled()
    count = len(Index(log).entries)
    for number in range(count):
        index = Index(log)
        entry = index.entries[number]
        index.change(number, **{field: getattr(entry, field) + by})
        index.write()
        for view in View:
            whole = log.model.bytes_at(view, 0)
            for position in range(0, index.segment.ends[view], 53):
                assert read_at(log, view, position) == whole[position : position + 100]
        for offset in range(0, RECORDS, 3):
            found = positions_of_offset(log.log.snapshot, offset)
            assert found == log.model.records[offset].positions
        index.change(number, **entry._asdict())
        index.write()
