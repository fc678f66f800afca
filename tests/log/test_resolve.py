"""Addresses: every form against a list of records, and limits that are reached later."""

from collections.abc import Callable
from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.log.reading.address import (
    Ago,
    AtByte,
    AtOffset,
    Earliest,
    Latest,
    Moment,
    Now,
    Point,
    parse_partition_name,
)
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.log.reading.reader import TextReader
from logfs.records.record import Record
from logfs.services.views.files import GrowingFile
from logfs.services.views.resolve import kept_runs, resolve
from logfs.types import View
from tests.fakes import START_MS
from tests.log.gaps import HoledLog
from tests.log.resolving import (
    LOGS,
    NOW_MS,
    SUFFIXES,
    address,
    check,
    compacted,
    content,
    dense,
    filled,
    kept_between,
    position_of,
    records,
    started_late,
)
from tests.log.support import end_of, read_all

VIEWS = list(View)

each_view = pytest.mark.parametrize("view", VIEWS)


# The model


# Every form

AROUND = st.integers(-3, 75)
POINTS: st.SearchStrategy[Point] = st.one_of(
    st.sampled_from([Earliest(), Latest(), Now()]),
    st.builds(Moment, st.integers(START_MS - 500, START_MS + 1_500)),
    st.builds(Ago, st.integers(0, 1_600)),
    st.builds(AtOffset, st.integers(-80, 80)),
    st.builds(AtByte, st.integers(-6_000, 6_000)),
    st.builds(AtByte, st.integers(-250, 250)),
)


@settings(max_examples=400)
@given(st.sampled_from(LOGS), st.sampled_from(VIEWS), POINTS, st.none() | POINTS)
def test_any_two_points(
    make: Callable[[], HoledLog], view: View, start: Point, end: Point | None
) -> None:
    check(make(), view, start, end)


@each_view
@pytest.mark.parametrize("make", LOGS)
def test_every_offset_and_every_moment(make: Callable[[], HoledLog], view: View) -> None:
    log = make()
    reader = TextReader(view, lambda: log.log.snapshot)
    for offset in range(log.model.end_offset + 2):
        position = positions_of_offset(log.log.snapshot, offset)[view]
        expected = position_of(log, view, AtOffset(offset), NOW_MS)
        assert position <= expected == max(reader.next_kept(position), position)
    for timestamp in range(START_MS - 400, START_MS + 1_200, 7):
        found = offset_for_time(log.log.snapshot, timestamp)
        assert found == log.model.offset_for_time(timestamp)


NAMES = (
    ("0@2023-11-14T22:13:20.100Z", Moment(START_MS + 100)),
    ("0@2023-11-14T22:13:20", Moment(START_MS)),
    ("0@2023-11-15", Moment(1_700_006_400_000)),
    (f"0@{START_MS + 250}", Moment(START_MS + 250)),
    ("0@-500ms", Ago(500)),
    ("0@-1s", Ago(1_000)),
    ("0@now", Now()),
    ("0@earliest", Earliest()),
    ("0@latest", Latest()),
    ("0@offset=17", AtOffset(17)),
    ("0@offset=-17", AtOffset(-17)),
    ("0@byte=100", AtByte(100)),
    ("0@byte=-100", AtByte(-100)),
)


@pytest.mark.parametrize("make", LOGS)
@pytest.mark.parametrize(("name", "point"), NAMES)
def test_every_spelling(make: Callable[[], HoledLog], name: str, point: Point) -> None:
    log = make()
    for view in VIEWS:
        parsed = parse_partition_name(name + SUFFIXES[view], UTC)
        assert parsed == address(view, point)
        check(log, view, point, None)
        check(log, view, Earliest(), point)


@each_view
def test_without_a_selector_it_is_the_whole_file(view: View) -> None:
    log = compacted()
    resolved = resolve(log.log, address(view, None), NOW_MS)
    assert (resolved.start, resolved.end, resolved.limit) == (0, None, None)
    assert content(resolved) == kept_between(log, view, 0, end_of(log.log, view))


@each_view
@pytest.mark.parametrize(
    ("start", "end"),
    [
        (AtOffset(30), AtOffset(30)),
        (AtOffset(30), AtOffset(12)),
        (Latest(), Earliest()),
        (AtByte(-1), AtByte(3)),
        (Moment(START_MS + 300), Moment(START_MS + 100)),
        (Now(), Now()),
        (Moment(NOW_MS + 5), Latest()),
    ],
)
def test_to_before_from_is_an_empty_file(view: View, start: Point, end: Point) -> None:
    resolved = check(dense(), view, start, end)
    assert (resolved.size, resolved.runs, resolved.segments) == (0, (), ())


@each_view
def test_counting_back_beyond_the_start_is_the_start(view: View) -> None:
    for log in (dense(), started_late()):
        start = log.log.snapshot.start.positions[view]
        for point in (AtOffset(-1_000), AtByte(-1_000_000), AtByte(0), AtOffset(0)):
            assert resolve(log.log, address(view, point), NOW_MS).start == start


@each_view
def test_from_that_nothing_has_reached_is_the_end_as_it_is_then(view: View) -> None:
    for point in (Now(), Moment(NOW_MS + 9), AtOffset(63), AtByte(10**9), Latest()):
        log = filled()
        resolved = check(log, view, point, None)
        end = log.model.end[view]
        assert resolved.start == end
        log.append(records(60, 3))
        assert content(resolved) == kept_between(log, view, end, log.model.end[view])


def test_a_byte_may_fall_inside_a_record() -> None:
    log = dense()
    whole = kept_between(log, View.TEXT, 0, 10**6)
    resolved = check(log, View.TEXT, AtByte(5), AtByte(12))
    assert content(resolved) == whole[5:12]


# Ends that lie ahead


@each_view
@pytest.mark.parametrize("ahead", [0, 1, 5, 9])
def test_an_end_that_lies_ahead_is_reached(view: View, ahead: int) -> None:
    for kind in ("offset", "byte", "time"):
        log = filled()
        end = log.model.end[view]
        limits: dict[str, Point] = {
            "offset": AtOffset(60 + ahead + 1),
            "byte": AtByte(end + 10 * ahead + 3),
            "time": Moment(NOW_MS + 100 + ahead),
        }
        resolved = check(log, view, AtOffset(50), limits[kind])
        assert resolved.limit == limits[kind]
        file = GrowingFile(log.log, view, resolved.start, resolved.limit)
        assert file.size() == end - resolved.start
        for n in range(12):
            log.append([Record(0, NOW_MS + 100 + n, None, b"later %d" % n, ())])
        stop = position_of(log, view, limits[kind], NOW_MS)
        assert end < stop < log.model.end[view] or (kind, ahead) == ("time", 0)
        assert file.size() == stop - resolved.start
        assert read_all(file) == kept_between(log, view, resolved.start, stop)
        log.append(records(80, 3))
        log.advance(70)
        assert file.size() == stop - resolved.start


def test_an_end_at_the_end_is_fixed() -> None:
    log = dense()
    end = log.model.end.text
    for point in (AtOffset(60), AtByte(end), Moment(NOW_MS), Now(), Latest(), Ago(0)):
        resolved = check(log, View.TEXT, Earliest(), point)
        assert (resolved.end, resolved.limit) == (end, None)


# Runs


@each_view
@pytest.mark.parametrize("make", LOGS)
def test_kept_runs_are_those_of_the_records(make: Callable[[], HoledLog], view: View) -> None:
    log = make()
    snapshot, end = log.log.snapshot, log.model.end[view]
    whole = [(begin, begin + len(data)) for begin, data in log.model.runs(view)]
    for start in range(0, end + 1, max(end // 25, 1)):
        for stop in range(start, end + 1, max(end // 20, 1)):
            expected = [(max(a, start), min(b, stop)) for a, b in whole if a < stop and b > start]
            assert list(kept_runs(snapshot, view, start, stop)) == (
                expected if start < stop else []
            )


def test_a_fixed_name_pins_only_the_segments_it_reads() -> None:
    log = dense()
    resolved = check(log, View.TEXT, AtOffset(20), AtOffset(22))
    assert len(resolved.segments) <= 2
    whole = check(log, View.TEXT, Earliest(), Latest())
    assert whole.segments == log.log.snapshot.segments
