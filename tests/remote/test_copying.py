"""Sealed segments go to the store, local files go, and readers see the same log."""

import pytest

from logfs.errors import DivergedError, FencedError, RemoteStorageError
from logfs.log.remote.entries import TIERED_ENTRY_BYTES
from logfs.log.remote.rows import HEADER_BYTES
from logfs.services.retention.logs import apply_retention
from logfs.services.tiering import heads
from logfs.services.tiering.removing import SHORTEST_DELAY_MS
from logfs.types import View
from tests.log.support import text_of
from tests.remote.fakestore import FakeStore
from tests.remote.tiering import TIERED, Stop, TieredBench, no_throttle


def test_a_log_whose_sealed_segments_are_in_the_store_alone_reads_the_same() -> None:
    bench = TieredBench()
    text = bench.fill(40)
    tsv = text_of(bench.log, View.TSV)
    bench.tier_all()
    sealed = len(bench.log.snapshot.segments) - 1
    assert sealed > 5
    assert len(bench.local_names(".log")) == 1
    assert len(bench.head.entries) == sealed
    assert text_of(bench.log) == text
    assert text_of(bench.log, View.TSV) == tsv


@pytest.mark.parametrize("stop", [TieredBench.restart, TieredBench.kill, TieredBench.crash])
def test_a_start_sends_no_request_and_shows_the_same_log(stop: Stop) -> None:
    bench = TieredBench()
    text = bench.fill(40)
    bench.tier_all()
    bench.objects.counts.clear()
    log = stop(bench)
    assert not bench.objects.counts
    assert log.offline is None
    assert text_of(log) == text
    more = bench.fill(40, first=40)
    bench.tier_all()
    assert text_of(bench.log) == text + more
    assert bench.head.epoch == 2


def test_recovered_segments_are_copied_although_nothing_is_appended() -> None:
    bench = TieredBench()
    bench.write(*(b"line %d xxxxxxxxxxxxxxxxxxxxxxxx" % n for n in range(40)))
    bench.kill()
    assert bench.tiering.has_work
    bench.tiering.run_once(no_throttle, bench.now_ms)
    assert len(bench.head.entries) == len(bench.log.snapshot.segments) - 1 > 5


@pytest.mark.expect_log("logfs.tiered was lost")
def test_a_lost_list_of_tiered_segments_is_rebuilt_from_the_head() -> None:
    bench = TieredBench()
    text = bench.fill(40)
    bench.tier_all()
    bench.store.close(bench.now_ms)
    bench.disk.remove("t-0/logfs.tiered")
    bench.store = bench.open()
    assert text_of(bench.log) == text


@pytest.mark.allow_log("it is rebuilt from the object store")
@pytest.mark.expect_log("logfs.tiered was lost")
@pytest.mark.parametrize("position", [2, 60, 300, -300, -150])
def test_a_damaged_list_of_tiered_segments_is_rebuilt_from_the_head(position: int) -> None:
    bench = TieredBench()
    text = bench.fill(40)
    bench.tier_all()
    bench.store.close(bench.now_ms)
    data = bytearray(bench.disk.read("t-0/logfs.tiered", None))
    rows = len(data) - (len(data) - HEADER_BYTES) % TIERED_ENTRY_BYTES
    data[position if position >= 0 else rows + position] ^= 0xFF
    bench.disk.replace("t-0/logfs.tiered", data)
    bench.store = bench.open()
    assert text_of(bench.log) == text
    assert text_of(bench.restart()) == text
    bench.fill(20, first=40)
    bench.tier_all()
    assert list(bench.tier.entries.values()) == list(bench.head.entries)


@pytest.mark.expect_log("fenced")
def test_a_second_writer_fences_the_first_which_keeps_every_local_byte() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tiering.copy(no_throttle)
    other = TieredBench(disk=bench.disk.after_kill(), objects=bench.objects)
    other.tiering.begin()
    more = bench.fill(40, first=40)
    with pytest.raises(FencedError, match="fenced by epoch 2"):
        bench.tiering.copy(no_throttle)
    with pytest.raises(FencedError):
        bench.tiering.drop(bench.now_ms)
    assert text_of(bench.log).endswith(more)


@pytest.mark.expect_log("fenced")
def test_a_fenced_daemon_drops_no_local_file_that_the_store_may_have_lost() -> None:
    bench = TieredBench({**TIERED, "local.retention.bytes": "-1"})
    bench.fill(40)
    bench.tiering.run_once(no_throttle, bench.now_ms)
    assert bench.tier.local
    other = TieredBench(disk=bench.disk.after_kill(), objects=bench.objects)
    other.store.alter_topic("t", {"retention.bytes": "0", "local.retention.bytes": "0"})
    apply_retention(other.log, other.now_ms)
    other.log.remove_due_files(other.now_ms)
    other.tiering.remove(other.now_ms)
    other.tiering.remove(other.now_ms + SHORTEST_DELAY_MS + 1)
    assert not [key for key in bench.objects.objects if key.endswith(".log")]
    text = text_of(bench.log)
    bench.store.alter_topic("t", {"local.retention.bytes": "0"})
    with pytest.raises(FencedError):
        bench.tiering.run_once(no_throttle, bench.now_ms)
    bench.log.remove_due_files(bench.now_ms)
    assert text_of(bench.log) == text


def test_no_local_file_goes_while_the_store_cannot_say_that_it_is_named() -> None:
    bench = TieredBench({**TIERED, "local.retention.bytes": "-1"})
    bench.fill(40)
    bench.tiering.run_once(no_throttle, bench.now_ms)
    bench.store.alter_topic("t", {"local.retention.bytes": "0"})
    before = bench.local_names(".log")
    bench.objects.fail("get")
    with pytest.raises(OSError, match="injected"):
        bench.tiering.run_once(no_throttle, bench.now_ms)
    assert bench.local_names(".log") == before
    bench.objects.heal()
    bench.tiering.run_once(no_throttle, bench.now_ms)
    bench.log.remove_due_files(bench.now_ms)
    assert len(bench.local_names(".log")) == 1


@pytest.mark.expect_log("another data directory writes this partition")
def test_the_head_of_another_directory_is_refused() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tiering.copy(no_throttle)
    other = TieredBench(disk=bench.disk.after_kill(), objects=bench.objects)
    other.directory_id = b"e" * 16
    with pytest.raises(RemoteStorageError, match="another data directory writes"):
        other.tiering.begin()


def diverged_pair() -> tuple[TieredBench, TieredBench]:
    """Return a directory that has copied its segments, and a copy of it with other records."""
    bench = TieredBench(disk=None, objects=FakeStore())
    bench.fill(8)
    before = bench.disk.after_kill()
    bench.fill(40, first=8)
    bench.tiering.copy(no_throttle)
    bench.write_head_as_earlier_versions()
    other = TieredBench(disk=before, objects=bench.objects)
    other.write(*(b"other %d xxxxxxxxxxxxxxxxxxxxxxx" % n for n in range(60)))
    other.log.flush()
    other.log.maintain()
    return bench, other


@pytest.mark.expect_log("another one than in the data directory")
def test_a_head_that_names_another_segment_stops_everything() -> None:
    _, other = diverged_pair()
    with pytest.raises(DivergedError):
        other.tiering.copy(no_throttle)
    with pytest.raises(DivergedError):
        other.tiering.drop(other.now_ms)
    assert not [name for name in other.names() if "deleted" in name]


@pytest.mark.expect_log("another one than in the data directory")
def test_a_copy_with_other_records_does_not_stop_the_first_directory() -> None:
    bench, other = diverged_pair()
    with pytest.raises(DivergedError):
        other.tiering.copy(no_throttle)
    bench.fill(40, first=48)
    assert bench.tiering.copy(no_throttle)


@pytest.mark.expect_log("another one than in the data directory")
def test_the_log_is_compared_again_after_the_store_failed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heads, "MOST_ENTRIES", 4)  # the others are in their own objects
    bench, other = diverged_pair()
    named = bench.head.tables, bench.head.entries
    bench.objects.fail_next("get", "*table*")
    with pytest.raises(OSError, match="injected"):
        other.tiering.run_once(no_throttle, other.now_ms)
    with pytest.raises(DivergedError):
        other.tiering.run_once(no_throttle, other.now_ms)
    assert (bench.head.tables, bench.head.entries) == named


def test_a_copy_continues_after_a_full_disk_kept_it_from_noting_segments() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tiering.copy(no_throttle)
    before = bench.disk.after_kill()
    before.remove("t-0/logfs.tiered")  # a backup from before the copy
    other = TieredBench(disk=before, objects=bench.objects)
    other.disk.space_bytes = other.disk.used_bytes
    with pytest.raises(OSError, match="No space"):
        other.tiering.copy(no_throttle)
    other.disk.space_bytes = None
    text = text_of(other.log)
    other.tier_all()
    assert len(other.local_names(".log")) == 1
    assert text_of(other.log) == text
    assert len({entry.base_offset for entry in other.head.entries}) == len(other.head.entries)


def test_the_newest_records_of_a_quiet_topic_reach_the_store_after_segment_ms() -> None:
    bench = TieredBench({**TIERED, "segment.ms": "60000", "internal.segment.bytes": "1048576"})
    bench.fill(3)
    bench.tiering.seal(bench.now_ms + 59_000)
    assert not bench.tiering.has_work
    bench.now_ms += 61_000
    bench.tiering.seal(bench.now_ms)
    bench.tiering.run_once(no_throttle, bench.now_ms)
    assert bench.head.next_offset == bench.log.log_end_offset == 3
    # Nothing is left to seal: an empty segment stays active.
    bench.now_ms += 61_000
    bench.tiering.seal(bench.now_ms)
    assert len(bench.log.snapshot.segments) == 2


def test_a_topic_that_is_not_copied_is_not_sealed() -> None:
    for name, value in (("remote.log.copy.disable", "true"), ("remote.storage.enable", "false")):
        local = {"local.retention.bytes": "-2", "local.retention.ms": "-2"}
        bench = TieredBench({**TIERED, **local, "segment.ms": "60000", name: value})
        bench.write(b"one")
        bench.tiering.seal(bench.now_ms + 61_000)
        assert len(bench.log.snapshot.segments) == 1
