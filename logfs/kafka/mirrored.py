"""One partition of a mirror: where it is, and what a fetch answer does to it.

The local log is a prefix of the source's, so its end is the offset that is fetched next. In two
cases it is not: an empty log may begin elsewhere, and after a gap of the source the log continues
elsewhere. The offset is in ``resume_at`` then, until the first batch from there on is known: a
broker answers with whole batches, so that batch may begin before the offset.
"""

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from logfs.errors import (
    ClusterRefusedError,
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from logfs.kafka.cluster import EARLIEST, LATEST, Cluster, Leader
from logfs.kafka.fetching import Fetched, Wanted
from logfs.kafka.targets import MirrorTarget
from logfs.log.counters import FETCH_BOUNDS_S, Histogram
from logfs.records._reading import batch_run, first_offset
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_ATTEMPTS = 3
"""How often a batch that is not sound is fetched before its partition fails."""
_ADVANCE_EVERY_S = 60.0
_ALL = 1 << 62


class PartitionFailedError(ClusterRefusedError):
    """A partition cannot continue without its user."""


@dataclass(slots=True, eq=False)
class MirroredPartition:
    """The state of one partition.

    Attributes:
        where: The local partition.
        topic, topic_id: Its topic at the source.
        leader: At the source, as far as is known.
        replica: A broker that is nearer than the leader; None: the leader is asked.
        follows_start: Records that the source deletes are deleted here.
        start, end: Offsets of the local log.
        resume_at: See above.
        until: The offset up to which it is wanted; None: there is no end.
        is_unchecked: The next request must let the leader compare leader epochs.
        retry_s: Monotonic time before which it is not fetched.
        high_watermark, source_start: At the source; -1: not known yet.
        contact_ms: When the source answered last, epoch milliseconds; 0: not yet.
        failure: Why it does not continue.
        error: The last error, for people.
        throttled_ms: How long its fetches have waited for a quota of the source.
        fetches: From a request to its answer, which may have waited for records.
        lock: Held by the thread that deals with an answer: another one may fetch it by then.
    """

    where: TopicPartition
    topic: str
    topic_id: UUID
    leader: Leader
    follows_start: bool
    start: int
    end: int
    replica: int | None = None
    resume_at: int | None = None
    until: int | None = None
    is_unchecked: bool = True
    retry_s: float = 0.0
    high_watermark: int = -1
    source_start: int = -1
    contact_ms: int = 0
    failure: str = ""
    error: str = ""
    bytes: int = 0
    records: int = 0
    losses: int = 0
    throttled_ms: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    fetches: Histogram = field(default_factory=lambda: Histogram(FETCH_BOUNDS_S))
    lock: threading.Lock = field(default_factory=threading.Lock)
    _unsound: int = 0
    _fruitless_cuts: int = 0
    _advanced_s: float = -_ADVANCE_EVERY_S

    @property
    def node(self) -> int:
        """The broker to ask."""
        return self.leader.node if self.replica is None else self.replica

    @property
    def offset(self) -> int:
        """The offset to fetch next."""
        return self.end if self.resume_at is None else self.resume_at

    @property
    def is_done(self) -> bool:
        """Whether the partition has all records that were wanted."""
        return self.until is not None and self.end >= self.until

    @property
    def lag(self) -> int:
        """Its lag in offsets, if known; else 0."""
        return max(0, self.high_watermark - self.end)

    def wanted(self, last_epoch: int) -> Wanted:
        """Return what to ask for next."""
        number = self.where.partition
        return Wanted(self.topic, self.topic_id, number, self.offset, self.leader.epoch, last_epoch)

    def wanted_after(self, answer: Fetched) -> Wanted | None:
        """Return what to ask for before an answer was dealt with; None if that has to come first.

        Without the epoch of the last record: a leader that changes is noticed by its own epoch.
        """
        if answer.error or answer.diverging or self.resume_at is not None or self.failure:
            return None
        try:
            _, last, _ = batch_run(answer.records, 0, len(answer.records), _ALL)
        except CorruptRecordError:
            return None
        end = max(self.end, last + 1)
        if self.until is not None and end >= self.until:
            return None
        return self.wanted(-1)._replace(offset=end)

    # What an answer does

    def take(self, answer: Fetched, target: MirrorTarget) -> None:
        """Append what was fetched, or follow where the logs differ.

        Raises:
            PartitionFailedError: It cannot continue.
            LogfsError, OSError: The local log cannot be written; it is as before.
        """
        self.contact_ms = round(time.time() * 1000)
        if answer.diverging is not None:
            self.diverged(*answer.diverging, target)
            return
        self.is_unchecked = False
        self.high_watermark = answer.high_watermark
        self.source_start = max(self.source_start, answer.log_start_offset)
        if len(answer.records):
            self._append(answer.records, target)
        elif self.resume_at is not None and self.resume_at >= answer.high_watermark:
            self._resume(self.resume_at, target)
        self._follow_start(target)

    def diverged(self, epoch: int, end_offset: int, target: MirrorTarget) -> None:
        """Cut what the source has lost: what follows the end of a leader epoch there.

        Source: Kafka AbstractFetcherThread.getOffsetTruncationState.
        """
        ours = target.end_for_epoch(self.where, epoch)
        cut = end_offset if ours is None else min(end_offset, ours[1])
        cut = max(min(cut, self.end), self.start)
        why = f"the source has lost these records: its leader epoch {epoch} ended at {end_offset}"
        self._cut(cut, why, target)

    def out_of_range(self, cluster: Cluster, target: MirrorTarget) -> None:
        """Find out why the source does not have the next offset, and where to continue.

        Raises:
            ClusterUnreachableError, ClusterRefusedError, BrokerError: The leader does not say.
        """
        self.replica = None
        number = self.where.partition
        low, high = (
            cluster.list_offsets(self.leader.node, self.topic, {number: time_})[number][0]
            for time_ in (EARLIEST, LATEST)
        )
        self.resume_at = None
        if self.end < low:
            self.resume_at = low
        elif self.end > high:
            self._cut(max(high, self.start), f"the log of the source ends at offset {high}", target)
        else:
            # The leader does not know the epoch of the last record here, as for old formats.
            # Source: Kafka Partition.readRecords.
            self.is_unchecked = False

    # Inside

    def _append(self, records: memoryview, target: MirrorTarget) -> None:
        try:
            base = first_offset(records, 0, len(records))
            advance_to = self._resume(base, target) if self.resume_at is not None else None
            done = target.append(self.where, self.end, records)
        except CorruptRecordError as error:
            self._fetched_unsound(error)
            return
        except OffsetOutOfRangeError as error:
            self._moved(error, target)
            return
        except RecordTooLargeError as error:
            raise PartitionFailedError(f"{self.where}: offset {self.offset}: {error}") from None
        self._unsound = 0
        self.records += done.last_offset + 1 - self.end
        self.bytes += done.used_bytes
        self.end = done.last_offset + 1
        if advance_to is not None:
            target.advance(self.where, advance_to)
            self.start = advance_to

    def _resume(self, base: int, target: MirrorTarget) -> int | None:
        """Let the log continue at a batch; returns where it is to start, if inside the batch."""
        wanted, self.resume_at = self.resume_at, None
        if self.start == self.end == 0:
            if base > 0:
                target.start_at(self.where, base)
            self.start = self.end = base
            return wanted if wanted is not None and wanted > base else None
        if base > self.end:
            why = f"the source has deleted records before they were fetched: it begins at {base}"
            target.skip_to(self.where, base, why)
            self.losses += 1
            if self.start == self.end:
                self.start = base
            self.end = base
        return None

    def _cut(self, offset: int, why: str, target: MirrorTarget) -> None:
        before = self.end
        if offset < before:
            target.cut(self.where, offset, why)
            self.losses += 1
        found = target.end(self.where)
        self.start, self.end, self.is_unchecked = *found[1:3], True
        self._fruitless_cuts = 0 if self.end < before else self._fruitless_cuts + 1
        if self._fruitless_cuts >= _ATTEMPTS:
            raise PartitionFailedError(f"{self.where}: {why}, and nothing is there to cut")

    def _fetched_unsound(self, error: CorruptRecordError) -> None:
        self._unsound += 1
        self.errors["CORRUPT_MESSAGE"] += 1
        logger.warning("%s: fetched from %s: %s", self.where, self.topic, error)
        if self._unsound >= _ATTEMPTS:
            raise PartitionFailedError(
                f"{self.where}: fetched {_ATTEMPTS} times, a batch is not sound: {error}"
            ) from None

    def _moved(self, error: OffsetOutOfRangeError, target: MirrorTarget) -> None:
        """Fail: the log does not end where this process left it."""
        found = target.end(self.where)
        if found.log_end_offset <= self.end:
            raise PartitionFailedError(f"{self.where}: {error}") from None
        raise PartitionFailedError(
            f"{self.where} ends at offset {found.log_end_offset}, expected {self.end}: another "
            "mirror writes to it: stop one of them"
        ) from None

    def _follow_start(self, target: MirrorTarget) -> None:
        start = min(self.source_start, self.end)
        now_s = time.monotonic()
        if not self.follows_start or start <= self.start or self.resume_at is not None:
            return
        if now_s - self._advanced_s >= _ADVANCE_EVERY_S:
            target.advance(self.where, start)
            self._advanced_s, self.start = now_s, start
