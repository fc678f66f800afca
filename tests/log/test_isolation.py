"""Isolation levels: where each ends, and that aborted records are holes and nothing moves."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logfs.log.reading.address import AtByte, AtOffset, Earliest, Latest, Moment, Now, Point
from logfs.log.reading.lookup import offset_for_time
from logfs.records.compression import Compression
from logfs.records.record import Record
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.resolve import resolve, resolve_segment
from logfs.types import IsolationLevel, View
from tests.fakes import START_MS
from tests.log import resolving
from tests.log.isolation import (
    SMALL,
    each_level,
    each_log,
    finish,
    interleaved,
    put,
)
from tests.log.readings import Program, Rule
from tests.log.support import read_all
from tests.log.transactions import ABORT, COMMIT, TransactionLog, append_batch, marker
from tests.records.oracle import rendering

VIEWS = list(View)
COMMITTED = IsolationLevel.READ_COMMITTED
each_view = pytest.mark.parametrize("view", VIEWS)


@each_log
@each_level
def test_the_end_is_that_of_the_level(
    make: Callable[[], TransactionLog], level: IsolationLevel
) -> None:
    log = make()
    seen = log.seen(level)
    assert log.log.snapshot.visible_end(level) == (seen.model.end_offset, seen.model.end)
    for view in VIEWS:
        file = GrowingFile(log.log, view, 0, level=level)
        assert file.size() == file.end() == seen.model.end[view]


@each_log
@each_level
@each_view
def test_what_is_read_is_what_the_level_shows(
    make: Callable[[], TransactionLog], level: IsolationLevel, view: View
) -> None:
    seen = make().seen(level)
    expected = b"".join(rendering(view, kept.record) for kept in seen.model.visible)
    for buffer in (13, 200, 1 << 17):
        assert Program(seen, view, buffer).cat() == expected
    for count in (1, 2, 5, 40):
        lines = expected.splitlines(keepends=True)
        assert Program(seen, view, 64).head(count) == b"".join(lines[:count])
        # tail looks for newlines backwards: from a hole at the end it sees nothing, and it takes
        # holes before empty lines for empty lines.
        ends = [kept.ends[view] for kept in seen.model.visible]
        if ends[-1:] == [seen.model.end[view]] and b"\n" not in lines:
            assert Program(seen, view, 64).tail(count) == b"".join(lines[-count:])


@each_log
@each_level
@each_view
def test_a_seek_to_every_position_follows_the_rule(
    make: Callable[[], TransactionLog], level: IsolationLevel, view: View
) -> None:
    seen = make().seen(level)
    file, rule = GrowingFile(seen.log, view, 0, level=level), Rule(seen.model, view)
    for offset in range(0, file.size() + 2, 5 if view is View.TEXT else 53):
        for at in (offset, offset + 20):
            out = bytearray(20)
            got = file.read_into(memoryview(out), at)
            assert out[:got] == rule.read(at, 20), (at, offset)


def points(log: TransactionLog, view: View) -> list[Point]:
    found: list[Point] = [Earliest(), Latest(), Now(), AtOffset(-7), AtByte(-50)]
    for offset in range(0, log.model.end_offset + 3, 2):
        found += [AtOffset(offset), Moment(START_MS + offset + offset % 13)]
    found += [AtByte(n) for n in range(0, log.model.end[view] + 60, 157)]
    return found


@each_log
@each_level
def test_selectors_at_every_record(
    make: Callable[[], TransactionLog], level: IsolationLevel
) -> None:
    log = make()
    seen = log.seen(level)
    for number, point in enumerate(points(log, View.TEXT)):
        view, others = VIEWS[number % 3], ((point, None), (point, Latest()), (Earliest(), point))
        resolving.check(seen, view, *others[number // 3 % 3])


@each_log
@each_level
def test_a_moment_is_the_first_record_that_is_shown(
    make: Callable[[], TransactionLog], level: IsolationLevel
) -> None:
    log = make()
    seen = log.seen(level)
    for timestamp in range(START_MS - 1, START_MS + log.model.end_offset + 60, 2):
        found = offset_for_time(log.log.snapshot, timestamp, level)
        assert found == seen.model.offset_for_time(timestamp)


@each_log
@each_level
@each_view
def test_segments_as_text(
    make: Callable[[], TransactionLog], level: IsolationLevel, view: View
) -> None:
    seen, data = make().seen(level), b""
    *sealed, active = seen.log.snapshot.segments
    for segment in sealed:
        resolved = resolve_segment(seen.log, segment, view, level)
        assert not resolved.grows
        data += read_all(FixedFile(resolved), 100)
    last = resolve_segment(seen.log, active, view, level)
    data += read_all(GrowingFile(seen.log, view, last.start, level=level))
    assert data == b"".join(rendering(view, kept.record) for kept in seen.model.visible)


def test_what_a_fixed_name_shows_is_still_when_transactions_end() -> None:
    log = TransactionLog(SMALL)
    put(log, 0)
    put(log, 1)
    put(log, 0)
    address = resolving.address(View.TEXT, Earliest(), Latest())
    resolved = resolve(log.log, address, START_MS, COMMITTED)
    file = FixedFile(resolved)
    before = read_all(file)
    assert before == log.text(COMMITTED)
    finish(log, 1, ABORT)
    put(log, 0)
    assert read_all(file) == read_all(FixedFile(resolved)) == before
    assert resolve(log.log, address, START_MS, COMMITTED).size > len(before)


def test_where_aborted_records_lie_is_looked_up_once_and_may_wait_for_a_thread() -> None:
    log = interleaved()
    log.restart()
    log.publish()
    file, out = GrowingFile(log.log, View.TEXT, 0, level=COMMITTED), memoryview(bytearray(100))
    file.may_block = False
    assert (file.read_into(out, 0), file.would_block) == (0, True)
    file.may_block = True
    first = bytes(out[: file.read_into(out, 0)])
    assert not file.would_block
    again = GrowingFile(log.log, View.TEXT, 0, level=COMMITTED)
    again.may_block = False
    assert (bytes(out[: again.read_into(out, 0)]), again.would_block) == (first, False)


@each_view
def test_a_transaction_that_is_longer_than_a_window(view: View) -> None:
    log = TransactionLog({"index.interval.bytes": "4096"})
    for number in range(24):
        value = b"%d " % number + b"x" * 70_000
        if number % 4 == 3:
            log.append([Record(0, START_MS, None, value)])
        else:
            log.produce(1 + number % 4, [Record(0, START_MS, None, value)])
    for producer in (1, 2, 3):
        log.end(producer, COMMIT if producer == 2 else ABORT, START_MS)
    seen = log.seen(COMMITTED)
    assert Program(seen, view, 1 << 17).cat() == log.text(COMMITTED, view)
    for kept in seen.model.visible:
        file, out = GrowingFile(log.log, view, 0, level=COMMITTED), memoryview(bytearray(50))
        assert file.read_into(out, kept.positions[view]) == 50
        assert bytes(out) == rendering(view, kept.record)[:50]


def test_after_a_truncation_a_transaction_is_open_again_and_may_be_committed() -> None:
    log = TransactionLog({})
    put(log, 2)
    finish(log, 2, ABORT)
    put(log, 0)
    put(log, 1)
    finish(log, 1, ABORT)
    plain = read_all(GrowingFile(log.log, View.TEXT, 0, level=COMMITTED))
    assert plain == log.text(COMMITTED)
    other, transaction = log.transactions
    log.log.truncate_to(transaction.last_offset, START_MS)
    assert log.log.snapshot.aborted == (other,)
    assert log.log.last_stable_offset == transaction.first_offset
    assert read_all(GrowingFile(log.log, View.TEXT, 0, level=COMMITTED)) == plain
    data = marker(1, log.log.log_end_offset, COMMIT, START_MS)
    append_batch(log.log, data, (0, 0, 0), START_MS)
    shown = read_all(GrowingFile(log.log, View.TEXT, 0, level=COMMITTED))
    log.aborted = {n for n in log.aborted if n < transaction.first_offset}
    assert shown == log.text(COMMITTED) != plain


# Step by step

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("end"), st.integers(1, 3), st.sampled_from([ABORT, COMMIT])),
        st.tuples(st.just("roll"), st.just(0), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 3000), st.integers(1, 400)),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS, st.sampled_from(VIEWS), st.sampled_from(Compression))
@example(
    [("put", 0, 3), ("put", 1, 3), ("end", 1, ABORT), ("put", 0, 3)], View.TEXT, Compression.NONE
)
@example(
    [("put", 0, 1), ("put", 2, 1), ("put", 1, 1), ("end", 2, ABORT), ("end", 1, ABORT)],
    View.TEXT,
    Compression.NONE,
)
def test_a_follower_sees_every_committed_record_once_and_in_order(
    steps: list[tuple[str, int, int]], view: View, codec: Compression
) -> None:
    log = TransactionLog({"internal.segment.bytes": "700", "index.interval.bytes": "100"})
    follower = Program(log.seen(COMMITTED), view, 70)
    seeking = GrowingFile(log.log, view, 0, level=COMMITTED)
    followed = b""
    for what, number, other in steps:
        if what == "put":
            put(log, number, other, codec)
        elif what == "end":
            finish(log, number, other)
        elif what == "roll":
            log.roll()
        elif what == "read":
            at, rule = number % (seeking.size() + 2), Rule(log.seen(COMMITTED).model, view)
            out = bytearray(other)
            seeking.read_into(memoryview(bytearray(1)), at + 500)
            rule.read(at + 500, 1)
            got = seeking.read_into(memoryview(out), at)
            assert out[:got] == rule.seek_text(at, other)
        followed += follower.cat()
        assert followed == log.text(COMMITTED, view)
        assert follower.file.size() == log.seen(COMMITTED).model.end[view]
    assert Program(log.seen(COMMITTED), view, 33).cat() == followed
