"""A compacted topic whose journal outlives its machine."""

import random

import pytest

from logfs.records.record import Record
from logfs.services.compaction.manual import compact_now
from logfs.services.journaling import writing
from logfs.services.journaling.kept import MOST_KEPT
from logfs.services.journaling.objects import list_objects
from logfs.types import View
from tests.fakestate import Stopped
from tests.log.compaction import tools
from tests.log.support import records_in, text_of
from tests.remote.journals import JournalBench

COMPACTED = {
    "cleanup.policy": "compact",
    "logfs.remote.freshness": "true",
    "internal.segment.bytes": "400",
    "index.interval.bytes": "0",
    "min.cleanable.dirty.ratio": "0",
    "file.delete.delay.ms": "0",
}


def put(bench: JournalBench, first: int, count: int, keys: int = 7) -> None:
    """Append records of a few keys, each in its own batch."""
    for number in range(first, first + count):
        key, text = b"k%d" % (number % keys), b"value %d" % number
        bench.append([Record(0, bench.now_ms, key, text)])
    bench.log.flush()


def compact(bench: JournalBench, *, roll: bool = False) -> None:
    compact_now(bench.log, bench.now_ms, tools(), roll=roll)
    bench.log.remove_due_files(bench.now_ms)


def records(bench: JournalBench) -> list[Record]:
    """The records of the log."""
    data = b"".join(
        bench.file(segment.name.rpartition("/")[2])[: bench.log.snapshot.end_of(number)[2]]
        for number, segment in enumerate(bench.log.snapshot.segments)
    )
    return records_in(data)


def same(bench: JournalBench, other: JournalBench) -> None:
    assert text_of(other.log) == text_of(bench.log)
    assert text_of(other.log, View.JSONL) == text_of(bench.log, View.JSONL)
    assert records(other) == records(bench)
    assert other.log.log_end_offset == bench.log.log_end_offset
    assert other.log.config == bench.log.config
    ours, theirs = bench.log.snapshot.segments, other.log.snapshot.segments
    assert [one.base_offset for one in theirs] == [one.base_offset for one in ours]
    assert [one.bases for one in theirs] == [one.bases for one in ours]


@pytest.mark.parametrize("roll", [False, True])
def test_a_compacted_topic_has_the_same_bytes_on_another_machine(roll: bool) -> None:
    bench = JournalBench(COMPACTED)
    put(bench, 0, 30)
    bench.send()
    compact(bench, roll=roll)
    put(bench, 30, 3)
    bench.send()
    other, done = bench.promoted()
    assert not done.problems
    same(bench, other)
    put(other, 33, 20)
    compact(other, roll=roll)
    other.send()
    same(other, other.promoted("c")[0])


def test_a_compacted_topic_stays_here_unless_it_was_asked_for() -> None:
    properties = {**COMPACTED}
    del properties["logfs.remote.freshness"]
    bench = JournalBench(properties)
    put(bench, 0, 30)
    bench.send()
    assert not list_objects(bench.objects)


@pytest.mark.parametrize("seed", range(20))
def test_compactions_and_rounds_in_any_order_lose_nothing_that_was_sent(seed: int) -> None:
    random_ = random.Random(seed)
    bench, number, machine = JournalBench(COMPACTED), 0, 0
    sent = -1
    for _ in range(40):
        match random_.choice(["put", "put", "send", "compact", "roll", "kill", "lose"]):
            case "put":
                put(bench, number, count := random_.randrange(1, 9))
                number += count
            case "send":
                bench.send()
                sent = bench.log.log_end_offset
            case "compact":
                compact(bench)
            case "roll":
                compact(bench, roll=True)
            case "kill":
                bench.kill()
            case "lose" if machine < 6 and sent >= 0:
                machine += 1
                latest = {one.key: one for one in records(bench) if one.offset < sent}
                bench, _ = bench.promoted("abcdefgh"[machine])
                assert bench.log.log_end_offset == sent
                there = {one.key: one for one in records(bench)}
                assert there.keys() >= latest.keys()
                for key, one in latest.items():
                    assert there[key].offset >= one.offset
    bench.send()
    same(bench, bench.promoted("z")[0])


def test_what_compaction_has_replaced_holds_no_objects() -> None:
    bench = JournalBench(COMPACTED)
    for number in range(2 * MOST_KEPT):
        put(bench, 5 * number, 5)
        bench.send()
        if number % 9 == 8:
            compact(bench)
    for _ in range(2):  # the second one merges segments
        put(bench, 1000, 5)
        compact(bench, roll=True)
    bench.send()
    bench.send()
    segments = len(bench.log.snapshot.segments)
    assert segments < 6
    assert len(list_objects(bench.objects)) <= 2 * segments
    same(bench, bench.promoted()[0])


def test_large_segments_are_in_few_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SMALL_BYTES", 100)
    bench = JournalBench({**COMPACTED, "internal.segment.bytes": "4000"})
    for number in range(10 * MOST_KEPT):
        put(bench, number, 1, keys=10 * MOST_KEPT)
        bench.send()
    segments = len(bench.log.snapshot.segments)
    assert segments > 8
    assert len(list_objects(bench.objects)) < MOST_KEPT + 3 * segments
    same(bench, bench.promoted()[0])


@pytest.mark.expect_log("a compacted log has at most")
def test_a_compacted_log_that_is_too_large_is_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "MOST_COMPACTED_BYTES", 500)
    bench = JournalBench(COMPACTED)
    put(bench, 0, 30)
    assert bench.journal.round([bench.log], bench.now_ms) == []
    assert bench.journal.round([bench.log], bench.now_ms) == []
    assert bench.log.state.remote is not None
    assert "a compacted log has at most" in str(bench.log.state.remote.problem)


def test_a_large_compacted_log_is_sent_in_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_PENDING_BYTES", 1000)
    bench = JournalBench(COMPACTED)
    put(bench, 0, 100)
    rounds = 1
    while bench.journal.round([bench.log], bench.now_ms) == []:
        rounds += 1
    assert 5 < rounds < 20
    same(bench, bench.promoted()[0])


@pytest.mark.allow_log("the disk had lost", "no whole batch", "the base offset of the batch")
def test_a_power_cut_brings_no_replaced_segment_back() -> None:
    for seed in range(20):
        bench = JournalBench(COMPACTED)
        put(bench, 0, 60)
        bench.send()
        for _ in range(2):
            put(bench, 60, 9)
            compact(bench, roll=True)
        known = records(bench)
        bench.crash_and_heal(seed)
        assert records(bench) == known
        bench.send()
        same(bench, bench.promoted()[0])


@pytest.mark.parametrize("after", [False, True])
def test_a_stop_at_any_request_leaves_a_whole_log(after: bool) -> None:
    change = 0
    while True:
        bench, sent = JournalBench(COMPACTED), 0
        (bench.objects.stop_after if after else bench.objects.stop_before)(change)
        try:
            for number in range(4):
                put(bench, 8 * number, 8)
                bench.send()
                sent = bench.log.log_end_offset
                compact(bench, roll=number % 2 == 0)
            bench.send()
            break
        except Stopped:
            change += 1
        bench.objects.heal()
        if sent:
            known = records(bench)
            found = records(bench.promoted()[0])
            assert {one.key for one in found} == {one.key for one in known if one.offset < 8 * 99}
            assert found[-1].offset >= sent - 1
    assert change > 6
