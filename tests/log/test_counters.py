"""What partitions count, where no mount is needed to see it."""

import errno

import pytest

from logfs.log.counters import Histogram, LogCounters
from tests.log.support import Bench


def test_a_histogram_counts_what_is_within_a_bound_there() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 2.0):
        histogram.observe(seconds)
    assert histogram.counts == [2, 1, 1]
    assert histogram.as_json() == {
        "count": 4, "seconds": 2.65, "p50_within": 0.1, "p99_within": None
    }  # fmt: skip
    assert Histogram((1.0,)).as_json()["p50_within"] is None


def test_counters_continue_where_others_have_stopped() -> None:
    old, new = LogCounters(records=3, recovery_s=0.5, retention_ms=7), LogCounters(records=4)
    old.count_deleted("trim", 2, 100)
    old.append_s.observe(0.01)
    new.count_deleted("trim", 1, 10)
    new.add(old)
    assert (new.records, new.recovery_s, new.retention_ms) == (7, 0.5, 7)
    assert new.retention_as_json()["deleted_bytes"] == 110
    assert new.append_s.count == 1


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.allow_log("t/0 is offline")
def test_a_partition_reloaded_continues_counting(bench: Bench) -> None:
    bench.write(b"one", b"two")
    bench.disk.fail_next_write("*.log")
    with pytest.raises(OSError, match="nput/output"):
        bench.write(b"three")
    log = bench.reload()
    bench.write(b"four")
    counters = log.counters
    assert (counters.appends, counters.failed_appends, counters.records) == (3, 1, 3)
    assert counters.recoveries == 1
    assert counters.recovered_bytes == log.snapshot.segments[0].size_bytes


@pytest.mark.allow_log("t/0 is offline")
def test_flushes_and_those_that_fail(bench: Bench) -> None:
    bench.write(b"one")
    bench.log.flush()
    bench.log.flush()  # nothing to do
    bench.write(b"two")
    bench.disk.fail_next_sync("*.log")
    with pytest.raises(OSError, match="nput/output"):
        bench.log.flush()
    counters = bench.log.counters
    assert (counters.flush_s.count, counters.failed_flushes) == (1, 1)


def test_a_disk_that_is_full_refuses_an_append(bench: Bench) -> None:
    bench.write(b"one")
    bench.disk.fail_next_write("*.log", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        bench.write(b"two")
    assert (bench.log.counters.appends, bench.log.counters.failed_appends) == (1, 1)


def test_what_a_deleted_topic_has_counted_stays(bench: Bench) -> None:
    bench.write(b"one")
    bench.store.delete_topic(bench.log.topic_partition.topic, bench.now_ms)
    assert bench.store.retired.records == 1
