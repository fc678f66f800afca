"""A bucket as a read-only data directory: the same positions, bytes and times as its origin."""

import errno

import pytest

from logfs.config import StoreConfig
from logfs.disk.remote.objects import KeyListing
from logfs.disk.remote.treedisk import TreeDisk
from logfs.log.host import Host
from logfs.log.reading.lookup import offset_for_time
from logfs.log.reading.readable import ReadableLog
from logfs.log.store import LogStore
from logfs.services.following.store import FollowedStore
from logfs.services.retention.trimming import trim
from logfs.services.views.files import GrowingFile
from logfs.types import TopicPartition, View
from tests.fakes import START_MS
from tests.log.support import Bench, kept_runs_of, text_of
from tests.remote.buckets import TP, Clock, TieredPartition, bucket_disk, unique_id
from tests.remote.fakestore import FakeStore

HOST = Host("boot", unique_id)


def lines(number: int, start: int = 0) -> list[bytes]:
    return [b"line %06d %s" % (n, b"x" * (n % 200)) for n in range(start, start + number)]


class Origin:
    """A log of several sealed segments, and its bucket."""

    def __init__(self, segments: int = 5) -> None:
        self.bench = Bench({"index.interval.bytes": "1024"})
        self.store = FakeStore()
        self.clock = Clock()
        self._written = 0
        for _ in range(segments):
            self.write()
        self.tiered = TieredPartition(self.bench.disk, self.store).copy()

    def write(self, number: int = 100) -> None:
        """Append records, and roll the segment."""
        for line in lines(number, self._written):
            self.bench.now_ms += 1000
            self.bench.write(line)
        self._written += number
        self.bench.log.roll(self.bench.now_ms)

    @property
    def log(self) -> ReadableLog:
        return self.bench.log

    def disk(self) -> TreeDisk:
        return bucket_disk(self.store, self.clock)

    def open(self) -> ReadableLog:
        """Open the bucket once, as a command does."""
        now_ms = self.bench.now_ms
        config = StoreConfig(num_recovery_threads_per_data_dir=1)
        store = LogStore.open(self.disk(), config, HOST, now_ms=now_ms, read_only=True, only=[TP])
        return store.partition(*TP)

    def follow(self) -> FollowedStore:
        """Open the bucket as a mount does."""
        return FollowedStore.follow(
            self.disk(), StoreConfig(), HOST, None, now_ms=self.bench.now_ms
        )

    def look(self, followed: FollowedStore) -> None:
        """Let the interval pass, and look."""
        self.clock.now_s += 31
        followed.look_around(self.bench.now_ms)
        for log in followed.followed():
            log.refresh(self.bench.now_ms)


def text(log: ReadableLog, start: int, end: int, view: View = View.TEXT) -> bytes:
    """The kept bytes of a range."""
    return b"".join(
        data[max(start - at, 0) : max(end - at, 0)] for at, data in kept_runs_of(log, view)
    )


def assert_same(log: ReadableLog, origin: ReadableLog) -> None:
    """The log is the origin up to its own end."""
    for view in View:
        end = log.snapshot.end.positions[view]
        start = log.snapshot.start.positions[view]
        assert end > start
        assert text(log, start, end, view) == text(origin, start, end, view)


class Reading:
    """A file of the log's text that is read on."""

    def __init__(self, log: ReadableLog, start: int = 0) -> None:
        self._file = GrowingFile(log, View.TEXT, start)
        self._done = 0

    def read(self, size: int) -> bytes:
        """One read."""
        out = memoryview(bytearray(size))
        got = self._file.read_into(out, self._done)
        self._done += got
        return bytes(out[:got])

    def rest(self, most: int = 1 << 40) -> bytes:
        """Reads up to the end, or up to a number of bytes."""
        data = b""
        while len(data) < most and (got := self.read(1 << 16)):
            data += got
        return data


def test_a_bucket_has_the_bytes_positions_and_times_of_its_origin() -> None:
    origin = Origin()
    for log in (origin.open(), origin.follow().partition(*TP)):
        assert_same(log, origin.log)
        assert log.generation == origin.log.generation
        assert log.topic_id == origin.log.topic_id
        assert log.config == origin.log.config
        last = origin.tiered.entries[-1]
        assert log.log_end_offset == last.next_offset
        assert log.snapshot.end.positions == last.entry.ends
        assert log.last_modified_ms == last.mtime_ms


def test_a_moment_is_found_as_at_the_origin() -> None:
    origin = Origin()
    log = origin.open()
    for moment in range(START_MS, origin.bench.now_ms, 7_000):
        found, expected = (offset_for_time(x.snapshot, moment) for x in (log, origin.log))
        assert found == expected or (expected or 0) >= log.log_end_offset


def test_opening_reads_the_head_and_one_producer_snapshot() -> None:
    origin = Origin(segments=12)
    origin.store.counts.clear()
    origin.open()
    assert origin.store.counts == {"list_level": 1, "get": 1, "get_range": 1}


def test_a_mount_reads_nothing_but_heads_and_producer_snapshots() -> None:
    origin = Origin(segments=12)
    origin.store.counts.clear()
    followed = origin.follow()
    counts = dict(origin.store.counts)
    assert counts.pop("get_range", 0) <= 1
    assert counts == {"list_level": 2, "get": 1}
    origin.store.counts.clear()
    for _ in range(50):
        followed.look_around(origin.bench.now_ms)
        for log in followed.followed():
            log.refresh(origin.bench.now_ms)
    assert not origin.store.counts
    origin.look(followed)
    assert origin.store.counts == {"list_level": 2, "stat": 1}


def test_spilled_tables_are_part_of_the_log() -> None:
    origin = Origin(segments=9)
    origin.tiered.spill(3)
    origin.tiered.spill(4)
    log = origin.open()
    assert len(log.snapshot.segments) == 10
    assert_same(log, origin.log)


def test_following_shows_what_is_tiered_later_at_the_same_positions() -> None:
    origin = Origin(segments=6)
    origin.tiered.entries = origin.tiered.entries[:2]
    origin.tiered.write_head()
    followed = origin.follow()
    log = followed.partition(*TP)
    file = Reading(log)
    before = log.snapshot.end.positions.text
    assert len(file.rest()) == before
    origin.tiered.copy()
    origin.store.counts.clear()
    origin.look(followed)
    assert followed.partition(*TP) is log
    assert origin.store.counts["get_range"] <= 1
    assert_same(log, origin.log)
    end = log.snapshot.end.positions.text
    assert file.rest() == text(origin.log, before, end)


def test_what_retention_removed_is_a_hole_for_an_open_reader() -> None:
    origin = Origin()
    followed = origin.follow()
    log = followed.partition(*TP)
    file = Reading(log)
    gone = origin.tiered.drop_first(2)
    origin.tiered.delete_objects(gone)
    # The mount has not asked for the head since: the first read finds out.
    data = file.rest()
    origin.look(followed)
    data += file.rest()
    start = gone[-1].entry.ends.text
    assert data == text(origin.log, start, log.snapshot.end.positions.text)
    assert log.log_start_offset == gone[-1].next_offset


def test_a_segment_that_is_removed_while_it_is_read_ends_in_a_hole() -> None:
    origin = Origin(segments=1)
    for _ in range(40):
        origin.bench.write(b"y" * 100_000)
    origin.write()
    origin.tiered.copy()
    followed = origin.follow()
    log = followed.partition(*TP)
    file = Reading(log)
    data = file.rest(2_000_000)
    gone = origin.tiered.drop_first(2)
    assert len(data) < gone[-1].entry.ends.text
    origin.tiered.delete_objects(gone)
    data += file.rest()
    origin.look(followed)
    data += file.rest()
    after = gone[-1].entry.ends.text
    assert data.endswith(text(origin.log, after, log.snapshot.end.positions.text))
    assert set(data.splitlines()) <= set(text_of(origin.log).splitlines())


def test_a_missing_object_that_the_head_names_is_an_error() -> None:
    origin = Origin()
    log = origin.follow().partition(*TP)
    entry = origin.tiered.entries[1]
    del origin.store.objects[origin.tiered.place.log(entry.base_offset, entry.segment_id)]
    with pytest.raises(OSError, match="which the head of the partition names") as caught:
        Reading(log).rest()
    assert caught.value.errno == errno.EIO


def test_a_store_that_fails_at_an_index_is_asked_again() -> None:
    origin = Origin()
    log = origin.follow().partition(*TP)
    origin.store.fail("get_range", "*.indexes")
    with pytest.raises(OSError, match="injected"):
        Reading(log).rest()
    origin.store.heal()
    assert_same(log, origin.log)


def test_a_log_start_inside_a_segment_is_kept() -> None:
    origin = Origin()
    trim(origin.bench.log, 7, origin.bench.now_ms)
    origin.tiered.start = origin.log.snapshot.start
    origin.tiered.write_head()
    for log in (origin.open(), origin.follow().partition(*TP)):
        assert log.log_start_offset == 7
        assert log.snapshot.start == origin.log.snapshot.start


@pytest.mark.expect_log("what was known is shown")
def test_a_store_that_fails_later_shows_what_was_known() -> None:
    origin = Origin()
    followed = origin.follow()
    origin.store.fail("stat")
    origin.store.fail("list_level")
    origin.look(followed)
    log = followed.partition(*TP)
    assert log.log_end_offset == origin.tiered.entries[-1].next_offset
    origin.store.heal()
    origin.write(200)
    origin.tiered.copy()
    origin.look(followed)
    log = followed.partition(*TP)
    assert log.log_end_offset == origin.tiered.entries[-1].next_offset


@pytest.mark.expect_log("lacks this object, which is there")
def test_a_list_that_lacks_what_is_there_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = Origin()
    followed = origin.follow()
    with monkeypatch.context() as patch:
        patch.setattr(origin.store, "list_level", lambda _: KeyListing([], []))
        origin.look(followed)
        assert followed.topics() == ["t"]
        assert_same(followed.partition(*TP), origin.log)
    origin.write(200)
    origin.tiered.copy()
    origin.look(followed)
    assert_same(followed.partition(*TP), origin.log)


@pytest.mark.expect_log("it is not the head of a partition; what was known is shown")
def test_a_page_in_the_place_of_a_known_head_changes_nothing() -> None:
    origin = Origin()
    followed = origin.follow()
    key = origin.tiered.place.head
    head, origin.store.objects[key] = origin.store.objects[key], b"<html>Please log in</html>"
    origin.look(followed)
    assert_same(followed.partition(*TP), origin.log)
    origin.store.objects[key] = head
    origin.write(200)
    origin.tiered.copy()
    origin.look(followed)
    assert_same(followed.partition(*TP), origin.log)


@pytest.mark.expect_log("could not be loaded")
def test_a_damaged_head_is_refused() -> None:
    origin = Origin()
    origin.store.damage(origin.tiered.place.head, 200)
    log = origin.open()
    assert log.is_unreadable
    assert log.offline is not None
    assert "checksum" in log.offline


def test_topics_come_and_go() -> None:
    origin = Origin()
    followed = origin.follow()
    origin.bench.store.create_topic("u", 1, {}, origin.bench.now_ms)
    TieredPartition(origin.bench.disk, origin.store, TopicPartition("u", 0)).copy()
    origin.look(followed)
    assert followed.topics() == ["t", "u"]
    assert followed.partition("u", 0).log_end_offset == 0
    for key in list(origin.store.objects):
        if key.startswith("t-"):
            del origin.store.objects[key]
    origin.look(followed)
    assert followed.topics() == ["u"]


def test_every_change_is_refused() -> None:
    disk = Origin().disk()
    for change in (
        lambda: disk.open("t-0/x", write=True, create=True),
        lambda: disk.make_directory("u-0"),
        lambda: disk.remove("t-0/partition.metadata"),
        lambda: disk.rename("t-0", "u-0"),
        lambda: disk.lock(".lock"),
        lambda: disk.replace("x", b""),
    ):
        with pytest.raises(OSError, match="read-only") as caught:
            change()
        assert caught.value.errno == errno.EROFS
