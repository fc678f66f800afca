"""What the log drops goes from the store as well: after a delay, and never what is still read."""

import errno
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from logfs.errors import InvalidConfigError
from logfs.log.remote.entries import TieredEntry
from logfs.services.retention.logs import apply_retention
from logfs.services.retention.trimming import trim
from logfs.services.tiering.removing import SHORTEST_DELAY_MS
from logfs.services.tiering.stores import OLD_MS, find_orphans
from tests.log.support import TP, text_of
from tests.remote.tiering import TIERED, Stop, TieredBench, no_throttle

LARGE = {**TIERED, "internal.segment.bytes": "1000"}


def later(bench: TieredBench) -> None:
    """Let the delay of a removal pass."""
    bench.now_ms += SHORTEST_DELAY_MS + 1


def objects(bench: TieredBench) -> list[str]:
    """The objects of segments."""
    return [key for key in bench.objects.objects if key.endswith((".log", ".indexes"))]


def test_retention_removes_segments_from_the_store_after_the_delay() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tier_all()
    before = len(objects(bench))
    bench.store.alter_topic("t", {"retention.bytes": "600"})
    deleted = apply_retention(bench.log, bench.now_ms)
    assert deleted.segments > 5
    bench.tiering.remove(bench.now_ms)
    assert len(objects(bench)) == before
    assert len(bench.head.doomed) == 2 * deleted.segments
    assert bench.head.start == bench.log.snapshot.start
    later(bench)
    bench.log.remove_due_files(bench.now_ms)
    bench.tiering.remove(bench.now_ms)
    assert len(objects(bench)) == before - 2 * deleted.segments
    assert not bench.head.doomed
    assert set(objects(bench)) == {k for e in bench.head.entries for k in keys_of(bench, e)}


def keys_of(bench: TieredBench, entry: TieredEntry) -> tuple[str, str]:
    place = bench.place
    return (
        place.log(entry.base_offset, entry.segment_id),
        place.indexes(entry.base_offset, entry.segment_id),
    )


def test_an_open_fixed_name_reads_on_after_its_segments_were_dropped() -> None:
    bench = TieredBench()
    text = bench.fill(40)
    bench.tier_all()
    snapshot = bench.log.snapshot
    bench.log.pin(snapshot.segments)
    trim(bench.log, bench.log.log_end_offset - 1, bench.now_ms)
    for _ in range(3):
        bench.tiering.remove(bench.now_ms)
        later(bench)
        bench.log.remove_due_files(bench.now_ms)
    assert text_of(SimpleNamespace(snapshot=snapshot)) == text  # type: ignore[arg-type]
    bench.log.unpin(snapshot.segments)
    bench.log.remove_due_files(bench.now_ms)
    bench.tiering.remove(bench.now_ms)
    assert len(objects(bench)) <= 2


@pytest.mark.parametrize("stop", [TieredBench.restart, TieredBench.kill, TieredBench.crash])
def test_a_trim_inside_a_tiered_segment_needs_no_request_at_the_next_start(stop: Stop) -> None:
    bench = TieredBench(LARGE)
    text = bench.fill(40)
    bench.tier_all()
    trim(bench.log, 7, bench.now_ms)
    start = bench.log.snapshot.start
    bench.objects.counts.clear()
    log = stop(bench)
    assert not bench.objects.counts
    assert log.snapshot.start == start
    assert text_of(log) == b"".join(text.splitlines(keepends=True)[7:])


def test_an_append_does_not_wait_for_a_trim_that_waits_for_the_store() -> None:
    bench = TieredBench(LARGE)
    bench.fill(40)
    bench.tier_all()
    seen = []

    def append(operation: str, key: str) -> None:
        bench.objects.before = None
        bench.write(b"while the trim waits")
        seen.append(operation)

    bench.objects.before = append
    trim(bench.log, 7, bench.now_ms)
    assert seen == ["get_range"]
    assert bench.log.log_start_offset == 7


def test_tiered_storage_cannot_be_switched_off_without_a_word_on_the_remote_data() -> None:
    bench = TieredBench()
    with pytest.raises(InvalidConfigError, match="It is invalid to disable remote storage"):
        bench.store.alter_topic("t", {"remote.storage.enable": "false"})


def test_switching_off_keeps_what_is_local_and_empties_the_store() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tier_all()
    text = bench.fill(20, first=40)
    bench.tiering.copy(no_throttle)
    first_local = min(bench.tier.local)
    kept = text.splitlines(keepends=True)[first_local - 40 :] if first_local > 40 else None
    changes = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    bench.store.alter_topic("t", changes)
    for _ in range(2):
        bench.tiering.run_once(no_throttle, bench.now_ms)
        later(bench)
        bench.log.remove_due_files(bench.now_ms)
    bench.tiering.run_once(no_throttle, bench.now_ms)
    assert bench.log.log_start_offset == first_local
    assert text_of(bench.log).endswith(b"".join(kept or [text]))
    assert not objects(bench)
    again = {"remote.storage.enable": "true", "remote.log.delete.on.disable": None}
    before = text_of(bench.log)
    bench.store.alter_topic("t", again)
    bench.tiering.run_once(no_throttle, bench.now_ms)
    bench.restart()
    assert text_of(bench.log) == before
    assert len(bench.head.entries) == len(bench.log.snapshot.segments) - 1
    assert len(bench.local_names(".log")) == 1


def test_a_deleted_topic_goes_from_the_store_and_one_of_its_name_is_another() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tier_all()
    old = bench.place
    bench.store.delete_topic("t", bench.now_ms)
    topics = bench.deleted_topics()
    topics.remove_due(bench.now_ms)
    assert bench.objects.objects[old.head]
    bench.store.create_topic("t", 1, {}, bench.now_ms)
    for _ in range(3):
        later(bench)
        bench.store.remove_due_files(bench.now_ms)
        topics.remove_due(bench.now_ms)
    assert not [key for key in bench.objects.objects if key.startswith(old.prefix)]
    assert [name for name, _ in bench.disk.list("") if name.startswith("t-")] == ["t-0"]
    assert bench.place != old


@pytest.mark.expect_log("of a deleted topic")
def test_a_topic_that_is_deleted_while_the_store_is_away_goes_later() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tier_all()
    prefix = bench.place.prefix
    bench.store.delete_topic("t", bench.now_ms)
    bench.objects.fail("get")
    later(bench)
    bench.store.remove_due_files(bench.now_ms)
    assert not bench.deleted_topics().remove_due(bench.now_ms)
    bench.store.close(bench.now_ms)
    bench.objects.heal()
    bench.store = bench.open()
    topics = bench.deleted_topics()
    for _ in range(3):
        later(bench)
        topics.remove_due(bench.now_ms)
    assert not [key for key in bench.objects.objects if key.startswith(prefix)]
    assert [name for name, _ in bench.disk.list("") if name.startswith("t-")] == []


@pytest.mark.expect_log("of a deleted topic")
def test_a_deleted_topic_goes_after_a_change_of_its_head_that_failed() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tier_all()
    prefix = bench.place.prefix
    bench.store.delete_topic("t", bench.now_ms)
    later(bench)
    bench.store.remove_due_files(bench.now_ms)
    topics = bench.deleted_topics()
    bench.objects.before = _fail_second_swap(bench)
    assert not topics.remove_due(bench.now_ms)
    bench.objects.before = None
    for _ in range(3):
        later(bench)
        topics.remove_due(bench.now_ms)
    assert not [key for key in bench.objects.objects if key.startswith(prefix)]


def test_switching_off_continues_after_a_change_of_the_head_that_failed() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tier_all()
    changes = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    bench.store.alter_topic("t", changes)
    bench.objects.fail_next("swap")
    with pytest.raises(OSError, match="injected"):
        bench.tiering.run_once(no_throttle, bench.now_ms)
    for _ in range(2):
        bench.tiering.run_once(no_throttle, bench.now_ms)
        later(bench)
        bench.log.remove_due_files(bench.now_ms)
    bench.tiering.run_once(no_throttle, bench.now_ms)
    assert not objects(bench)


def _fail_second_swap(bench: TieredBench) -> Callable[[str, str], None]:
    """The swap that fences succeeds, the next one fails."""
    swaps = 0

    def before(operation: str, _: str) -> None:
        nonlocal swaps
        if operation == "swap":
            swaps += 1
            if swaps == 2:
                raise OSError(errno.EIO, "injected")

    return before


def test_a_restored_topic_reads_from_the_store() -> None:
    bench = TieredBench()
    text = bench.fill(40)
    bench.tier_all()
    bench.store.delete_topic("t", bench.now_ms)
    bench.store.undelete_topic("t", bench.now_ms)
    assert text_of(bench.store.partition(*TP)) == text


def test_orphans_are_found_when_they_are_old() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.objects.fail_next("swap")
    bench.tiering.begin()
    with pytest.raises(OSError, match="injected"):
        bench.tiering.copy(no_throttle)
    assert objects(bench)
    bench.tiering.copy(no_throttle)
    now_ms = bench.objects.now_ms
    assert find_orphans(bench.objects, bench.place, now_ms + OLD_MS) == []
    orphans = {stat.key for stat in find_orphans(bench.objects, bench.place, now_ms + OLD_MS + 1)}
    named = {key for entry in bench.head.entries for key in keys_of(bench, entry)}
    assert orphans == set(objects(bench)) - named
    assert orphans
