"""A cursor over a view: from every position of logs with holes, and positions that never move."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.log.names import FileKind
from logfs.log.reading.reader import TextReader
from logfs.services.retention.trimming import trim
from logfs.types import View
from tests.fakes import START_MS
from tests.log.gaps import HoledLog
from tests.log.readers import (
    each_log,
    filled,
    records,
    single_records,
    whole_batches,
)
from tests.log.support import DIRECTORY, end_of, kept_runs_of, log_name
from tests.records.oracle import rendering

VIEWS = list(View)


each_view = pytest.mark.parametrize("view", VIEWS)


def check(log: HoledLog) -> None:
    for view in VIEWS:
        assert kept_runs_of(log.log, view) == log.model.runs(view)
    assert log.log.snapshot.end.positions == log.model.end


# Every position


def places(log: HoledLog, view: View) -> list[int]:
    """All positions and two beyond the end; of the long view those around every border."""
    end = end_of(log.log, view) + 3
    if view is not View.JSONL:
        return list(range(end))
    borders = {at for k in log.model.records for at in (k.positions[view], k.ends[view])}
    near = {at + step for at in borders for step in (-30, -1, 0, 1, 2)}
    return sorted(at for at in near | {0, end - 1} if 0 <= at < end)


@each_view
@each_log
def test_reads_on_from_every_position(make: Callable[[], HoledLog], view: View) -> None:
    log = make()
    check(log)
    end, runs = end_of(log.log, view), log.model.runs(view)
    reader, out = TextReader(view, lambda: log.log.snapshot), memoryview(bytearray(1 << 14))
    for position in places(log, view):
        kept = log.model.next_kept(view, position)
        kept = max(position, end) if kept is None else kept
        assert reader.next_kept(position) == kept
        assert reader.seek(position) == reader.position == kept
        expected = next((d[kept - at :] for at, d in runs if at <= kept < at + len(d)), b"")
        got = reader.read_into(out, end)
        assert bytes(out[:got]) == expected
        assert reader.position == kept + got


@each_view
@each_log
def test_small_pieces_are_the_same_bytes(make: Callable[[], HoledLog], view: View) -> None:
    log = make()
    for piece in (1, 7, 64):
        assert kept_runs_of(log.log, view, piece) == log.model.runs(view)


def test_a_read_ends_where_it_is_told_to() -> None:
    log = filled()
    reader, out = TextReader(View.TSV, lambda: log.log.snapshot), memoryview(bytearray(1000))
    reader.seek(10)
    assert reader.read_into(out, 17) == 7
    assert reader.read_into(out, 17) == 0
    assert reader.read_into(out, 3) == 0
    assert bytes(out[:7]) == log.model.runs(View.TSV)[0][1][10:17]


def test_a_read_at_a_hole_returns_nothing_until_a_seek() -> None:
    log = whole_batches()
    reader, out = TextReader(View.TEXT, lambda: log.log.snapshot), memoryview(bytearray(1000))
    (begin, data), (second, _) = log.model.runs(View.TEXT)[:2]
    reader.seek(begin)
    assert reader.read_into(out, end_of(log.log, View.TEXT)) == len(data)
    assert reader.read_into(out, end_of(log.log, View.TEXT)) == 0
    reader.close()  # so that it looks its place up again
    assert reader.read_into(out, end_of(log.log, View.TEXT)) == 0
    assert reader.seek(reader.position) == second


# Positions for ever


def lines_at(log: HoledLog, view: View) -> dict[int, bytes]:
    """Every record that is kept, by its position, as the log itself shows it."""
    return {
        kept.positions[view]: log.model.bytes_at(view, kept.positions[view])[
            : len(rendering(view, kept.record))
        ]
        for kept in log.model.visible
    }


def check_lines_at(log: HoledLog, view: View, placed: dict[int, bytes]) -> None:
    reader = TextReader(view, lambda: log.log.snapshot)
    for position, line in placed.items():
        out = bytearray(len(line))
        assert reader.seek(position) == position
        assert reader.read_into(memoryview(out), position + len(line)) == len(line)
        assert out == line


@each_view
@pytest.mark.parametrize("reopen", ["restart", "kill"])
def test_a_kept_record_is_where_it_was(view: View, reopen: str) -> None:
    log = filled(60)
    first = lines_at(log, view)
    check_lines_at(log, view, first)
    log.compact(lambda offset: offset % 4 != 1 and offset // 3 != 7)
    second = lines_at(log, view)
    assert len(second) < len(first)
    assert second.items() <= first.items()
    getattr(log, reopen)()
    check_lines_at(log, view, second)
    log.advance(20)
    log.append(records(60, 10))
    third = lines_at(log, view)
    assert {p: third[p] for p in third if p in first}.items() <= second.items()
    getattr(log, reopen)()
    check_lines_at(log, view, third)
    check(log)


@pytest.mark.parametrize("kind", [FileKind.OFFSET_INDEX, FileKind.TIME_INDEX])
@pytest.mark.parametrize("reopen", ["restart", "kill"])
def test_a_lost_index_does_not_move_the_records_of_a_compacted_segment(
    kind: FileKind, reopen: str
) -> None:
    log = single_records()
    log.bench.disk.remove(log.log.snapshot.segments[0].file_name(kind))
    getattr(log, reopen)()
    check(log)


@pytest.mark.expect_log("the positions in this compacted segment are lost")
def test_a_lost_text_index_of_a_compacted_segment_is_a_loss() -> None:
    log = single_records()
    log.bench.store.close(START_MS)
    log.bench.disk.remove(log.log.snapshot.segments[0].file_name(FileKind.TEXT_INDEX))
    log.bench.store = log.bench.open()
    (first, *_) = log.log.snapshot.segments
    assert not first.has_gaps
    assert first.bases == (0, 0, 0)
    values = b"".join(data for _, data in kept_runs_of(log.log, View.TEXT))
    assert values == b"".join(data for _, data in log.model.runs(View.TEXT))
    base = log.log.snapshot.active.bases.text  # what is after it does not move
    reader, out = TextReader(View.TEXT, lambda: log.log.snapshot), bytearray(1000)
    reader.seek(base)
    got = reader.read_into(memoryview(out), end_of(log.log, View.TEXT))
    assert out[:got] == log.model.bytes_at(View.TEXT, base) != b""


def test_a_damaged_text_index_of_a_compacted_segment_is_never_guessed_around() -> None:
    log = single_records()
    name = log.log.snapshot.segments[0].file_name(FileKind.TEXT_INDEX)
    log.bench.disk.open(name, write=True).pwrite(b"?", 0)
    reader = TextReader(View.TEXT, lambda: log.log.snapshot)
    with pytest.raises(CorruptRecordError, match="positions in it are lost"):
        reader.seek(4)


# A log that changes under a reader


def test_reads_what_is_appended_and_rolled_later() -> None:
    log = filled(6)
    reader, out = TextReader(View.JSONL, lambda: log.log.snapshot), memoryview(bytearray(1 << 14))
    data = b""
    for first in range(6, 60, 3):
        got = reader.read_into(out, end_of(log.log, View.JSONL))
        data += out[:got]
        log.append(records(first, 3))
    got = reader.read_into(out, end_of(log.log, View.JSONL))
    assert [(0, data + bytes(out[:got]))] == log.model.runs(View.JSONL)
    assert len(log.log.snapshot.segments) > 2


def test_after_a_truncation_nothing_old_is_read() -> None:
    log = filled(12)
    reader, out = TextReader(View.TEXT, lambda: log.log.snapshot), memoryview(bytearray(5))
    reader.read_into(out, end_of(log.log, View.TEXT))
    begun = rendering(View.TEXT, records(0, 1)[0])
    assert len(begun) > 5
    log.truncate(0)
    rest = b""
    while got := reader.read_into(out, end_of(log.log, View.TEXT)):
        rest += out[:got]
    assert rest == begun[5:], "of the record that was begun, and of no other"
    log.append(records(3, 3))
    reader.seek(reader.position)
    assert reader.position == log.model.visible[0].positions.text
    assert reader.read_into(out, end_of(log.log, View.TEXT)) == 5


def test_deleted_under_a_reader_is_a_hole() -> None:
    log = filled(60)
    reader, out = TextReader(View.TEXT, lambda: log.log.snapshot), memoryview(bytearray(5))
    reader.read_into(out, end_of(log.log, View.TEXT))
    log.advance(50)
    end = end_of(log.log, View.TEXT)
    while reader.read_into(out, end):
        assert reader.position <= log.model.runs(View.TEXT)[0][0]  # what was buffered
    assert reader.seek(reader.position) == log.model.runs(View.TEXT)[0][0]


@each_view
@pytest.mark.parametrize("size", [1, 5])
def test_a_record_that_was_begun_is_read_to_its_end_without_buffers(view: View, size: int) -> None:
    log = filled(60)
    reader, out = TextReader(view, lambda: log.log.snapshot), memoryview(bytearray(size))
    begun = rendering(view, records(0, 1)[0])
    assert len(begun) > size
    data = bytes(out[: reader.read_into(out, end_of(log.log, view))])
    reader.drop_buffers()
    trim(log.log, 50, log.bench.now_ms, at_once=True)
    while reader.is_inside_record:
        data += out[: reader.read_into(out, reader.position + 1)]
        reader.drop_buffers()
    assert data == begun
    assert reader.seek(reader.position) == log.log.snapshot.start.positions[view]


def test_a_record_whose_file_was_cut_is_an_error_once() -> None:
    log = filled(60)
    reader, out = TextReader(View.TEXT, lambda: log.log.snapshot), memoryview(bytearray(5))
    reader.read_into(out, end_of(log.log, View.TEXT))
    reader.drop_buffers()
    log.bench.disk.open(f"{DIRECTORY}/{log_name(0)}", write=True).truncate(10)
    with pytest.raises(CorruptRecordError, match="ends at byte 10"):
        reader.read_into(out, end_of(log.log, View.TEXT))
    log.advance(50)
    assert reader.seek(reader.position) == log.model.runs(View.TEXT)[0][0]
    assert reader.read_into(out, end_of(log.log, View.TEXT)) == 5


def test_what_is_not_in_the_page_cache_is_read_only_if_it_may_block() -> None:
    log = single_records()
    log.bench.disk.cold = ["*.log"]
    reader = TextReader(View.TEXT, lambda: log.log.snapshot, may_block=False)
    out = memoryview(bytearray(100))
    start = reader.seek(20)
    assert reader.read_into(out, end_of(log.log, View.TEXT)) == 0
    assert (reader.would_block, reader.position) == (True, start)
    reader.may_block = True
    got = reader.read_into(out, end_of(log.log, View.TEXT))
    assert (reader.would_block, reader.position) == (False, start + got)
    assert bytes(out[:got]) == log.model.bytes_at(View.TEXT, start)[:got] != b""


def test_a_closed_reader_opens_again() -> None:
    log = filled()
    reader, out = TextReader(View.TEXT, lambda: log.log.snapshot), memoryview(bytearray(9))
    reader.seek(11)
    reader.read_into(out, end_of(log.log, View.TEXT))
    reader.close()
    got = reader.read_into(out, end_of(log.log, View.TEXT))
    assert bytes(out[:got]) == log.model.runs(View.TEXT)[0][1][20 : 20 + got]


# Any history

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 8)),
    st.tuples(st.just("compact"), st.sets(st.integers(0, 12), max_size=9)),
    st.tuples(st.sampled_from(["advance", "truncate"]), st.integers(0, 100)),
    st.tuples(st.sampled_from(["roll", "restart", "kill"]), st.none()),
)


def step(log: HoledLog, name: str, number: int | set[int] | None) -> None:
    start, end = log.log.log_start_offset, log.log.log_end_offset
    if isinstance(number, set):
        rests = number
        log.compact(lambda offset: offset % 13 in rests, keep_last_batch=1 in rests)
    elif number is None:
        getattr(log, name)()
    elif name == "append":
        log.append(records(end, number))
    else:
        getattr(log, name)(start + (end - start) * number // 100)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(STEPS, min_size=3, max_size=15), st.sampled_from(["0", "100", "4096"]))
def test_any_history(steps: list[tuple[str, int | set[int] | None]], interval: str) -> None:
    log = HoledLog({"internal.segment.bytes": "400", "index.interval.bytes": interval})
    log.append(records(0, 5))
    for name, number in steps:
        step(log, name, number)
        check(log)
