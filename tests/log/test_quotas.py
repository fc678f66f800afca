"""Quotas of topics: bytes and the rate of appends, against a model, and at work."""

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.config import StoreConfig
from logfs.errors import QuotaExceededError, RecordTooLargeError
from logfs.log.host import Host
from logfs.log.lines.append import append_lines
from logfs.log.lines.form import LineForm
from logfs.log.lines.writer import LineWriter
from logfs.log.quotas import GRANT_S, MOST_REQUESTS, SEGMENT_BYTES, Grant, TopicUsage
from logfs.log.store import LogStore
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.types import View
from tests.fakes import START_MS, FakeDisk

LINE = b"0123456789\n"
BATCH_BYTES = 61 + 7 + len(LINE) - 1
STEPS = st.lists(st.tuples(st.integers(1, 400), st.floats(0, 3)), max_size=30)


class Directory:
    """A store whose topic ``web`` has two partitions and quotas."""

    def __init__(self, disk: FakeDisk | None = None, **quotas: int) -> None:
        self.disk, self.seconds = disk or FakeDisk(), 100.0
        ids = iter(range(1, 1000))
        host = Host("1", lambda: next(ids).to_bytes(16, "big"), clock_s=lambda: self.seconds)
        self.store = LogStore.open(self.disk, StoreConfig(), host, now_ms=START_MS)
        if disk is None:
            properties = {"internal.segment.bytes": str(2 * BATCH_BYTES)}
            self.store.create_topic("web", 2, properties, START_MS)
            self.alter(**quotas)
        self.logs = [self.store.partition("web", number) for number in (0, 1)]

    def alter(self, **quotas: int) -> None:
        names = {"size": "logfs.quota.bytes", "rate": "logfs.quota.producer.byte.rate"}
        self.store.alter_topic("web", {names[key]: str(value) for key, value in quotas.items()})

    def writer(self, number: int = 0) -> LineWriter:
        return LineWriter(self.logs[number], View.TEXT)

    @property
    def used(self) -> int:
        return sum(log.snapshot.size_bytes for log in self.logs)


@pytest.fixture
def full() -> Directory:
    """A topic with three lines, and room for no more."""
    directory = Directory(size=3 * BATCH_BYTES + 20)
    for number in (0, 1, 0):
        directory.writer(number).write(LINE, START_MS)
    return directory


def test_partitions_have_no_more_than_the_quota_together(full: Directory) -> None:
    for number in (0, 1):
        with pytest.raises(QuotaExceededError, match=r"topic web: no room in the quota"):
            full.writer(number).write(LINE, START_MS)
    assert full.used == 3 * BATCH_BYTES


def test_records_and_files_of_lines_heed_the_quota(full: Directory) -> None:
    log, record = full.logs[0], Record(0, START_MS, None, b"0123456789")
    producer = ProducerBatch(7, 0, 0)
    for call in (
        lambda: log.append_records([record], START_MS),
        lambda: log.append_records([record], START_MS, producer),
        lambda: append_lines(log, LINE, LineForm(View.TEXT), START_MS),
    ):
        with pytest.raises(QuotaExceededError):
            call()
    assert full.used == 3 * BATCH_BYTES


def test_a_repeated_batch_of_a_producer_is_no_new_one() -> None:
    directory = Directory(size=BATCH_BYTES + 20)
    log, record = directory.logs[0], Record(0, START_MS, None, b"0123456789")
    producer = ProducerBatch(7, 0, 0)
    log.append_records([record], START_MS, producer)
    assert log.append_records([record], START_MS, producer).is_duplicate


def test_deleted_segments_make_room_at_once(full: Directory) -> None:
    log = full.logs[0]
    log.roll(START_MS)
    log.advance_log_start_offset(log.log_end_offset, START_MS)
    full.writer(1).write(LINE, START_MS)
    with pytest.raises(QuotaExceededError):
        full.writer(1).write(4 * LINE, START_MS)


def test_a_larger_quota_applies_at_once(full: Directory) -> None:
    full.alter(size=4 * BATCH_BYTES)
    full.writer().write(LINE, START_MS)
    full.alter(size=-1)
    full.writer().write(LINE, START_MS)


def test_lines_before_the_quota_are_accepted_and_the_beginning_of_the_next_one_is_not() -> None:
    directory = Directory(size=BATCH_BYTES + 20)
    writer = directory.writer()
    assert writer.write(LINE + b"x" * 30, START_MS) == len(LINE)
    with pytest.raises(QuotaExceededError):
        writer.write(b"x" * 30, START_MS)


def test_an_accepted_unfinished_line_becomes_a_record_though_the_topic_is_full() -> None:
    directory = Directory(size=BATCH_BYTES + 20)
    writer = directory.writer()
    writer.write(b"begun", START_MS)
    directory.writer(1).write(LINE, START_MS)
    with pytest.raises(QuotaExceededError):
        writer.write(b" and ended\n", START_MS)
    writer.close(START_MS)
    assert directory.logs[0].log_end_offset == 1


def test_a_restart_with_an_unfinished_line_in_a_full_topic_makes_it_a_record() -> None:
    directory = Directory(size=BATCH_BYTES + 20)
    directory.writer().write(b"begun", START_MS)
    directory.writer(1).write(LINE, START_MS)
    directory.store.unlock()
    again = Directory(directory.disk)
    assert again.logs[0].log_end_offset == 1
    with pytest.raises(QuotaExceededError):
        again.writer().write(LINE, START_MS)


def test_meta_shows_what_is_used(full: Directory) -> None:
    with pytest.raises(QuotaExceededError):
        full.writer().write(LINE, START_MS)
    facts = full.logs[1].quota_meta
    assert facts is not None
    assert facts["used_bytes"] == 3 * BATCH_BYTES
    assert facts["bytes"] == 3 * BATCH_BYTES + 20
    assert facts["refused"] == 1


def test_writers_of_all_partitions_share_the_rate() -> None:
    directory = Directory(rate=BATCH_BYTES)
    marks = []
    for number in (0, 1, 0):
        directory.writer(number).write(LINE, START_MS)
        marks.append(directory.logs[0].throttle_mark)
    # The first one has the allowance of a second.
    assert [directory.logs[0].throttle_s(mark) for mark in marks] == [0, 1, 2]
    directory.seconds += 1.5
    assert [directory.logs[1].throttle_s(mark) for mark in marks] == [0, 0, 0.5]
    directory.alter(rate=10 * BATCH_BYTES)
    assert directory.logs[1].throttle_s(marks[2]) == pytest.approx(0.05)
    directory.alter(rate=-1)
    assert directory.logs[1].throttle_s(marks[2]) == 0


def rates(steps: list[tuple[int, float]], rate: int) -> Iterator[tuple[float, int]]:
    """Yield when each write returns that begins after a pause, and how much was written."""
    usage, now_s, total = TopicUsage(), 50.0, 0
    for size, pause in steps:
        now_s += pause
        usage.spend(size, rate, now_s)
        total += size
        now_s += usage.wait_s(usage.spent_bytes, rate, now_s)
        yield now_s, total


@given(STEPS, st.integers(1, 300))
def test_a_writer_never_exceeds_the_rate_by_more_than_a_second(
    steps: list[tuple[int, float]], rate: int
) -> None:
    for now_s, total in rates(steps, rate):
        assert total <= (now_s - 50.0 + 1) * rate * (1 + 1e-9) + 1e-6


@given(STEPS)
def test_a_writer_within_the_rate_never_waits(steps: list[tuple[int, float]]) -> None:
    usage, now_s, rate = TopicUsage(), 50.0, 400
    for size, pause in steps:
        now_s += 1 + pause
        usage.spend(size, rate, now_s)
        assert usage.wait_s(usage.spent_bytes, rate, now_s) == 0


GRANTING = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.integers(1, 60_000), st.integers(0, 3)),
        st.tuples(st.sampled_from(["grant", "end"]), st.just(0), st.integers(0, 3)),
        st.tuples(st.just("append"), st.integers(1, 60_000), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.integers(1, 30), st.just(0)),
        st.tuples(st.just("delete"), st.integers(1, 200_000), st.just(0)),
    ),
    max_size=80,
)


class Granting:
    """Four partitions of a topic, which append by requests and by grants.

    Args:
        limit: ``logfs.quota.bytes``.
        rate: ``logfs.quota.producer.byte.rate``.
    """

    def __init__(self, limit: int, rate: int) -> None:
        self.limit, self.rate, self.used, self.granted, self.now_s = limit, rate, 0, 0, 50.0
        self.usage = TopicUsage(lambda: self.used)
        self.grants: dict[int, tuple[Grant, int, float]] = {}

    def step(self, what: str, size: int, partition: int) -> None:
        match what:
            case "wait":
                self.now_s += size / 10
            case "delete":
                self.used -= min(size, self.used)
            case "append" if partition in self.grants:
                grant, left, until_s = self.grants[partition]
                if size <= left and self.now_s <= until_s:
                    self.used += size
                    self.granted += size
                    self.grants[partition] = grant, left - size, until_s
            case "end" | "grant" | "admit":
                if partition in self.grants:
                    grant, left, _ = self.grants.pop(partition)
                    self.usage.end_grant(grant, left)
                if what == "admit":
                    self._admit(size)
                elif what == "grant":
                    self._grant(partition)

    def _admit(self, size: int) -> None:
        with contextlib.suppress(QuotaExceededError):
            self.usage.admit("topic web", size, self.limit, now_s=self.now_s)
            self.used += size
            self.usage.spend(size, self.rate, self.now_s)
            self.now_s += self.usage.wait_s(self.usage.spent_bytes, self.rate, self.now_s)

    def _grant(self, partition: int) -> None:
        grant = self.usage.grant(self.limit, self.rate, self.now_s)
        if grant is not None:
            self.grants[partition] = grant, grant.size_bytes, self.now_s + GRANT_S


@given(GRANTING, st.integers(100_000, 3_000_000), st.integers(100_000, 1_000_000))
def test_no_order_of_grants_and_requests_exceeds_the_quotas(
    steps: list[tuple[str, int, int]], limit: int, rate: int
) -> None:
    topic, written = Granting(limit, rate), 0
    for step in steps:
        before = topic.used
        topic.step(*step)
        written += max(topic.used - before, 0)
        assert topic.used <= limit
        # One request may take the topic into debt, and a second is allowed at once.
        assert written <= (topic.now_s - 50.0 + 1) * rate + 60_000


def test_a_grant_that_is_not_used_is_given_back() -> None:
    topic = Granting(10_000_000, 1_000_000)
    topic.step("admit", 1, 0)
    for _ in range(1000):
        topic.step("grant", 0, 0)
        assert topic.grants[0][1] > 50_000
        topic.step("end", 0, 0)
    topic.step("admit", 900_000, 0)
    assert topic.now_s == 50.0


def test_what_is_granted_is_no_room_for_others() -> None:
    topic = Granting(2_000_000, 10_000_000)
    topic.step("admit", 1, 0)
    topic.step("grant", 0, 1)
    topic.step("admit", 1_999_999, 0)
    assert topic.used == 1
    size = topic.grants[1][1]
    topic.step("append", size, 1)
    topic.step("admit", 1_999_999 - 2 * size, 0)
    assert topic.used == topic.limit - size


def test_a_grant_that_nothing_ends_takes_no_room_for_long() -> None:
    topic = Granting(2_000_000, 10_000_000)
    topic.step("admit", 1, 0)
    topic.step("grant", 0, 1)
    topic.step("wait", 30, 0)
    topic.step("admit", 1_999_999, 0)
    assert topic.used == topic.limit


WRITES = st.lists(
    st.tuples(
        st.integers(0, 5),  # a writer
        st.sampled_from([b"x\n", b"x" * 90, b"y" * 400 + b"\n", b"a\nb\nc\nhalf", None]),
    ),
    max_size=200,
)


@given(steps=WRITES, has_small_segments=st.booleans())
def test_no_order_of_writes_and_closes_exceeds_the_quota(
    steps: list[tuple[int, bytes | None]], *, has_small_segments: bool
) -> None:
    """Bytes are at most one request above the limit, segments those of ``MOST_REQUESTS``."""
    limit, largest = 40_000, 1_000
    directory = Directory(size=limit)
    segment = "600" if has_small_segments else "100000"
    directory.store.alter_topic("web", {"internal.segment.bytes": segment})
    writers: dict[int, LineWriter] = {}
    for number, data in steps:
        writer = writers.setdefault(number, directory.writer(number % 2))
        if data is None:
            writers.pop(number).close(START_MS)
        else:
            with contextlib.suppress(QuotaExceededError, RecordTooLargeError):
                writer.write(data, START_MS)
        unfinished = sum(one.unfinished for one in writers.values())
        assert directory.used + unfinished <= limit + largest
        sealed = sum(len(log.snapshot.segments) - 1 for log in directory.logs)
        assert sealed * SEGMENT_BYTES <= limit + (MOST_REQUESTS + 1) * SEGMENT_BYTES


def test_unfinished_lines_of_many_files_fill_the_quota_together() -> None:
    directory = Directory(size=10_000)
    directory.store.alter_topic("web", {"internal.segment.bytes": "100000"})
    writers = [directory.writer(number % 2) for number in range(200)]
    accepted = 0
    for writer in writers:
        try:
            accepted += writer.write(b"z" * 900, START_MS)
        except QuotaExceededError:
            break
    assert accepted <= 10_000
    assert accepted >= 9_000
    for writer in writers:
        writer.close(START_MS)
    assert directory.used <= 10_000 + 80 * (accepted // 900)
