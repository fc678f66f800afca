"""When a segment is rolled: Kafka's five conditions, alone and on a partition."""

import errno

import pytest

from logfs.config import TopicConfig
from logfs.log.segments.snapshot import Snapshot
from logfs.log.writing.active import SegmentFill, draw_jitter_ms, should_roll
from logfs.records._encoding import encode_records
from logfs.records.encoded import EncodeOptions
from logfs.records.layout import MAX_RELATIVE_OFFSET
from logfs.records.record import Record
from tests.fakes import START_MS
from tests.log.support import Bench, batches_in, lines_of, log_name

CREATED_MS = 1_000_000
FILL = SegmentFill(100, 500, CREATED_MS, CREATED_MS, is_index_full=False)
BATCH = (80, 100 + 9, CREATED_MS)
RECORD_BYTES = 70
"""A batch of one record with a null key and a value of one byte."""


def config(**properties: int) -> TopicConfig:
    return TopicConfig.from_properties(
        {key.replace("_", "."): str(value) for key, value in properties.items()}
    )


def rolls(
    fill: SegmentFill = FILL,
    batch: tuple[int, int, int] = BATCH,
    *,
    jitter_ms: int = 0,
    now_ms: int = CREATED_MS,
    **properties: int,
) -> bool:
    return should_roll(fill, config(**properties), jitter_ms, batch, now_ms)


def test_nothing_rolls_without_a_reason() -> None:
    assert not rolls()


@pytest.mark.parametrize(("limit", "expected"), [(580, False), (579, True)])
def test_a_batch_that_does_not_fit_rolls(limit: int, expected: bool) -> None:
    assert rolls(internal_segment_bytes=limit) is expected


@pytest.mark.parametrize(("waited_ms", "expected"), [(5000, False), (5001, True)])
def test_time_counts_from_the_first_batch_in_timestamps_of_records(
    waited_ms: int, expected: bool
) -> None:
    late = (80, 109, CREATED_MS + waited_ms)
    assert rolls(batch=late, segment_ms=5000) is expected
    # The clock says nothing while the records have timestamps.
    assert not rolls(now_ms=CREATED_MS + 1_000_000, segment_ms=5000)


@pytest.mark.parametrize(("waited_ms", "expected"), [(5000, False), (5001, True)])
def test_time_counts_from_the_creation_without_timestamps(waited_ms: int, expected: bool) -> None:
    fill = FILL._replace(first_timestamp=-1)
    assert rolls(fill, (80, 109, -1), now_ms=CREATED_MS + waited_ms, segment_ms=5000) is expected


@pytest.mark.parametrize(("waited_ms", "expected"), [(4000, False), (4001, True)])
def test_jitter_is_taken_off_the_time(waited_ms: int, expected: bool) -> None:
    late = (80, 109, CREATED_MS + waited_ms)
    assert rolls(batch=late, jitter_ms=1000, segment_ms=5000) is expected


def test_a_timestamp_that_goes_back_does_not_roll() -> None:
    assert not rolls(batch=(80, 109, 0), segment_ms=5000)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_the_compaction_lag_limits_the_time_of_a_compacted_topic(policy: str) -> None:
    properties = {"cleanup.policy": policy, "max.compaction.lag.ms": "100", "segment.ms": "5000"}
    compacted = TopicConfig.from_properties(properties)
    assert should_roll(FILL, compacted, 0, (80, 109, CREATED_MS + 101), CREATED_MS)
    assert not should_roll(FILL, compacted, 0, (80, 109, CREATED_MS + 100), CREATED_MS)


def test_a_full_index_rolls() -> None:
    assert rolls(FILL._replace(is_index_full=True))


@pytest.mark.parametrize(
    ("last_offset", "expected"),
    [(100 + MAX_RELATIVE_OFFSET, False), (100 + MAX_RELATIVE_OFFSET + 1, True), (99, True)],
)
def test_an_offset_too_far_from_the_base_rolls(last_offset: int, expected: bool) -> None:
    assert rolls(batch=(80, last_offset, CREATED_MS)) is expected


def test_an_empty_segment_takes_any_batch() -> None:
    empty = FILL._replace(size_bytes=0, is_index_full=True)
    far = (10_000, 100 + MAX_RELATIVE_OFFSET + 1, CREATED_MS + 10_000_000)
    assert not rolls(empty, far, now_ms=CREATED_MS * 9, segment_ms=1, internal_segment_bytes=10)


# On a partition


def bases(bench: Bench) -> list[int]:
    return [segment.base_offset for segment in bench.log.snapshot.segments]


def append_at(bench: Bench, timestamp: int) -> None:
    bench.append([Record(0, timestamp, None, b"v")])


def test_a_partition_fills_its_segments_to_the_limit() -> None:
    bench = Bench({"internal.segment.bytes": "250"})
    bench.write(*[b"v"] * 10)
    (_, first), *_ = batches_in(bench.file(log_name(0)))
    fit = 250 // first.size_bytes
    assert bases(bench) == list(range(0, 10, fit))
    assert all(len(bench.file(name)) <= 250 for name in bench.names(".log"))


def test_a_partition_rolls_by_the_max_timestamp_of_the_first_batch() -> None:
    bench = Bench({"segment.ms": "1000"})
    bench.append([Record(0, START_MS + t, None, b"v") for t in (0, 500, 200)])
    append_at(bench, START_MS + 1500)
    assert bases(bench) == [0]
    append_at(bench, START_MS + 1501)
    assert bases(bench) == [0, 4]
    append_at(bench, START_MS)
    assert bases(bench) == [0, 4], "time went back"


def test_the_first_timestamp_survives_a_restart() -> None:
    bench = Bench({"segment.ms": "1000"})
    append_at(bench, START_MS)
    bench.now_ms += 10_000
    for restart in (bench.restart, bench.kill):
        restart()
        append_at(bench, START_MS + 1000)
        assert bases(bench) == [0]
    append_at(bench, START_MS + 1001)
    assert bases(bench) == [0, 3]


def test_a_partition_without_timestamps_rolls_by_the_clock() -> None:
    bench = Bench({"segment.ms": "1000"})
    append_at(bench, -1)
    bench.now_ms += 1000
    append_at(bench, -1)
    assert bases(bench) == [0]
    bench.now_ms += 1
    append_at(bench, -1)
    assert bases(bench) == [0, 2]


@pytest.mark.parametrize(
    ("index_bytes", "entries"),
    # A time index keeps room for its final entry: three of 12 bytes are two.
    [(3 * 12, 2), (3 * 8, 1), (10 * 12, 9)],
)
def test_a_partition_rolls_when_an_index_is_full(index_bytes: int, entries: int) -> None:
    bench = Bench({"segment.index.bytes": str(index_bytes), "index.interval.bytes": "0"})
    count = 0
    while len(bases(bench)) == 1:
        append_at(bench, START_MS + count)
        count += 1
    # The first batch has no entry; after the last entry that fits, the next batch rolls.
    assert bases(bench) == [0, entries + 1]
    assert len(bench.file("00000000000000000000.timeindex")) <= index_bytes
    assert len(bench.file("00000000000000000000.index")) == entries * 8


def test_a_partition_rolls_before_an_offset_overflows() -> None:
    bench = Bench()
    bench.write(b"a")
    log, options = bench.log, EncodeOptions(1 << 20)
    far = MAX_RELATIVE_OFFSET
    for offset in (far, far + 1):
        # Offsets may be skipped, as compaction leaves them.
        encoded = encode_records([Record(0, START_MS, None, b"v")], offset, START_MS, options)
        log.append(encoded.batches, bench.now_ms)
    assert bases(bench) == [0, far + 1]
    assert bench.restart().log_end_offset == far + 2


@pytest.mark.parametrize(("jitter_ms", "segment_ms"), [(1000, 5000), (9000, 5000), (1, 5000)])
def test_jitter_stays_below_both_limits_and_differs(jitter_ms: int, segment_ms: int) -> None:
    bench = Bench({"segment.jitter.ms": str(jitter_ms), "segment.ms": str(segment_ms)})
    drawn = {draw_jitter_ms(bench.log.config, bench.log.state.host.new_id) for _ in range(200)}
    assert 0 <= min(drawn) <= max(drawn) < min(jitter_ms, segment_ms)
    assert len(drawn) > 50 or jitter_ms == 1


def test_no_jitter_is_drawn_by_default() -> None:
    assert draw_jitter_ms(config(), bytes) == 0


def test_with_jitter_a_partition_rolls_earlier_and_never_later() -> None:
    bench = Bench({"segment.jitter.ms": "900", "segment.ms": "1000"})
    lengths = [first_roll_after(bench, START_MS + n * 10_000) for n in range(8)]
    assert all(100 < length <= 1001 for length in lengths), lengths
    assert len(set(lengths)) > 1


def first_roll_after(bench: Bench, timestamp: int) -> int:
    """How many ms after the first record of a segment the next segment begins."""
    bench.log.roll(bench.now_ms)
    append_at(bench, timestamp)
    count = len(bases(bench))
    for step in range(0, 2000, 7):
        append_at(bench, timestamp + step)
        if len(bases(bench)) > count:
            return step
    raise AssertionError("it never rolled")


def test_a_roll_that_was_asked_for_seals_a_segment_but_no_empty_one() -> None:
    bench = Bench()
    bench.log.roll(bench.now_ms)
    assert bases(bench) == [0]
    bench.write(b"a", b"b")
    bench.log.roll(bench.now_ms)
    bench.log.roll(bench.now_ms)
    assert bases(bench) == [0, 2]
    snapshot: Snapshot = bench.log.snapshot
    assert snapshot.segments[1].bases == snapshot.end.positions == snapshot.segments[0].ends


@pytest.mark.allow_log("are no whole batch")
def test_a_segment_that_could_not_begin_does_not_come_back_after_a_power_cut() -> None:
    bench = Bench()
    bench.write(b"durable")
    bench.disk.fail_next_write("*/logfs.segments", errno.ENOSPC)
    with pytest.raises(OSError, match="No space left on device"):
        bench.log.roll(bench.now_ms)
    bench.log.flush()
    bench.store.checkpoint()
    bench.write(b"not durable")
    bench.new_boot()
    for seed in range(60):
        store = bench.open(bench.disk.after_crash(seed))
        found = lines_of(store.partition("t", 0))
        assert found in ([b"durable"], [b"durable", b"not durable"])
        store.close(bench.now_ms)
