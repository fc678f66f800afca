"""Open files: the rule around holes against plain bytes, what programs make of it, fixed files."""

from collections import deque
from collections.abc import Callable
from functools import cache
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logfs.disk.waiting import WouldWaitError
from logfs.errors import CorruptRecordError, DeletedError
from logfs.log.reading.address import AtByte, PartitionAddress
from logfs.log.segments.segment import Segment, SegmentFiles
from logfs.services.views.files import FixedFile, GrowingFile, Passage, RawFile
from logfs.services.views.resolve import Resolved, resolve, resolve_segment
from logfs.types import View
from tests.fakes import START_MS
from tests.log.gaps import HoledLog
from tests.log.growing import (
    LOGS,
    SUFFIXES,
    VIEWS,
    add,
    dense,
    everything,
    everywhere,
    filled,
    inside_segments,
)
from tests.log.readings import Program, Rule
from tests.log.support import DIRECTORY, end_of, log_name, read_all
from tests.records.oracle import rendering

each_view = pytest.mark.parametrize("view", VIEWS)


@cache
def after_a_reservation() -> HoledLog:
    log = filled(20)
    log.lose_power()
    add(log, 20)
    return log


each_log = pytest.mark.parametrize("make", [*LOGS, after_a_reservation])


def lines_of(log: HoledLog, view: View) -> list[bytes]:
    return [rendering(view, kept.record) for kept in log.model.visible]


# Growing files

READS = st.lists(
    st.one_of(
        st.tuples(st.just("continue"), st.integers(1, 700)),
        st.tuples(st.just("continue"), st.integers(1, 9)),
        st.tuples(st.integers(0, 100_000), st.integers(1, 700)),
        st.tuples(st.integers(0, 100_000), st.integers(1, 9)),
    ),
    min_size=1,
    max_size=12,
)


@given(st.sampled_from(LOGS), st.sampled_from(VIEWS), READS, st.none() | st.integers(0, 4000))
@example(inside_segments, View.TEXT, [(0, 700)], None)
def test_every_read_follows_the_rule(
    make: Callable[[], HoledLog], view: View, reads: list[tuple[int | str, int]], start: int | None
) -> None:
    log = make()
    end = end_of(log.log, view)
    begin = 0 if start is None else start % (end + 1)
    file, rule, offset = GrowingFile(log.log, view, begin), Rule(log.model, view, begin), 0
    assert file.size() == end - begin
    for at, size in reads:
        offset = at % (file.size() + 2) if isinstance(at, int) else offset
        out = bytearray(size)
        got = file.read_into(memoryview(out), offset)
        assert out[:got] == rule.read(offset, size)
        offset += got


@each_view
@pytest.mark.parametrize("make", LOGS)
def test_a_seek_to_every_position_follows_the_rule(
    make: Callable[[], HoledLog], view: View
) -> None:
    log = make()
    file, rule = GrowingFile(log.log, view, 0), Rule(log.model, view)
    for offset in range(0, file.size() + 2, 1 if view is View.TEXT else 13):
        for at in (offset, offset + 20):  # and now and then where the last one ended
            out = bytearray(20)
            got = file.read_into(memoryview(out), at)
            assert out[:got] == rule.read(at, 20)


def test_a_seek_into_a_hole_returns_the_next_record_without_its_newline() -> None:
    log = filled(30)
    log.compact(lambda offset: offset in (0, 6, 7, 13))  # the values of 0 and 6 are empty
    places = {k.record.offset: k.positions.text for k in log.model.visible}
    file, out = GrowingFile(log.log, View.TEXT, 0), memoryview(bytearray(4))
    assert file.read_into(out, places[6] - 10) == 1
    assert bytes(out[:1]) == b"\n"
    assert file.read_into(out, places[6] - 9) == 4  # continues
    assert bytes(out) == b"line"
    wide = memoryview(bytearray(50))
    assert file.read_into(wide, places[13] - 60) == len(b"line 13" + b"." * (13 * 7 % 31))
    assert file.read_into(wide, places[13] - 60) < 50  # a seek again, so the same
    assert bytes(wide[:7]) == b"line 13"


@each_view
@each_log
def test_programs_that_read_on_print_what_is_kept(make: Callable[[], HoledLog], view: View) -> None:
    log = make()
    lines = lines_of(log, view)
    for buffer in (13, 256, 1 << 17):
        assert Program(log, view, buffer).cat() == b"".join(lines)
        for count in (1, 2, len(lines) // 2, len(lines), len(lines) + 5):
            assert Program(log, view, buffer).head(count) == b"".join(lines[:count])


@each_view
@pytest.mark.parametrize("make", LOGS)
@pytest.mark.parametrize("buffer", [32, 200, 8192])
def test_tail_prints_the_last_lines_that_are_kept(
    make: Callable[[], HoledLog], view: View, buffer: int
) -> None:
    log = make()
    lines = lines_of(log, view)
    for count in range(1, len(lines) + 3):
        assert Program(log, view, buffer).tail(count) == b"".join(lines[-count:])


def test_tail_prints_the_last_lines_after_a_reservation() -> None:
    log = after_a_reservation()
    lines = lines_of(log, View.TEXT)
    for count in (1, 3, 4, 10, 100):
        assert Program(log, View.TEXT, 1 << 20).tail(count) == b"".join(lines[-count:])


def test_tail_continues_with_what_is_appended() -> None:
    log = filled(30)
    log.compact(lambda offset: offset % 2 == 0)
    program = Program(log, View.TEXT, 100)
    program.tail(3)
    assert program.offset == program.size
    before = len(log.model.records)
    add(log, 30)
    expected = [rendering(View.TEXT, kept.record) for kept in log.model.records[before:]]
    assert program.cat() == b"".join(expected)


@pytest.mark.expect_log("[loss: expired, t-0, position 347, 597 bytes]")
def test_a_file_that_is_read_while_its_records_are_deleted() -> None:
    log = filled(60)
    program = Program(log, View.TEXT, 40)
    head = program.read(40)
    log.advance(50)
    lines = b"".join(lines_of(log, View.TEXT))
    assert program.cat().endswith(lines)
    assert program.read_at(40, 20) == lines[:20].split(b"\n")[0]
    assert head


def test_a_limit_that_is_reached_stays_where_it_is() -> None:
    log = filled(30)
    end = end_of(log.log, View.TEXT)
    file = GrowingFile(log.log, View.TEXT, 0, AtByte(end + 10))
    assert file.size() == end
    add(log, 30, 9)
    assert file.size() == end + 10
    assert read_all(file) == b"".join(lines_of(log, View.TEXT))[: end + 10]
    log.advance(39)
    assert file.size() == end + 10
    assert read_all(GrowingFile(log.log, View.TEXT, 0, AtByte(end))) == b""


def test_a_read_that_would_block_continues() -> None:
    log = filled(60)
    log.compact(lambda offset: offset % 3 == 1)
    log.bench.disk.cold = ["*.log"]
    program, printed = Program(log, View.TEXT, 50), b""
    file = program.file
    file.may_block = False
    while True:
        out = bytearray(50)
        got = file.read_into(memoryview(out), len(printed))
        if file.would_block:
            file.may_block = True
            got += file.read_into(memoryview(out)[got:], len(printed) + got)
            file.may_block = False
        printed += out[:got]
        if not got:
            break
    assert printed == b"".join(lines_of(log, View.TEXT))


@pytest.mark.allow_log("fell behind retention")
def test_a_read_that_would_block_continues_after_what_is_removed_meanwhile() -> None:
    """The start of the reply is in memory, the rest was removed before it could be read."""
    log = filled(60)
    lines = lines_of(log, View.TEXT)
    file, data = GrowingFile(log.log, View.TEXT, 0), bytearray()
    read_on(file, data, 5)
    assert not lines[0].startswith(data + b"\n")
    log.bench.disk.cold = ["*.log"]
    file.may_block = False
    read_on(file, data, 1000)
    assert file.would_block
    assert len(data) > len(lines[0])
    log.advance(50)
    file.may_block = True
    while read_on(file, data, 1000):
        pass
    kept = lines_of(log, View.TEXT)
    begun = lines[: lines.index(bytes(data).splitlines(keepends=True)[-len(kept) - 1]) + 1]
    assert bytes(data) == b"".join([*begun, *kept])


def read_on(file: GrowingFile, data: bytearray, size: int) -> int:
    out = bytearray(size)
    got = file.read_into(memoryview(out), len(data))
    data += out[:got]
    return got


RESTARTS = st.lists(
    st.tuples(st.integers(1, 700), st.none() | st.integers(0, 700)), min_size=1, max_size=12
)


@given(st.sampled_from(LOGS), st.sampled_from(VIEWS), RESTARTS)
@example(inside_segments, View.TEXT, [(300, None), (300, 0), (300, 120), (300, 300)])
@example(everywhere, View.TEXT, [(700, None), (700, 1)])
def test_another_process_continues_where_a_program_was(
    make: Callable[[], HoledLog], view: View, reads: list[tuple[int, int | None]]
) -> None:
    """After a read the process ends, and the program has got only the first bytes of the reply."""
    log, noted = make(), deque[Passage](maxlen=4)
    expected = b"".join(lines_of(log, view))

    def opened() -> GrowingFile:
        file = GrowingFile(log.log, view, 0)
        file.resume(tuple(noted))
        file.note_passage = noted.append
        return file

    file, done = opened(), 0
    for size, taken in [*reads, *[(500, None)] * 30]:
        out = bytearray(size)
        got = file.read_into(memoryview(out), done)
        assert out[:got] == expected[done : done + got]
        assert got or done == len(expected)
        done += got if taken is None else min(got, taken)
        if taken is not None:
            file = opened()
    assert done == len(expected)


@pytest.mark.parametrize("fails", ["the disk", "a record"])
def test_after_a_seek_a_read_that_fails_continues_where_its_reply_ended(fails: str) -> None:
    """The next daemon begins with a seek: what it cannot read must not be passed over."""
    log = filled(30)
    text, disk = b"".join(lines_of(log, View.TEXT)), log.bench.disk
    segment = log.log.snapshot.segments[1]
    name, stop = f"{DIRECTORY}/{log_name(segment.base_offset)}", segment.bases.text
    if fails == "a record":
        data = bytearray(log.bench.file(log_name(segment.base_offset)))
        data[100] ^= 1
        log.bench.put(log_name(segment.base_offset), bytes(data))
    log.bench.restart()
    file, out = GrowingFile(log.log, View.TEXT, 0), memoryview(bytearray(len(text)))
    if fails == "the disk":
        disk.fail("pread", name)
    got = file.read_into(out, 10)
    assert 10 + got == stop
    assert bytes(out[:got]) == text[10:stop]
    if fails == "the disk":
        disk.heal()
        assert bytes(out[: file.read_into(out, stop)]) == text[stop:]
    else:
        with pytest.raises(CorruptRecordError):
            file.read_into(out, stop)


def test_another_process_begins_after_a_seek_where_the_program_does() -> None:
    log = filled(60)
    log.advance(31)
    noted: list[Passage] = []
    file, out = GrowingFile(log.log, View.TEXT, 0), memoryview(bytearray(100))
    file.note_passage = noted.append
    assert file.read_into(out, 0) == 100
    first = bytes(out)
    assert noted
    start = log.log.snapshot.start.positions[View.TEXT]
    assert file.read_into(out, start) == 100
    after = GrowingFile(log.log, View.TEXT, 0)
    after.resume(noted)
    assert after.read_into(out, start) == 100

    assert bytes(out) == first


# Fixed files


def check_fixed(resolved: Resolved, expected: bytes) -> None:
    """Read in order, backwards, in pieces: always the same bytes."""
    file = FixedFile(resolved)
    assert file.size() == resolved.size == len(expected)
    assert read_all(file) == read_all(file, 7) == expected
    for offset in range(len(expected) + 1, -1, -max(len(expected) // 40, 1)):
        out = bytearray(50)
        got = file.read_into(memoryview(out), offset)
        assert out[:got] == expected[offset : offset + 50]
        assert offset >= len(expected) or 0 <= file.begin_near(offset) <= offset
    file.close()


@each_view
@each_log
def test_a_fixed_file_is_what_is_kept(make: Callable[[], HoledLog], view: View) -> None:
    log = make()
    resolved = everything(log, view)
    assert [(a, b) for a, b in resolved.runs] == [
        (begin, begin + len(data)) for begin, data in log.model.runs(view)
    ]
    check_fixed(resolved, b"".join(lines_of(log, view)))


@each_view
def test_a_fixed_file_begins_and_ends_anywhere(view: View) -> None:
    log = everywhere()
    end, rule = end_of(log.log, view), Rule(log.model, view)
    for start in range(0, end, end // 12):
        for stop in range(start, end, end // 9):
            address = PartitionAddress(0, AtByte(start), AtByte(stop), SUFFIXES[view])
            expected = rule.text(rule.kept(start, stop))
            assert read_all(FixedFile(resolve(log.log, address, START_MS))) == expected


@each_view
def test_reading_begins_at_once_where_a_batch_does(view: View) -> None:
    """Not at the start of the segment, or wherever else it is right but takes long."""
    log = filled(60)
    lines = lines_of(log, view)
    batches = {0, *accumulate(len(b"".join(lines[n : n + 3])) for n in range(0, 60, 3))}
    file = FixedFile(everything(log, view))
    begins = [file.begin_near(offset) for offset in range(file.size())]
    assert set(begins) <= batches
    assert len(set(begins)) > len(batches) // 3
    assert begins == sorted(begins)


@each_view
def test_a_fixed_file_stays_while_the_log_changes(view: View) -> None:
    log = filled(60)
    log.compact(lambda offset: offset % 4 != 2)
    resolved = everything(log, view)
    expected = b"".join(lines_of(log, view))
    log.log.pin(resolved.segments)
    file = FixedFile(resolved)
    add(log, 60)
    check_fixed(resolved, expected)
    log.roll()
    add(log, 63)
    check_fixed(resolved, expected)
    log.advance(65)
    assert log.bench.names(".log.deleted")
    check_fixed(resolved, expected)
    assert read_all(file) == expected
    log.log.unpin(resolved.segments)
    log.log.remove_due_files(START_MS + log.log.config.file_delete_delay_ms)
    assert not log.bench.names(".log.deleted")
    with pytest.raises(DeletedError):
        log.log.pin(resolved.segments)


@each_view
def test_a_sealed_segment_is_a_fixed_file(view: View) -> None:
    log = inside_segments()
    segments = log.log.snapshot.segments
    printed = b""
    for segment in segments[:-1]:
        resolved = resolve_segment(log.log, segment, view)
        assert not resolved.grows
        assert resolved.size == segment.lengths[view]
        printed += read_all(FixedFile(resolved))
    last = resolve_segment(log.log, segments[-1], view)
    assert last.grows
    printed += read_all(GrowingFile(log.log, view, last.start))
    assert printed == b"".join(lines_of(log, view))


def test_a_growing_name_is_no_fixed_file() -> None:
    with pytest.raises(ValueError, match="growing"):
        FixedFile(resolve(dense().log, PartitionAddress(0), START_MS))


def test_a_raw_file_is_the_bytes_on_the_disk() -> None:
    log = dense()
    name = log.log.snapshot.segments[0].name
    file, data = RawFile(log.bench.disk, name), log.bench.disk.read(name)
    out = memoryview(bytearray(100))
    assert file.size() == len(data)
    assert bytes(out[: file.read_into(out, 50)]) == data[50:150]
    assert file.read_into(out, len(data) - 3) == 3
    assert file.read_into(out, len(data) + 3) == 0
    file.close()


@each_view
def test_a_log_that_starts_in_a_hole_starts_after_it(view: View) -> None:
    log = filled(6)
    log.advance(1)
    log.truncate(1)
    log.advance(1)
    assert log.log.snapshot.start.positions == log.log.snapshot.end.positions == log.model.end
    add(log, 1)
    assert Program(log, view, 50).cat() == b"".join(lines_of(log, view))
    assert read_all(FixedFile(everything(log, view))) == b"".join(lines_of(log, view))


@pytest.mark.parametrize("first", [1, 7])
def test_a_read_that_must_not_wait_for_an_index_keeps_what_it_has_read(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread loads the index of the next segment just then."""
    log = filled(40).log
    busy, files = log.snapshot.segments[1], Segment.files

    def files_unless_busy(segment: Segment) -> SegmentFiles:
        if segment is busy:
            raise WouldWaitError(segment.name)
        return files(segment)

    file, text = GrowingFile(log, View.TEXT, 0), read_all(GrowingFile(log, View.TEXT, 0))
    out = memoryview(bytearray(len(text)))
    done = file.read_into(out[:first], 0)
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "files", files_unless_busy)
        done += file.read_into(out[done:], done)
        assert file.would_block
        assert done > first
        assert file.read_into(out[done:], done) == 0
        assert file.would_block
    done += file.read_into(out[done:], done)
    assert bytes(out[:done]) == text
