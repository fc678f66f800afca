"""A reader that follows the journal of a store: what it shows, and when."""

import contextlib
import random

import pytest

from logfs.errors import RemoteStorageError
from logfs.services.journaling import writing
from logfs.services.journaling.kept import MOST_KEPT
from logfs.services.journaling.polling import PollTimes
from logfs.services.packing.packer import pack_now
from logfs.services.retention.trimming import trim
from tests.fakes import FakeDisk
from tests.fakestate import Stopped
from tests.log.compaction import tools
from tests.log.support import text_of
from tests.remote.fakestore import FakeStore
from tests.remote.journals import JournalBench
from tests.remote.standbys import Reader
from tests.remote.test_bucket import Reading
from tests.remote.test_journal import LONG, write
from tests.remote.tiering import TIERED, no_throttle


def reader_of(bench: JournalBench) -> Reader:
    return Reader(bench.objects, bench.now_ms)


def assert_same(reader: Reader, bench: JournalBench) -> None:
    """The log of the reader is that of the owner."""
    log, origin = reader.log(), bench.log
    assert text_of(log) == text_of(origin)
    assert log.snapshot.end.positions == origin.snapshot.end.positions
    assert log.snapshot.end.offset == origin.snapshot.end.offset
    assert log.snapshot.start == origin.snapshot.start
    assert_whole(reader)


class Tailing:
    """A program that reads on after each look."""

    def __init__(self, reader: Reader) -> None:
        self.data = b""
        reading = Reading(reader.log())

        def read_on() -> None:
            self.data += reading.rest()

        reader.after_each_look = read_on
        read_on()


def assert_whole(reader: Reader) -> None:
    """Nothing that was shown is gone."""
    assert not list(reader.log().losses)
    assert reader.log().snapshot.truncations == 0


def test_a_reader_sees_what_only_the_journal_has() -> None:
    bench = JournalBench(LONG)
    bench.fill(10)
    bench.send()
    reader = reader_of(bench)
    assert_same(reader, bench)
    for first in range(10, 50, 10):
        bench.fill(10, first=first)
        bench.send()
        reader.look()
        assert_same(reader, bench)


def test_segments_that_are_sealed_and_copied_change_nothing_for_a_reader() -> None:
    bench = JournalBench()
    bench.fill(10)
    bench.send()
    reader = reader_of(bench)
    for first in range(10, 100, 10):
        bench.fill(10, first=first)
        bench.send()
        reader.look()
        assert_same(reader, bench)
        bench.tier_all()
        bench.send()
        reader.look()
        assert_same(reader, bench)
    local = [name for name, _ in reader.disk.list("t-0") if name.endswith(".log")]
    assert len(local) == 1


class Drill:
    """An owner, one after the other, and a reader, which is looked at now and then.

    Attributes:
        text: What the owner has.
        sent: What it has sent.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = JournalBench({**TIERED, "internal.segment.bytes": "400"})
        self.machines = list("gfedcb")
        self.lines = 0
        self.text = self.bench.fill(1, first=10_000)
        self.send()
        self.sent = self.text
        self.reader = reader_of(self.bench)

    def write(self) -> None:
        count = self.random.randrange(1, 5)
        self.text += self.bench.fill(count, first=self.lines)
        self.lines += count

    def send(self) -> None:
        self.bench.send()
        self.sent = self.text

    def copy(self) -> None:
        self.bench.tiering.copy(no_throttle)

    def drop(self) -> None:
        self.bench.tier_all()

    def roll(self) -> None:
        self.bench.log.roll(self.bench.now_ms)

    def kill(self) -> None:
        self.bench.kill()

    def lose(self) -> None:
        if self.machines:
            self.bench, _ = self.bench.promoted(self.machines.pop())
            self.text = self.sent = text_of(self.bench.log)

    def mount_again(self) -> None:
        self.reader = reader_of(self.bench)
        assert text_of(self.reader.log()).startswith(self.sent)

    def glance(self) -> None:
        self.reader.look(0.3)

    def look(self) -> None:
        self.reader.look(70)
        self.reader.look(70)
        assert text_of(self.reader.log()).startswith(self.sent)


@pytest.mark.parametrize("seed", range(60))
def test_a_reader_follows_one_owner_after_the_other(seed: int) -> None:
    drill, shown = Drill(seed), b""
    actions = [drill.write, drill.write, drill.send, drill.send, drill.copy, drill.drop, drill.roll,
               drill.kill, drill.lose, drill.look, drill.glance, drill.mount_again]  # fmt: skip
    for _ in range(80):
        drill.random.choice(actions)()
        there = text_of(drill.reader.log())
        assert there.startswith(shown)
        assert drill.text.startswith(there)
        assert_whole(drill.reader)
        shown = there


@pytest.mark.allow_log("what was known is shown")
@pytest.mark.parametrize("operation", ["get", "list_level", "stat", "get_range"])
def test_a_store_that_fails_at_a_request_delays_a_reader_and_loses_nothing(operation: str) -> None:
    bench = JournalBench()
    bench.fill(10)
    bench.send()
    reader = reader_of(bench)
    for number in range(1, 30):
        bench.fill(5, first=10 * number)
        bench.send()
        if number % 3 == 0:
            bench.tier_all()
            bench.send()
        bench.objects.fail_next(operation)
        reader.look(70)
        bench.objects.heal()
        reader.look(70)
        reader.look(70)
        assert_same(reader, bench)


@pytest.mark.allow_log("what was known is shown")
def test_a_store_that_is_away_leaves_what_was_shown_and_says_so() -> None:
    bench = JournalBench(LONG)
    text = bench.fill(10)
    bench.send()
    reader = reader_of(bench)
    bench.objects.fail("get")
    reader.look()
    assert text_of(reader.log()) == text
    assert reader.rounds.error is not None
    bench.objects.heal()
    text += bench.fill(3, first=10)
    bench.send()
    reader.look()
    assert text_of(reader.log()) == text
    assert reader.rounds.error is None


def test_an_idle_reader_sends_one_request_a_round_however_many_topics_there_are() -> None:
    bench = JournalBench()
    for number in range(20):
        bench.store.create_topic(f"topic-{number}", 1, TIERED, bench.now_ms)
        write(bench, f"topic-{number}", b"line\n")
    bench.fill(30)
    bench.tier_all()
    bench.send()
    reader = reader_of(bench)
    reader.look(70)
    bench.objects.counts.clear()
    for _ in range(100):
        reader.look(0.1)
    assert bench.objects.counts.total() <= 100 + 3
    assert bench.objects.counts["list_level"] <= 2


def test_a_topic_that_is_made_later_appears_and_a_deleted_one_goes() -> None:
    bench = JournalBench(LONG)
    bench.fill(3)
    bench.send()
    reader = reader_of(bench)
    bench.store.create_topic("later", 2, LONG, bench.now_ms)
    write(bench, "later", b"line\n")
    bench.send()
    reader.look()
    assert text_of(reader.log("later")) == b"line\n"
    log = reader.log()
    bench.store.delete_topic("t", bench.now_ms)
    bench.send()
    reader.look()
    assert "t" not in reader.store.topics()
    assert log.is_deleted
    bench.store.create_topic("t", 1, LONG, bench.now_ms)
    write(bench, "t", b"another one\n")
    bench.send()
    reader.look()
    assert text_of(reader.log()) == b"another one\n"
    reader.look(200)
    reader.look(200)
    assert not [name for name, _ in reader.disk.list("") if name.endswith("-delete")]


def test_a_topic_that_gets_another_name_has_it_for_a_reader() -> None:
    bench = JournalBench(LONG)
    text = bench.fill(3)
    bench.send()
    reader = reader_of(bench)
    bench.store.rename_topic("t", "renamed", bench.now_ms)
    write(bench, "renamed", b"another\n")
    bench.send()
    reader.look()
    assert list(reader.store.topics()) == ["renamed"]
    assert text_of(reader.log("renamed")) == text + b"another\n"
    other = reader.promote("b")
    assert text_of(other.store.partition("renamed", 0)) == text + b"another\n"


def test_a_topic_that_is_deleted_and_restored_again_and_again_is_there() -> None:
    bench = JournalBench(LONG)
    bench.store.create_topic("kept", 1, LONG, bench.now_ms)
    text = bench.fill(3)
    bench.send()
    reader = reader_of(bench)
    for number in range(3):
        bench.store.delete_topic("t", bench.now_ms)
        write(bench, "kept", b"kept %d\n" % number)
        bench.send()
        reader.look()
        assert list(reader.store.topics()) == ["kept"]
        bench.store.undelete_topic("t", bench.now_ms)
        bench.send()
        reader.look()
        assert text_of(reader.log()) == text


def test_a_topic_that_is_in_no_journal_is_followed_by_its_head() -> None:
    bench = JournalBench({**TIERED, "logfs.remote.freshness": "false"})
    bench.store.create_topic("kept", 1, LONG, bench.now_ms)
    write(bench, "kept", b"kept\n")
    bench.send()
    text = bench.fill(30)
    bench.tier_all()
    reader = reader_of(bench)
    there = text_of(reader.log())
    assert there
    text += bench.fill(30, first=30)
    bench.tier_all()
    reader.look(70)
    assert len(text_of(reader.log())) > len(there)
    assert text.startswith(text_of(reader.log()))


def test_a_log_start_that_moves_is_followed() -> None:
    bench = JournalBench()
    bench.fill(40)
    bench.tier_all()
    bench.fill(3, first=40)
    bench.send()
    reader = reader_of(bench)
    for offset in (5, 17, 41):
        trim(bench.log, offset, bench.now_ms, at_once=True)
        bench.tiering.remove(bench.now_ms)
        bench.send()
        reader.look()
        assert reader.log().log_start_offset == offset
        assert_same(reader, bench)


def test_a_burst_that_goes_past_the_journal_is_there_once_it_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "MOST_PENDING_BYTES", 1000)
    bench = JournalBench(LONG)
    bench.fill(5)
    bench.send()
    reader = reader_of(bench)
    tailing = Tailing(reader)
    bench.fill(60, first=5)
    bench.send()
    bench.send()
    reader.look()
    bench.tiering.copy(no_throttle)
    bench.fill(5, first=100)
    bench.send()
    reader.look()
    assert_same(reader, bench)
    assert tailing.data == text_of(bench.log)


@pytest.mark.parametrize("has_more", [False, True])
def test_a_segment_that_was_packed_before_it_was_sent_is_there_once_it_is_copied(
    has_more: bool,
) -> None:
    bench = JournalBench({**LONG, "logfs.sealed.compression.type": "zstd"})
    text = bench.fill(40)
    bench.send()
    reader = reader_of(bench)
    tailing = Tailing(reader)
    bench.fill(3, first=40)  # is not sent before it is packed
    bench.log.roll(bench.now_ms)
    if has_more:
        bench.fill(3, first=50)
    pack_now(bench.log, bench.now_ms, tools(piece_bytes=1 << 16))
    assert bench.log.snapshot.segments[0].is_packed
    bench.send()
    reader.look()
    assert text_of(reader.log()) == text
    bench.fill(3, first=60)
    bench.tier_all()
    bench.send()
    reader.look()
    assert_same(reader, bench)
    assert tailing.data == text_of(bench.log)


def test_a_quiet_partition_that_is_sent_again_changes_nothing() -> None:
    bench = JournalBench(LONG)
    bench.store.create_topic("busy", 1, TIERED, bench.now_ms)
    bench.fill(3)
    bench.send()
    reader = reader_of(bench)
    for number in range(3 * MOST_KEPT):
        write(bench, "busy", b"busy %03d\n" % number)
        bench.send()
        if number % 50 == 0:
            reader.look()
    reader.look(70)
    assert_same(reader, bench)
    assert text_of(reader.log("busy")) == text_of(bench.store.partition("busy", 0))


@pytest.mark.allow_log("lost", "cut")
def test_records_that_the_owner_has_lost_are_cut_and_readers_are_told() -> None:
    bench = JournalBench(LONG)
    bench.write(b"one", b"two", b"three")
    bench.send()
    reader = reader_of(bench)
    bench.log.truncate_to(1, bench.now_ms)
    bench.write(b"other")
    bench.send()
    reader.look()
    assert text_of(reader.log()) == b"one\nother\n"
    assert reader.log().snapshot.truncations == 1
    assert reader.log().snapshot.end.positions == bench.log.snapshot.end.positions
    assert reader.log().snapshot.end.offset == 2
    assert list(reader.log().losses)


@pytest.mark.allow_log("fenced")
def test_an_owner_that_was_fenced_shows_a_reader_nothing_more() -> None:
    bench = JournalBench(LONG)
    text = bench.fill(3)
    bench.send()
    reader = reader_of(bench)
    other, _ = bench.promoted()
    bench.fill(3, first=3)
    with pytest.raises(RemoteStorageError):
        bench.send()
    text += other.fill(3, first=6)
    other.send()
    reader.look()
    assert text_of(reader.log()) == text
    assert_same(reader, other)


@pytest.mark.allow_log("the journal is damaged")
def test_a_damaged_object_delays_a_reader_until_the_segment_is_copied() -> None:
    bench = JournalBench(LONG)
    text = bench.fill(3)
    bench.send()
    reader = reader_of(bench)
    bench.fill(3, first=3)
    bench.send()
    key = max(key for key in bench.objects.objects if "-journal/0" in key)
    bench.objects.damage(key, 40)
    bench.fill(3, first=6)
    bench.send()
    reader.look()
    assert text_of(reader.log()) == text
    bench.log.roll(bench.now_ms)
    bench.tiering.copy(no_throttle)
    bench.fill(3, first=9)
    bench.send()
    reader.look()
    assert_same(reader, bench)


@pytest.mark.parametrize("freshness_s", [0.5, 1.0, 5.0, 60.0])
@pytest.mark.parametrize("every", [1, 4])
def test_a_reader_asks_just_after_the_owner_has_sent(freshness_s: float, every: int) -> None:
    """Its mount looks five times a second; the owner sends in each round, or in each fourth."""
    random_ = random.Random(1)
    end_s, now_s, asked, late_s = 400 * freshness_s, 0.0, 0, []
    created = [
        0.3 * freshness_s + number * freshness_s + random_.uniform(0, 0.02)
        for number in range(0, 400, every)
    ]
    times = PollTimes(now_s, freshness_s)
    while now_s < end_s:
        now_s = max(now_s, times.due_s) + random_.uniform(0.01, 0.2)
        found = [one for one in created if one <= now_s]
        created = created[len(found) :]
        asked += 1
        late_s += [now_s - one for one in found]
        times.plan(now_s, freshness_s, is_found=bool(found))
    assert asked < 400 * 2
    assert sorted(late_s)[int(len(late_s) * 0.95)] < 1.1


def test_a_store_without_a_journal_is_refused() -> None:
    with pytest.raises(RemoteStorageError, match="it has no journal to follow"):
        Reader(FakeStore(), 0)


def test_a_reader_that_was_killed_begins_again_with_an_empty_directory() -> None:
    bench = JournalBench()
    bench.fill(30)
    bench.tier_all()
    bench.send()
    disk = FakeDisk()
    Reader(bench.objects, bench.now_ms, disk)
    bench.fill(30, first=30)
    bench.send()
    reader = Reader(bench.objects, bench.now_ms, disk.after_kill())
    assert_same(reader, bench)


def test_a_standby_continues_with_all_that_was_sent() -> None:
    for tiers in (False, True):
        bench = JournalBench()
        text = bench.fill(30)
        bench.send()
        reader = reader_of(bench)
        if tiers:
            bench.tier_all()
        text += bench.fill(7, first=30)
        bench.send()
        end = bench.log.snapshot.end
        other = reader.promote("b")
        assert text_of(other.log) == text
        assert other.log.snapshot.end.positions == end.positions
        other.tiering.copy(no_throttle)  # it owns the heads
        text += other.fill(5, first=50)
        other.send()
        assert text_of(other.restart()) == text
        third, _ = other.promoted("c")
        assert text_of(third.log) == text


def test_a_standby_continues_with_a_segment_that_was_packed_before_it_was_sent() -> None:
    bench = JournalBench({**LONG, "logfs.sealed.compression.type": "zstd"})
    bench.fill(40)
    bench.send()
    reader = reader_of(bench)
    bench.fill(3, first=40)
    bench.log.roll(bench.now_ms)
    bench.fill(3, first=50)
    pack_now(bench.log, bench.now_ms, tools(piece_bytes=1 << 16))
    bench.send()
    reader.look()
    text, end = text_of(bench.log), bench.log.snapshot.end
    other = reader.promote("b")
    assert text_of(other.log) == text
    assert other.log.snapshot.end.positions == end.positions


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("change", range(6))
def test_a_promotion_of_a_standby_that_is_stopped_is_completed_by_the_next_one(
    change: int, after: bool
) -> None:
    bench = JournalBench()
    text = bench.fill(30)
    bench.send()
    reader = reader_of(bench)
    bench.tier_all()
    text += bench.fill(7, first=30)
    bench.send()
    if after:
        bench.objects.stop_after(change)
    else:
        bench.objects.stop_before(change)
    with contextlib.suppress(Stopped):
        reader.promote("b")
    bench.objects.heal()
    if reader.disk.exists("logfs.backup"):
        again = Reader(bench.objects, bench.now_ms, reader.disk.after_kill())
        assert text_of(again.log()) == text
        other = again.promote("b")
    else:
        other = JournalBench(machine="b", disk=reader.disk.after_kill(), objects=bench.objects)
    assert text_of(other.log) == text
    other.send()


@pytest.mark.allow_log("fenced")
def test_of_a_standby_and_another_promotion_one_owns_the_store() -> None:
    bench = JournalBench(LONG)
    text = bench.fill(3)
    bench.send()
    reader = reader_of(bench)
    other, _ = bench.promoted("c")
    text += other.fill(3, first=3)
    other.send()
    mine = reader.promote("b")
    other.fill(3, first=6)
    with pytest.raises(RemoteStorageError):
        other.send()
    assert text_of(mine.log) == text


@pytest.mark.parametrize("seed", range(30))
def test_standbys_continue_one_after_the_other(seed: int) -> None:
    drill = Drill(seed)
    actions = [drill.write, drill.write, drill.send, drill.send, drill.copy, drill.drop, drill.roll,
               drill.glance, drill.look]  # fmt: skip
    for machine in "bcde":
        for _ in range(25):
            drill.random.choice(actions)()
        drill.bench = drill.reader.promote(machine)
        there = text_of(drill.bench.log)
        assert there.startswith(drill.sent)
        assert drill.text.startswith(there)
        drill.text = drill.sent = there
        drill.reader = reader_of(drill.bench)
