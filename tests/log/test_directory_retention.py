"""Limits of a whole data directory: which segments go, against a model, and at work."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.config import StoreConfig
from logfs.log import names
from logfs.log.host import Host
from logfs.log.lines.writer import LineWriter
from logfs.log.store import LogStore
from logfs.services.retention.directory import (
    LogSegments,
    OldSegment,
    delete_share,
    plan_deletion,
    segments_of,
    too_large,
    usage,
)
from logfs.services.retention.logs import Rule
from logfs.types import View
from tests.fakes import START_MS, FakeDisk


class Log(NamedTuple):
    topic: str
    active_bytes: int
    segments: list[tuple[int, int]]  # latest, bytes


def facts(log: Log) -> LogSegments:
    rows = [OldSegment(latest, size, 10 * n + 10) for n, (latest, size) in enumerate(log.segments)]
    return LogSegments(log.topic, log.active_bytes + sum(s for _, s in log.segments), rows)


def expected(logs: list[Log], excess: int) -> list[int]:
    """One segment after the other: the largest topic, in it the oldest of the first segments."""
    left = [list(log.segments) for log in logs]

    def size(topic: str) -> int:
        return sum(
            log.active_bytes + sum(s for _, s in left[n])
            for n, log in enumerate(logs)
            if log.topic == topic
        )

    while excess > 0:
        candidates = [n for n in range(len(logs)) if left[n]]
        if not candidates:
            break
        topic = min({logs[n].topic for n in candidates}, key=lambda t: (-size(t), t))
        rows = [(left[n][0][0], n) for n in candidates if logs[n].topic == topic]
        _, number = min(rows)
        excess -= left[number].pop(0)[1]
    return [len(log.segments) - len(rest) for log, rest in zip(logs, left, strict=True)]


LOGS = st.lists(
    st.builds(
        Log,
        st.sampled_from("abc"),
        st.integers(0, 50),
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), max_size=5),
    ),
    max_size=6,
)


@given(LOGS, st.integers(-5, 300))
@settings(max_examples=200)
def test_the_plan_is_that_of_a_simple_model(logs: list[Log], excess: int) -> None:
    shares = plan_deletion([facts(log) for log in logs], excess)
    assert [share.segments for share in shares] == expected(logs, excess)
    for log, share in zip(logs, shares, strict=True):
        assert share.size_bytes == sum(size for _, size in log.segments[: share.segments])


class Directory:
    """A store with limits."""

    def __init__(self, limits: str, disk: FakeDisk | None = None) -> None:
        self.disk = disk or FakeDisk()
        config = StoreConfig.from_properties(dict(row.split("=") for row in limits.split(",")))
        ids = iter(range(1, 1000))
        host = Host("1", lambda: next(ids).to_bytes(16, "big"))
        self.store = LogStore.open(self.disk, config, host, now_ms=START_MS)

    def add(self, topic: str, lines: int, **settings: str) -> None:
        """Create a topic; each two lines of ten bytes fill a segment."""
        properties = {k.replace("_", "."): v for k, v in settings.items()}
        self.store.create_topic(topic, 1, {"internal.segment.bytes": "170", **properties}, START_MS)
        writer = LineWriter(self.store.partition(topic, 0), View.TEXT)
        for _ in range(lines):
            writer.write(b"0123456789\n", START_MS)

    def segments(self, topic: str) -> int:
        return len(self.store.partition(topic, 0).snapshot.segments)

    def look(self) -> int:
        """Delete what the limit asks for; returns by how much it is exceeded still."""
        limit = usage(self.store, self.store.deleted_bytes)
        assert limit is not None
        found = segments_of(self.store)
        shares = plan_deletion([row for _, row in found], limit.excess)
        for (log, _), share in zip(found, shares, strict=True):
            if share.segments:
                delete_share(log, share, limit, START_MS)
        limit = usage(self.store, self.store.deleted_bytes)
        assert limit is not None
        return limit.excess


def test_no_limit_is_set_by_default() -> None:
    directory = Directory("num.partitions=1")
    assert usage(directory.store) is None


def test_the_largest_topic_gives_up_its_oldest_segments() -> None:
    directory = Directory("log.retention.total.bytes=1400")
    directory.add("noisy", 20)
    directory.add("quiet", 4)
    assert (directory.segments("noisy"), directory.segments("quiet")) == (10, 2)
    assert directory.look() <= 0
    assert (directory.segments("noisy"), directory.segments("quiet")) == (6, 2)
    assert directory.store.partition("noisy", 0).log_start_offset == 8
    deleted = directory.store.partition("noisy", 0).counters.deleted[Rule.TOTAL]
    assert (deleted.segments, deleted.size_bytes) == (4, 4 * 156)
    assert directory.look() <= 0
    assert directory.segments("noisy") == 6


def test_what_must_not_be_deleted_stays() -> None:
    directory = Directory("log.retention.total.bytes=0")
    directory.add("active", 1)
    directory.add("held", 6, cleanup_policy="")
    directory.add("broker", 6)
    directory.disk.remove(f"broker-0/{names.TOPIC_CONFIG}")
    assert directory.look() > 0
    assert [directory.segments(topic) for topic in ("active", "held", "broker")] == [1, 3, 3]


def test_segments_go_until_the_disk_has_room_and_their_files_go_at_once() -> None:
    disk = FakeDisk()
    directory = Directory("log.retention.keep.free.bytes=500000", disk)
    directory.add("noisy", 200, internal_segment_bytes="20000")
    line = b"x" * 9_000 + b"\n"
    writer = LineWriter(directory.store.partition("noisy", 0), View.TEXT)
    for _ in range(100):
        writer.write(line, START_MS)
    disk.space_bytes = disk.used_bytes + 200_000
    assert directory.segments("noisy") == 51
    looks = 0
    while directory.look() > 0:  # the notes of a deletion take some room, too
        looks += 1
        assert looks < 3
    left = directory.segments("noisy")
    assert 30 < left < 36
    assert [name for name, _ in disk.list("noisy-0") if name.endswith(".log.deleted")] == []
    free = disk.free()
    assert 500_000 <= free.f_bavail * free.f_frsize < 530_000
    assert directory.look() <= 0
    assert directory.segments("noisy") == left


def test_deleted_topics_count_as_free() -> None:
    disk = FakeDisk()
    directory = Directory("log.retention.keep.free.bytes=1000", disk)
    directory.add("deleted", 20)
    directory.add("kept", 20)
    directory.store.delete_topic("deleted", START_MS)
    disk.space_bytes = disk.used_bytes + 10
    assert directory.look() <= 0
    assert directory.segments("kept") == 10


def test_a_large_active_segment_is_to_be_sealed() -> None:
    directory = Directory("log.retention.total.bytes=10000000")
    directory.add("orders", 2)
    log = directory.store.partition("orders", 0)
    limit = usage(directory.store)
    assert limit is not None
    assert not too_large(log, limit)
    directory.store.create_topic("large", 1, {}, START_MS)
    log = directory.store.partition("large", 0)
    LineWriter(log, View.TEXT).write((b"x" * 999 + b"\n") * 1300, START_MS)
    assert too_large(log, limit)
    log.roll(START_MS)
    assert not too_large(log, limit)
