"""A flush that runs by itself: what it covers, its callers, what its failure means."""

import contextlib
import errno
from collections.abc import Callable

import pytest

from logfs.errors import DeletedError, LogOfflineError
from logfs.log.writing.flusher import Flush
from tests.fakesyncs import BeginsSyncs, FakeSyncs
from tests.log.durability import OFFLINE, SMALL, Syncs, fail_sync, in_threads
from tests.log.support import Bench, lines_of


def begun_bench() -> tuple[Bench, FakeSyncs, Flush]:
    """Return a log of one record, whose flush continues."""
    bench, syncs = Bench(), FakeSyncs()
    bench.write(b"first")
    bench.log.flush()
    bench.write(b"a")
    return bench, syncs, begin(bench, syncs)


def begin(bench: Bench, syncs: FakeSyncs) -> Flush:
    flush = bench.log.flusher.begin(syncs)
    assert flush is not None
    return flush


def test_it_covers_what_was_there_when_it_began() -> None:
    bench, syncs, flush = begun_bench()
    bench.write(b"b")
    assert bench.log.recovery_point == 1
    syncs.let_go()
    assert bench.log.flusher.end(flush)
    log = bench.log
    assert (log.recovery_point, log.counters.flush_s.count) == (2, 2)
    assert (log.is_durable(2), log.is_durable(3)) == (True, False)
    # The second time there is nothing to note.
    assert log.flusher.end(flush)
    assert log.counters.flush_s.count == 2


def test_what_it_covered_is_there_after_a_power_cut() -> None:
    bench, syncs, flush = begun_bench()
    syncs.let_go()
    assert bench.log.flusher.end(flush)
    assert lines_of(bench.crash()) == [b"first", b"a"]


def test_only_one_is_under_way() -> None:
    bench, syncs, flush = begun_bench()
    bench.write(b"b")
    assert bench.log.flusher.begin(syncs) is None
    syncs.let_go()
    assert bench.log.flusher.begin(syncs) is None, "its end was not noted"
    assert bench.log.flusher.end(flush)
    assert bench.log.flusher.begin(syncs) is not None


def test_a_flush_waits_for_it_and_shares_it() -> None:
    bench, syncs, flush = begun_bench()
    seen = Syncs(bench.disk)
    with in_threads(3, bench.log.flush):
        assert bench.log.recovery_point == 1
        syncs.let_go()
    assert (seen.logs, bench.log.recovery_point) == (1, 2)
    assert bench.log.flusher.end(flush), "which another call has done already"
    assert bench.log.counters.flush_s.count == 2


def test_a_flush_of_more_than_it_covers_does_the_rest() -> None:
    bench, syncs, flush = begun_bench()
    bench.write(b"b")
    seen = Syncs(bench.disk)
    with in_threads(3, bench.log.flush):
        syncs.let_go()
    assert (seen.logs, bench.log.recovery_point) == (2, 3)
    assert bench.log.flusher.end(flush)


def test_a_call_while_a_thread_flushes_waits() -> None:
    bench, syncs, flush = begun_bench()
    seen = Syncs(bench.disk)
    syncs.let_go()
    bench.write(b"b")
    seen.begun.clear()
    seen.go.clear()
    with in_threads(1, bench.log.flush):
        assert seen.begun.wait(10)  # it has taken note, and syncs what came after
        bench.write(b"c")
        assert bench.log.flusher.begin(syncs) is None
        assert bench.log.flusher.end(flush)
        seen.go.set()
    assert bench.log.recovery_point == 3


@pytest.mark.parametrize("do", [Bench.restart, lambda bench: bench.log.maintain()])
def test_other_flushes_take_note_of_it(do: Callable[[Bench], object]) -> None:
    bench, syncs, _ = begun_bench()
    bench.log.roll(bench.now_ms)
    with in_threads(1, lambda: do(bench)):
        syncs.let_go()
    assert lines_of(bench.crash()) == [b"first", b"a"]


def test_a_cut_waits_for_it() -> None:
    bench, syncs, flush = begun_bench()
    log = bench.log
    with in_threads(1, lambda: log.truncate_to(1, bench.now_ms)) as (thread,):
        thread.join(0.05)
        assert thread.is_alive()
        syncs.let_go()
    assert log.flusher.end(flush)
    assert log.recovery_point == 1, "what is appended at 1 now is another record"
    assert lines_of(bench.crash()) == [b"first"]


def test_a_log_may_be_closed_while_it_continues() -> None:
    bench, syncs, flush = begun_bench()
    log = bench.log
    bench.leave()
    syncs.let_go()
    assert log.flusher.end(flush)


def test_a_topic_may_be_deleted_while_it_continues() -> None:
    bench, syncs, flush = begun_bench()
    log = bench.log
    bench.store.delete_topic("t", bench.now_ms)
    syncs.let_go()
    assert log.flusher.end(flush)
    assert log.flusher.begin(syncs) is None
    with pytest.raises(DeletedError):
        log.flush()


# What takes more than one fsync


def test_new_names_take_more() -> None:
    bench, syncs = Bench(), FakeSyncs()
    bench.write(b"a")
    bench.log.roll(bench.now_ms)
    bench.log.maintain()
    assert bench.log.flusher.begin(syncs) is not None
    bench = Bench(SMALL)
    bench.write(*[b"v%02d" % n for n in range(10)])
    assert bench.log.flusher.begin(syncs) is None, "sealed segments wait"


def test_flush_ms_still_counts_if_it_takes_more() -> None:
    bench = Bench({"flush.ms": "1000", **SMALL})
    bench.write(*[b"v%02d" % n for n in range(10)])
    assert bench.log.flusher.begin(FakeSyncs()) is None
    assert bench.store.flush_due(bench.now_ms + 1000) == [bench.log]


def test_flush_ms_counts_from_what_came_after_it_began() -> None:
    bench, syncs = Bench({"flush.ms": "1000"}), FakeSyncs()
    bench.log.flush()
    bench.write(b"a")
    begin(bench, syncs)
    bench.now_ms += 600
    bench.write(b"b")
    assert bench.store.flush_due(bench.now_ms + 999) == []
    assert bench.store.flush_due(bench.now_ms + 1000) == [bench.log]


def test_a_disk_without_such_syncs_begins_none() -> None:
    bench = Bench()
    bench.write(b"a")
    assert bench.log.flusher.begin(Nowhere()) is None
    bench.log.flush()
    assert bench.log.recovery_point == 1


class Nowhere(FakeSyncs):
    """Syncs that the disk knows nothing of."""

    def begin(self, file: BeginsSyncs) -> None:
        return None


# Failures


@pytest.mark.expect_log(OFFLINE)
def test_its_failure_is_final() -> None:
    bench, syncs, flush = begun_bench()
    log = bench.log
    bench.disk.fail_next_sync("*.log")
    syncs.let_go()
    assert not log.flusher.end(flush)
    with pytest.raises(OSError, match=str(errno.EIO)):
        log.flush()
    assert (log.recovery_point, log.counters.failed_flushes) == (1, 1)
    before = bench.disk.counts.copy()
    for refused in log.flush, lambda: bench.write(b"b"):
        with pytest.raises(LogOfflineError, match="fsync failed"):
            refused()
    assert not log.flusher.end(flush)
    assert log.flusher.begin(syncs) is None
    assert not log.is_durable(0)
    assert bench.disk.counts == before, "the disk was not asked again"


@pytest.mark.expect_log(OFFLINE)
def test_a_waiting_caller_fails_too() -> None:
    bench, syncs, flush = begun_bench()
    log, errors = bench.log, list[Exception]()

    def wait() -> None:
        try:
            log.flush()
        except (OSError, LogOfflineError) as error:
            errors.append(error)

    seen = Syncs(bench.disk)
    bench.disk.fail_next_sync("*.log")
    with in_threads(3, wait):
        syncs.let_go()
    assert len(errors) == 3
    assert not log.flusher.end(flush)
    assert (seen.logs, log.recovery_point) == (1, 1)


@pytest.mark.expect_log(OFFLINE)
def test_it_does_not_count_if_another_flush_failed_meanwhile() -> None:
    bench, syncs, flush = begun_bench()
    log = bench.log
    bench.log.roll(bench.now_ms)
    bench.disk.fail_next_sync("*.timeindex")
    with in_threads(1, lambda: _quietly(log.maintain)):
        syncs.let_go()
    assert not log.flusher.end(flush)


@pytest.mark.expect_log(OFFLINE)
def test_a_cut_does_not_trust_what_failed() -> None:
    bench, syncs, _ = begun_bench()
    bench.disk.fail_next_sync("*.log")
    syncs.let_go()
    with pytest.raises(OSError, match=str(errno.EIO)):
        bench.log.truncate_to(1, bench.now_ms)
    assert bench.log.offline is not None


@pytest.mark.expect_log(OFFLINE)
def test_nothing_is_begun_offline() -> None:
    bench, syncs = Bench(), FakeSyncs()
    bench.write(b"a")
    fail_sync(bench)
    assert bench.log.flusher.begin(syncs) is None
    assert syncs.begun == []


def _quietly(call: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        call()
