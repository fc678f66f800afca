"""What retention deletes: the rules alone, against a model, and at work on a partition."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.config import TopicConfig
from logfs.errors import LogOfflineError
from logfs.records.record import Record
from logfs.services.retention.logs import (
    RetentionPlan,
    Rule,
    SegmentFacts,
    apply_retention,
    plan_retention,
)
from logfs.types import View
from tests.fakes import START_MS, FakeDisk
from tests.log.support import Bench, end_of, kept_runs_of, lines_of, log_name

NOW = 1_000_000
SMALL = {"internal.segment.bytes": "150"}
"""Two records of one byte fit into a segment."""


def plan(
    segments: list[tuple[int, int]],
    *,
    start: int = 0,
    watermark: int | None = None,
    modified: Mapping[int, int] | None = None,
    **properties: str,
) -> RetentionPlan:
    """Plan for segments of ten offsets each, given as (bytes, latest timestamp)."""
    facts = [SegmentFacts(10 * n + 10, size, latest) for n, (size, latest) in enumerate(segments)]
    config = TopicConfig.from_properties(
        {"retention.ms": "-1", **{k.replace("_", "."): v for k, v in properties.items()}}
    )
    end = 10 * len(segments) if watermark is None else watermark
    return plan_retention(facts, config, (start, end), NOW, lambda n: (modified or {})[n])


def taken(*args: object, **kwargs: object) -> list[Rule]:
    return list(plan(*args, **kwargs).rules)  # type: ignore[arg-type]


FULL = [(100, NOW - 3), (100, NOW - 2), (100, NOW - 1)]


def test_nothing_is_deleted_without_a_limit() -> None:
    assert plan(FULL) == RetentionPlan()
    assert plan([(100, 0)], retention_bytes="-1") == RetentionPlan()


@pytest.mark.parametrize(
    ("limit", "count"),
    [(301, 0), (300, 0), (201, 0), (200, 1), (101, 1), (100, 2), (1, 2), (0, 3), (-7, 0)],
)
def test_size_keeps_the_log_at_or_above_the_limit(limit: int, count: int) -> None:
    assert taken(FULL, retention_bytes=str(limit)) == [Rule.SIZE] * count


@pytest.mark.parametrize(("limit", "count"), [(3, 0), (2, 1), (1, 2), (0, 3), (-1, 0)])
def test_time_is_strict(limit: int, count: int) -> None:
    assert taken(FULL, retention_ms=str(limit)) == [Rule.TIME] * count


def test_the_first_that_stays_keeps_all_after_it() -> None:
    young = [(100, 5), (100, NOW), (100, 5)]
    assert taken(young, retention_ms="10") == [Rule.TIME]
    large = [(10, 0), (500, 0), (10, 0)]
    assert taken(large, retention_bytes="505") == [Rule.SIZE]


def test_the_log_start_offset_applies_under_every_policy_except_to_the_active_segment() -> None:
    for policy in ("delete", "compact", ""):
        assert taken(FULL, start=9, cleanup_policy=policy) == []
        assert taken(FULL, start=10, cleanup_policy=policy) == [Rule.START_OFFSET]
        assert taken(FULL, start=30, cleanup_policy=policy) == [Rule.START_OFFSET] * 2


def test_size_and_time_apply_only_with_delete() -> None:
    limits = {"retention_ms": "0", "retention_bytes": "0"}
    assert taken(FULL, cleanup_policy="compact", **limits) == []
    assert taken(FULL, cleanup_policy="", **limits) == []
    assert len(taken(FULL, cleanup_policy="compact,delete", **limits)) == 3


def test_each_rule_starts_where_the_previous_one_stopped() -> None:
    segments = [(100, NOW)] * 2 + [(100, 5)] + [(100, NOW)]
    rules = taken(segments, start=10, retention_bytes="200", retention_ms="10")
    assert rules == [Rule.START_OFFSET, Rule.SIZE, Rule.TIME]


def test_nothing_beyond_the_high_watermark_is_deleted() -> None:
    assert len(taken(FULL, watermark=19, retention_ms="0")) == 1
    assert len(taken(FULL, watermark=29, retention_bytes="0")) == 2
    assert taken(FULL, watermark=9, start=30) == []


def test_an_empty_active_segment_stays() -> None:
    assert taken([(100, 5), (0, -1)], retention_bytes="0", modified={1: 5}) == [Rule.SIZE]
    assert taken([(100, 5), (0, -1)], retention_ms="0", modified={1: 5}) == [Rule.TIME]
    assert taken([(0, -1)], retention_ms="0", modified={0: 5}) == []


def test_a_segment_without_timestamps_is_as_old_as_its_file() -> None:
    segments = [(100, -1), (0, -1), (100, NOW)]
    assert len(taken(segments, retention_ms="10", modified={0: NOW - 11, 1: NOW - 11})) == 2
    assert len(taken(segments, retention_ms="10", modified={0: NOW - 10})) == 0


def test_a_timestamp_in_the_future_keeps_its_segment_and_is_reported() -> None:
    segments = [(100, 5), (100, NOW + 1001), (100, 5)]
    assert plan(segments, retention_ms="0") == RetentionPlan((Rule.TIME,), 1)
    # The clock of a writer may be a second ahead.
    segments = [(100, 5), (100, NOW + 1000), (100, 5)]
    assert plan(segments, retention_ms="0") == RetentionPlan((Rule.TIME,))
    assert plan(segments, retention_ms="-1") == RetentionPlan()


class Model(NamedTuple):
    segments: list[tuple[int, int]]
    start: int
    retention_bytes: int
    retention_ms: int


def expected(model: Model) -> int:
    """Kafka's three passes, segment by segment, as its documentation puts them."""
    left = [(10 * n + 10, *s) for n, s in enumerate(model.segments)]
    while len(left) > 1 and left[0][0] <= model.start:
        left.pop(0)

    def may_go() -> bool:
        return bool(left) and not (len(left) == 1 and left[0][1] == 0)

    while (
        model.retention_bytes >= 0
        and may_go()
        and sum(s[1] for s in left[1:]) >= model.retention_bytes
    ):
        left.pop(0)
    while model.retention_ms >= 0 and may_go() and left[0][2] < NOW - model.retention_ms:
        left.pop(0)
    return len(model.segments) - len(left)


MODELS = st.builds(
    Model,
    st.lists(
        st.tuples(st.sampled_from([0, 50, 100]), st.integers(NOW - 10, NOW + 2)),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 60),
    st.sampled_from([-1, 0, 50, 100, 200, 500]),
    st.sampled_from([-1, 0, 2, 5, 20]),
)


@given(MODELS)
@settings(max_examples=300)
def test_the_plan_is_that_of_a_simple_model(model: Model) -> None:
    found = taken(
        model.segments,
        start=model.start,
        retention_bytes=str(model.retention_bytes),
        retention_ms=str(model.retention_ms),
    )
    assert len(found) == expected(model)


# At work


def test_old_segments_are_deleted_and_positions_stay() -> None:
    bench = Bench({**SMALL, "retention.ms": "1000"})
    bench.write(b"a", b"b", b"c", b"d")
    bench.now_ms += 5000
    bench.write(b"e")
    before = end_of(bench.log, View.TEXT)
    done = apply_retention(bench.log, bench.now_ms)
    assert (done.segments, done.start, done.rules) == (2, (0, 4), (Rule.TIME,))
    assert done.size_bytes == 4 * 69
    assert lines_of(bench.log) == [b"e"]
    assert end_of(bench.log, View.TEXT) == before
    assert bench.names(".log.deleted") == [f"{log_name(n)}.deleted" for n in (0, 2)]
    assert apply_retention(bench.log, bench.now_ms).segments == 0


@pytest.mark.parametrize("stop", ["restart", "kill", "crash"])
def test_all_segments_are_deleted_if_all_are_old_and_the_log_continues(stop: str) -> None:
    bench = Bench({**SMALL, "retention.ms": "1000"})
    bench.write(b"a", b"b", b"c")
    end = end_of(bench.log, View.TEXT)
    bench.now_ms += 5000
    done = apply_retention(bench.log, bench.now_ms)
    assert (done.segments, done.start) == (2, (0, 3))
    assert lines_of(bench.log) == []
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (3, 3)
    getattr(bench, stop)()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (3, 3)
    assert end_of(bench.log, View.TEXT) >= end
    bench.write(b"d")
    assert lines_of(bench.log) == [b"d"]
    assert bench.names(".log") == [log_name(3)]


def test_more_segments_are_deleted_than_in_one_step() -> None:
    bench = Bench({**SMALL, "retention.bytes": "0"})
    bench.write(*[b"v"] * 301)
    done = apply_retention(bench.log, bench.now_ms)
    assert (done.segments, done.size_bytes) == (151, 301 * 69)
    assert done.start == (0, 301)
    assert lines_of(bench.crash()) == []


def test_segments_below_the_log_start_offset_are_deleted() -> None:
    bench = Bench({**SMALL, "cleanup.policy": "compact"})
    bench.append([Record(0, START_MS, b"k", b"v", ())] * 1)
    for _ in range(5):
        bench.append([Record(0, START_MS, b"k", b"v", ())])
    bench.store.close(bench.now_ms)
    bench.disk.replace("log-start-offset-checkpoint", b"0\n1\nt 0 3\n")
    bench.store = bench.open()
    assert bench.log.log_start_offset == 3
    assert len(bench.log.snapshot.segments) == 3
    done = apply_retention(bench.log, bench.now_ms)
    assert (done.segments, done.rules) == (1, (Rule.START_OFFSET,))
    assert done.start == (3, 3)
    assert bench.log.log_start_offset == 3


def test_a_record_from_the_future_is_reported() -> None:
    bench = Bench({**SMALL, "retention.ms": "1000", "message.timestamp.after.max.ms": "9999999"})
    bench.append([Record(0, START_MS + 99_000, b"k", b"v", ())])
    bench.now_ms += 50_000
    done = apply_retention(bench.log, bench.now_ms)
    assert (done.segments, done.future) == (0, (0, START_MS + 99_000))


def test_a_producer_snapshot_is_removed_with_its_segment() -> None:
    bench = Bench({**SMALL, "retention.bytes": "0", "file.delete.delay.ms": "10"})
    bench.write(b"a", b"b", b"c")
    bench.put("00000000000000000002.snapshot", b"state")
    apply_retention(bench.log, bench.now_ms)
    assert "00000000000000000002.snapshot.deleted" in bench.names()
    bench.store.remove_due_files(bench.now_ms + 10)
    assert bench.names("00000000000000000002.snapshot.deleted") == []


@pytest.mark.allow_log("is offline")
def test_retention_does_not_change_an_offline_partition() -> None:
    bench = Bench({**SMALL, "retention.bytes": "0"})
    bench.write(b"a", b"b", b"c")
    bench.log.state.take_offline("a test")
    with pytest.raises(LogOfflineError):
        apply_retention(bench.log, bench.now_ms)
    assert lines_of(bench.log) == [b"a", b"b", b"c"]


LINES = [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.allow_log("the one before it is used")
@pytest.mark.parametrize("seed", [None, 1, 2, 13])
def test_a_stop_at_any_step_leaves_whole_segments_and_no_position_twice(seed: int | None) -> None:
    bench = Bench({**SMALL, "retention.ms": "1000"})
    bench.write(*LINES)
    bench.log.flush()
    bench.now_ms += 5000
    end = end_of(bench.log, View.TEXT)
    left: list[FakeDisk] = []

    def before(operation: str, name: str, size: int) -> None:
        if operation not in ("stat", "list", "pread"):
            left.extend([bench.disk.after_kill(), bench.disk.after_crash(seed)])

    bench.disk.before = before
    assert apply_retention(bench.log, bench.now_ms).segments == 3
    bench.disk.before = None
    left.extend([bench.disk.after_kill(), bench.disk.after_crash(seed)])
    assert len(left) > 20
    bench.new_boot()
    starts = set()
    for disk in left:
        log = bench.open(disk).partition("t", 0)
        start = log.log_start_offset
        starts.add(start)
        assert log.log_end_offset == 5
        assert kept_runs_of(log, View.TEXT) in (
            [(2 * start, b"\n".join(LINES[start:]) + b"\n")],
            [],
        )
        assert len(lines_of(log)) == 5 - start
        assert end_of(log, View.TEXT) >= end
        assert not log.losses
    # A power cut may keep the note of the first segments alone.
    assert {0, 5} <= starts <= {0, 2, 4, 5}
