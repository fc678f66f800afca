"""A disk with no room at all: logfs starts, stops, deletes, trims and compacts on it."""

import errno

import pytest

from logfs.types import TopicPartition
from tests.log.looking import directories
from tests.log.support import Bench, lines_of

SMALL = {"internal.segment.bytes": "300", "index.interval.bytes": "0"}


def full_bench(lines: int = 20) -> Bench:
    bench = Bench(SMALL)
    bench.write(*[b"line %d" % n for n in range(lines)])
    bench.log.flush()
    return bench


@pytest.mark.expect_log("topic t is deleted; to be done later")
def test_a_topic_is_deleted_on_a_full_disk() -> None:
    bench = full_bench()
    bench.store.attributes.set("t", 0, mode=0o600)
    bench.store.checkpoint()
    bench.disk.fill()
    bench.store.delete_topic("t", bench.now_ms)
    assert bench.store.topics() == []
    bench.store.remove_due_files(bench.now_ms + 10**9)
    assert directories(bench.disk) == []


@pytest.mark.allow_log("")
@pytest.mark.parametrize("stop", ["kill", "restart", "crash"])
def test_a_topic_made_again_has_nothing_of_one_deleted_on_a_full_disk(stop: str) -> None:
    bench = full_bench()
    bench.log.advance_log_start_offset(15, bench.now_ms)
    bench.store.attributes.set("t", 0, mode=0o600)
    bench.store.checkpoint()
    bench.disk.fill()
    bench.store.delete_topic("t", bench.now_ms)
    bench.disk.space_bytes = None
    bench.store.create_topic("t", 1, SMALL, bench.now_ms)
    bench.write(b"new")
    bench.log.flush()
    getattr(bench, stop)()
    assert lines_of(bench.log) == [b"new"]
    assert bench.log.log_start_offset == 0
    assert bench.store.attributes.get("t", 0).mode is None


@pytest.mark.allow_log("")
def test_a_topic_is_not_made_again_while_old_rows_cannot_be_removed() -> None:
    bench = full_bench()
    bench.log.advance_log_start_offset(15, bench.now_ms)
    bench.store.checkpoint()
    bench.disk.fill()
    bench.store.delete_topic("t", bench.now_ms)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.store.create_topic("t", 1, {}, bench.now_ms)
    bench.disk.kill()
    bench.store = bench.open()
    assert bench.store.topics() == []
    assert TopicPartition("t", 0).directory not in directories(bench.disk)


@pytest.mark.allow_log("")
def test_a_stop_on_a_full_disk_loses_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    bench = full_bench()
    bench.disk.fill()
    bench.store.close(bench.now_ms)
    assert "the next start recovers the logs" in caplog.text
    assert "is offline" not in caplog.text
    bench.disk.space_bytes = None
    bench.store = bench.open()
    assert len(lines_of(bench.log)) == 20
    assert bench.log.snapshot.holes == ()
