"""The journal of a data directory: another machine continues with all that was sent."""

import random
from uuid import UUID

import pytest

from logfs.errors import (
    CorruptIndexError,
    FencedError,
    RemoteStorageError,
    UnsupportedFormatError,
)
from logfs.log.checkpoints import EpochEntry
from logfs.log.host import Host
from logfs.log.lines.writer import LineWriter
from logfs.log.segments.snapshot import LogPoint
from logfs.records.compression import decompressed_limit, limit_decompressed
from logfs.services.journaling import writing
from logfs.services.journaling.healing import may_have_lost
from logfs.services.journaling.kept import FENCE_MS, MOST_KEPT
from logfs.services.journaling.objects import (
    ROOT,
    JournalObject,
    ObjectName,
    PartitionFacts,
    PartitionId,
    Row,
    decode_object,
    encode_object,
    list_objects,
    read_object,
)
from logfs.services.journaling.root import read_root
from logfs.services.journaling.writing import PAUSE_MS
from logfs.types import Positions, View
from tests.fakes import FakeDisk
from tests.fakestate import Stopped
from tests.log.support import text_of
from tests.remote.fakestore import FakeStore
from tests.remote.journals import JournalBench
from tests.remote.tiering import TIERED, no_throttle

LONG = {**TIERED, "internal.segment.bytes": "100000"}
"""Segments that are never full here."""


def write(bench: JournalBench, topic: str, line: bytes) -> None:
    LineWriter(bench.store.partition(topic, 0), View.TEXT).write(line, bench.now_ms)


def test_records_that_are_in_no_segment_are_there_after_a_promotion() -> None:
    bench = JournalBench(LONG)
    text = bench.fill(10)
    bench.send()
    text += bench.fill(10, first=10)
    bench.send()
    end = bench.log.snapshot.end
    other, done = bench.promoted()
    assert text_of(other.log) == text
    assert other.log.snapshot.end == end
    assert (done.segments, done.end_bytes) == (0, end.file_size)
    assert done.complete_ms == bench.now_ms


def test_sealed_segments_stay_in_the_store_and_the_end_comes_from_the_journal() -> None:
    bench = JournalBench()
    text = bench.fill(30)
    bench.tier_all()
    text += bench.fill(7, first=30)
    bench.send()
    other, done = bench.promoted()
    assert text_of(other.log) == text
    assert done.segments > 5
    assert other.log.snapshot.start == bench.log.snapshot.start
    assert other.log.snapshot.end == bench.log.snapshot.end
    assert len(other.local_names(".log")) == len(bench.log.snapshot.segments) - done.segments
    other.tiering.copy(no_throttle)  # it owns the heads
    assert text_of(other.restart()) == text


@pytest.mark.allow_log("fenced")
def test_the_directory_before_is_fenced_and_what_it_appends_later_is_not_there() -> None:
    bench = JournalBench()
    text = bench.fill(10)
    bench.tiering.copy(no_throttle)
    bench.send()
    other, _ = bench.promoted()
    bench.fill(5, first=10)
    with pytest.raises(FencedError, match="another data directory or a copy"):
        bench.send()
    with pytest.raises(FencedError):
        bench.tiering.copy(no_throttle)
    text += other.fill(6, first=20)
    other.send()
    third, _ = other.promoted("c")
    assert text_of(third.log) == text
    bench.restart()
    with pytest.raises(FencedError, match="another data directory or a copy of this one writes"):
        bench.send()


def test_a_log_continues_in_a_leader_epoch_that_no_owner_had() -> None:
    bench, epochs = JournalBench(LONG), []
    for machine in "bcd":
        bench.fill(3)
        bench.send()
        bench, _ = bench.promoted(machine)
        epochs.append(bench.log.state.epochs.latest)
        bench.fill(1)
        assert bench.log.last_epoch == epochs[-1]
        assert bench.log.state.epochs.entries[0].start_offset == 0
    assert epochs == sorted(set(epochs))
    assert epochs[0] > 0


def test_a_topic_without_a_sealed_segment_is_there_with_its_settings() -> None:
    bench = JournalBench({**LONG, "retention.bytes": "12345"})
    text = bench.fill(3)
    bench.send()
    assert bench.place.head not in bench.objects.objects
    other, _ = bench.promoted()
    assert text_of(other.log) == text
    assert other.log.config == bench.log.config
    assert other.log.topic_id == bench.log.topic_id


def test_a_topic_without_records_is_there_with_its_settings() -> None:
    bench = JournalBench({**LONG, "retention.bytes": "12345"})
    bench.store.create_topic("kept", 1, LONG, bench.now_ms)
    for number in range(3 * MOST_KEPT):
        write(bench, "kept", b"kept %d\n" % number)
        bench.send()
    assert len(list_objects(bench.objects)) <= MOST_KEPT + 2
    other, _ = bench.promoted()
    assert other.log.config == bench.log.config
    assert other.log.topic_id == bench.log.topic_id
    text = other.fill(3)
    other.send()
    assert text_of(other.promoted("c")[0].log) == text


def test_a_deleted_topic_does_not_come_back() -> None:
    bench = JournalBench(LONG)
    bench.store.create_topic("kept", 1, LONG, bench.now_ms)
    write(bench, "kept", b"kept\n")
    bench.fill(3)
    bench.send()
    bench.store.delete_topic("t", bench.now_ms)
    bench.send()
    bench.send()
    disk = FakeDisk()
    done = bench.promotion("b", disk).run()
    assert [one.topic for one in done.partitions] == ["kept"]
    assert not disk.exists("t-0")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_topic_that_was_restored_is_there(restarts: bool) -> None:
    bench = JournalBench(LONG)
    bench.store.create_topic("kept", 1, LONG, bench.now_ms)
    text = bench.fill(3)
    bench.send()
    bench.store.delete_topic("t", bench.now_ms)
    for number in range(2):
        write(bench, "kept", b"kept %d\n" % number)
        bench.send()
    bench.store.undelete_topic("t", bench.now_ms)
    if restarts:
        bench.restart()
    bench.send()
    write(bench, "kept", b"kept\n")
    bench.send()
    assert text_of(bench.promoted()[0].log) == text


def test_objects_whose_rows_are_all_in_segments_are_deleted() -> None:
    bench = JournalBench()
    for n in range(10):
        bench.fill(4, first=4 * n)
        bench.send()
    bench.tiering.copy(no_throttle)
    bench.send()
    live = list_objects(bench.objects)
    assert len(live) <= 3


def test_a_quiet_partition_holds_no_old_objects() -> None:
    bench = JournalBench(LONG)
    bench.store.create_topic("busy", 1, TIERED, bench.now_ms)
    text = bench.fill(3)
    for n in range(3 * MOST_KEPT):
        write(bench, "busy", b"busy %03d\n" % n)
        bench.send()
    assert len(list_objects(bench.objects)) <= MOST_KEPT + 2
    other, _ = bench.promoted()
    assert text_of(other.log) == text


def test_a_partition_with_much_to_send_is_sealed_once_and_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "MOST_PENDING_BYTES", 1000)
    bench = JournalBench(LONG)
    text = bench.fill(30)
    for number in range(10):  # while nothing is copied
        bench.send()
        text += bench.fill(1, first=30 + number)
    assert len(bench.log.snapshot.segments) == 2
    bench.tiering.copy(no_throttle)
    bench.send()
    other, done = bench.promoted()
    assert text_of(other.log) == text
    assert done.segments == 1


@pytest.mark.parametrize("ms", [PAUSE_MS + 1, FENCE_MS + 1])
def test_a_writer_that_was_paused_reads_the_root_before_it_continues(ms: int) -> None:
    bench = JournalBench(LONG)
    text = bench.fill(3)
    bench.send()
    other, _ = bench.promoted()
    for n in range(4):
        other.fill(1, first=100 + n)
        other.now_ms += FENCE_MS
        other.send()  # fences of a week ago go
    bench.now_ms += ms
    bench.fill(3, first=50)
    with pytest.raises(FencedError):
        bench.send()
    assert text in text_of(other.promoted("c")[0].log)


def test_lost_answers_and_failures_of_each_request_lose_nothing() -> None:
    for operation in ("create", "swap", "get", "delete", "list_level"):
        for is_lost in (False, True):
            bench = JournalBench()
            text = bench.fill(5)
            fail = bench.objects.lose_reply_of if is_lost else bench.objects.fail_next
            for n in range(6):
                fail(operation, "logfs-journal/*")
                for _ in range(3):
                    try:
                        bench.send()
                        break
                    except OSError:
                        continue
                text += bench.fill(3, first=5 + 3 * n)
                bench.tiering.copy(no_throttle)
            bench.objects.heal()
            bench.send()
            assert text_of(bench.promoted()[0].log) == text


def stops(*, promotes: bool) -> list[tuple[int, bool]]:
    """The changes of the store of a schedule at which it can be stopped: before, and after."""
    bench = JournalBench()
    before = sum(bench.objects.counts[one] for one in ("create", "swap", "put", "delete"))
    assert before == 0
    schedule(bench, [])
    if promotes:
        bench.objects.counts.clear()
        bench.promoted()
    counts = bench.objects.counts
    changes = sum(counts[one] for one in ("create", "swap", "put", "delete"))
    return [(n, after) for n in range(changes) for after in (False, True)]


def schedule(bench: JournalBench, sent: list[bytes]) -> None:
    """Write, send, copy; ``sent`` has the text of each complete round."""
    text = b""
    for n in range(4):
        text += bench.fill(6, first=6 * n)
        bench.send()
        sent.append(text)
        bench.tiering.copy(no_throttle)
    bench.send()


@pytest.mark.parametrize(("change", "after"), stops(promotes=False))
def test_a_daemon_that_dies_at_a_request_loses_no_complete_round(change: int, after: bool) -> None:
    bench, sent = JournalBench(), [b""]
    (bench.objects.stop_after if after else bench.objects.stop_before)(change)
    with pytest.raises(Stopped):
        schedule(bench, sent)
    bench.objects.heal()
    if not sent[-1]:
        return  # nothing is sent yet that could be promoted
    there = text_of(bench.promoted()[0].log)
    assert there.startswith(sent[-1])
    assert text_of(bench.log).startswith(there)


@pytest.mark.parametrize(("change", "after"), stops(promotes=False))
def test_a_daemon_that_is_started_again_continues_its_journal(change: int, after: bool) -> None:
    bench, sent = JournalBench(), [b""]
    (bench.objects.stop_after if after else bench.objects.stop_before)(change)
    with pytest.raises(Stopped):
        schedule(bench, sent)
    bench.objects.heal()
    bench.kill()
    text = text_of(bench.log) + bench.fill(3, first=90)
    bench.send()
    bench.tiering.copy(no_throttle)
    bench.send()
    assert text_of(bench.promoted()[0].log) == text


@pytest.mark.parametrize(("change", "after"), stops(promotes=True))
def test_a_promotion_that_dies_at_a_request_is_completed_by_the_same(
    change: int, after: bool
) -> None:
    bench, sent = JournalBench(), [b""]
    schedule(bench, sent)
    disk = FakeDisk()
    (bench.objects.stop_after if after else bench.objects.stop_before)(change)
    with pytest.raises(Stopped):
        bench.promotion("b", disk).run()
    bench.objects.heal()
    bench.promotion("b", disk).run()
    other = JournalBench(machine="b", disk=disk, objects=bench.objects)
    assert text_of(other.log) == sent[-1]
    other.fill(3, first=50)
    other.send()
    other.tiering.copy(no_throttle)


def test_of_two_promotions_one_owns_the_store() -> None:
    bench, sent = JournalBench(), [b""]
    schedule(bench, sent)
    first, _ = bench.promoted("b")
    second, _ = bench.promoted("c")
    first.fill(2, first=60)
    with pytest.raises((FencedError, RemoteStorageError)):
        first.send()
    second.fill(2, first=70)
    second.send()


@pytest.mark.allow_log("the disk had lost", "no whole batch", "the base offset of the batch")
@pytest.mark.parametrize("is_large", [False, True])
def test_a_power_cut_loses_nothing_that_was_sent(is_large: bool) -> None:
    healed = 0
    for seed in range(40):
        bench = JournalBench(LONG if is_large else TIERED)
        bench.write(*(b"line %d" % n for n in range(20)))
        bench.send()
        text, end = text_of(bench.log), bench.log.snapshot.end
        bench.write(b"not sent")
        healed += bench.crash_and_heal(seed)
        assert text_of(bench.log) in {text, text + b"not sent\n"}
        assert bench.log.snapshot.end.positions >= end.positions
        bench.write(b"more")
        text = text_of(bench.log)
        bench.send()
        assert text_of(bench.promoted()[0].log) == text
    assert healed


def test_a_start_after_a_kill_asks_no_store_for_records() -> None:
    bench = JournalBench(LONG)
    bench.write(b"one", b"two")
    bench.disk.kill()
    assert not may_have_lost(bench.disk, Host(bench.boot, lambda: bytes(16)))


def test_records_of_the_log_replace_others_that_the_journal_has() -> None:
    bench = JournalBench(LONG)
    bench.write(b"one", b"two")
    bench.send()
    bench.log.truncate_to(1, bench.now_ms)
    bench.write(b"other")
    bench.send()
    assert text_of(bench.promoted()[0].log) == b"one\nother\n"


@pytest.mark.parametrize("seed", range(40))
def test_machines_that_die_one_after_the_other(seed: int) -> None:
    random_ = random.Random(seed)
    bench, machine = JournalBench({**TIERED, "internal.segment.bytes": "400"}), 0
    text = sent = b""
    number = 0
    for _ in range(60):
        match random_.choice(["write", "write", "send", "copy", "drop", "roll", "kill", "lose"]):
            case "write":
                count = random_.randrange(1, 5)
                text += bench.fill(count, first=number)
                number += count
            case "send":
                bench.send()
                sent = text
            case "copy":
                bench.tiering.copy(no_throttle)
            case "drop":
                bench.tier_all()
            case "roll":
                bench.log.roll(bench.now_ms)
            case "kill":
                bench.kill()
            case "lose" if machine < 6 and sent:
                machine += 1
                bench, _ = bench.promoted("abcdefgh"[machine])
                there = text_of(bench.log)
                assert there.startswith(sent)
                assert text.startswith(there)
                text = sent = there
        assert text_of(bench.log) == text


def test_a_damaged_object_is_refused_and_named() -> None:
    place = LogPoint(5, Positions(1, 2, 3))
    facts = PartitionFacts(b"g" * 16, place, {"a": "b"})
    row = Row("t", PartitionId(UUID(int=7), 3), *place, 1, 0, 4, 9, True, [EpochEntry(2, 1)], facts)
    one = JournalObject("n", 17, [row, row._replace(facts=None)], b"12345678",
                        [PartitionId(UUID(int=9), 0)])  # fmt: skip
    data = encode_object(one)
    assert decode_object(data, "x")._replace(payload=bytes(one.payload)) == one
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises((CorruptIndexError, UnsupportedFormatError), match=r"^x: "):
            decode_object(bytes(damaged), "x")


def test_a_damaged_object_costs_what_is_in_it_and_what_follows_it() -> None:
    bench = JournalBench(LONG)
    texts = []
    for n in range(3):
        texts.append(bench.fill(3, first=3 * n))
        bench.send()
    bench.objects.damage(ObjectName(1, 1).key, 20)
    other, done = bench.promoted()
    assert text_of(other.log) == texts[0]
    assert len(done.problems) == 1
    assert ObjectName(1, 1).key in done.problems[0]


def test_a_store_without_a_journal_is_promoted_up_to_its_segments() -> None:
    bench = JournalBench()
    text = bench.fill(30)
    bench.tiering.copy(no_throttle)
    other, done = bench.promoted()
    there = text_of(other.log)
    assert done.complete_ms == 0
    assert text.startswith(there)
    assert len(there) > len(text) // 2


def test_an_empty_store_cannot_be_promoted() -> None:
    bench = JournalBench(objects=FakeStore())
    with pytest.raises(RemoteStorageError, match="no logs that could be continued"):
        bench.promoted()


def test_a_root_that_was_deleted_is_made_again_with_all_ends() -> None:
    bench = JournalBench(LONG)
    text = bench.fill(3)
    bench.send()
    del bench.objects.objects[ROOT]
    bench.kill()
    text += bench.fill(3, first=3)
    bench.send()
    found = read_root(bench.objects)
    assert found is not None
    assert found[0].epoch > 1
    assert text_of(bench.promoted()[0].log) == text
    assert read_object(bench.objects, ObjectName(1, 0)).rows


def test_a_changed_setting_and_a_moved_start_are_there_without_new_records() -> None:
    bench = JournalBench(LONG)
    bench.fill(10)
    bench.send()
    bench.store.alter_topic("t", {"retention.bytes": "4711"})
    bench.log.advance_log_start_offset(4, bench.now_ms)
    bench.send()
    before = bench.objects.counts["create"]
    bench.send()
    assert bench.objects.counts["create"] == before
    other, _ = bench.promoted()
    assert other.log.config.retention_bytes == 4711
    assert other.log.log_start_offset == 4


def test_a_limit_of_batches_does_not_apply_to_the_journal() -> None:
    bench = JournalBench(LONG)
    bench.write(*(b"%02d" % n + b"x" * 80_000 for n in range(20)))
    bench.send()
    limit = decompressed_limit()
    limit_decompressed(1 << 20)
    try:
        other, done = bench.promoted()
        assert text_of(other.log) == text_of(bench.log)
        assert not done.problems
    finally:
        limit_decompressed(limit)


def test_a_promotion_on_a_full_disk_is_completed_when_there_is_room() -> None:
    failed = 0
    for room in range(0, 6000, 250):
        bench, sent = JournalBench(), [b""]
        schedule(bench, sent)
        disk = FakeDisk()
        disk.space_bytes = room
        try:
            bench.promotion("b", disk).run()
        except OSError:
            failed += 1
        disk.space_bytes = 1 << 30
        assert not bench.promotion("b", disk).run().problems
        other = JournalBench(machine="b", disk=disk, objects=bench.objects)
        assert text_of(other.log) == sent[-1]
    assert failed > 3
