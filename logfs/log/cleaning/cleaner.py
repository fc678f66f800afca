"""Which log is compacted next, and compacting one because somebody says so.

The dirtiest log of those that are due comes first (see ``dirt``). One that fails for another reason
than that it changed meanwhile is *uncleanable*: it is left alone until the next start, and says so
in the log and in ``.meta``. A topic without a configuration of its own was made by a broker: it is
left alone as well.

Source: Kafka LogCleanerManager.grabFilthiestCompactedLog, LogCleaner.CleanerThread.
"""

import errno
import logging
from collections.abc import Iterator
from typing import NamedTuple

from logfs.disk.vfs import DISK_FULL
from logfs.errors import (
    CleaningAbortedError,
    DeletedError,
    LogfsError,
    LogOfflineError,
    NoSuchTopicError,
    PolicyViolationError,
)
from logfs.log.catalog import Catalog
from logfs.log.cleaning.checkpoint import note_cleaned, read_cleaner_offsets
from logfs.log.cleaning.dirt import Dirt, find_dirt
from logfs.log.cleaning.mapping import FindKeys, find_keys
from logfs.log.cleaning.metrics import CleanerMetrics
from logfs.log.cleaning.rounds import Cleaned, clean
from logfs.log.cleaning.tools import CleanerStats, CleaningTools
from logfs.log.partition import PartitionLog
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_PASSING = DISK_FULL | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors after which a log can be compacted another time."""


class Compacted(NamedTuple):
    """What compacting a partition by hand has done.

    Attributes:
        partition: Its number.
        end_offset: Where what is clean now ends.
        rounds: How often it was gone through; more than once if the keys did not fit into memory.
        read_bytes, written_bytes: Bytes of the ``.log`` files, before and after.
        read_records, written_records: Records in them.
        elapsed_s: Seconds it took.
    """

    partition: int
    end_offset: int
    rounds: int
    read_bytes: int
    written_bytes: int
    read_records: int
    written_records: int
    elapsed_s: float


class Chosen(NamedTuple):
    """A log that is compacted next, and what of it."""

    log: PartitionLog
    dirt: Dirt


class LogCleaner:
    """Compacts the logs of a store. Any thread may call; each log is compacted by one at a time."""

    def __init__(self, store: Catalog) -> None:
        self._store = store
        self._last: dict[object, CleanerStats] = {}
        self._looked_ms: int | None = None
        self._dirtiest = 0.0
        self._delay_ms = 0

    def clean_filthiest(self, now_ms: int, tools: CleaningTools, thread: object = None) -> bool:
        """Compact the dirtiest log that is due, once.

        Args:
            now_ms: The clock.
            tools: What to work with.
            thread: Tells callers apart, for the metrics.

        Returns:
            Whether there was one; if not, there is time for a pause.
        """
        found = self.choose(now_ms)
        return found is not None and self.clean(found, now_ms, tools, thread)

    def choose(self, now_ms: int) -> Chosen | None:
        """Choose the dirtiest log that is due; None if none is.

        Nobody else compacts it until ``clean`` or ``let_go`` is called.
        """
        for log, dirt in self._due(now_ms):
            if log.cleaning.lock.acquire(blocking=False):
                return Chosen(log, dirt)
        return None

    def clean(
        self, chosen: Chosen, now_ms: int, tools: CleaningTools, thread: object = None
    ) -> bool:
        """Compact what was chosen, once; returns whether that went well."""
        try:
            return self._clean(chosen.log, chosen.dirt, now_ms, tools, thread)
        finally:
            self.let_go(chosen)

    def let_go(self, chosen: Chosen) -> None:
        """Leave what was chosen to others."""
        chosen.log.cleaning.lock.release()

    def metrics(self, now_ms: int) -> CleanerMetrics:
        """Return the cleaner in numbers."""
        last = list(self._last.values())
        read = sum(stats.bytes_read for stats in last)
        bad = [log for log in self._store.all_partitions() if log.cleaning.uncleanable]
        offsets = read_cleaner_offsets(self._store.disk) if bad else {}
        return CleanerMetrics(
            max((int(100 * s.utilization) for s in last), default=0),
            100 * sum(s.bytes_written for s in last) // max(read, 1),
            max((int(s.elapsed_s) for s in last), default=0),
            self._delay_ms // 1000,
            0,
            len(bad),
            sum(_dirt(log, offsets, now_ms).cleanable_bytes for log in bad),
            int(100 * self._dirtiest),
            None if self._looked_ms is None else now_ms - self._looked_ms,
        )

    def _due(self, now_ms: int) -> list[tuple[PartitionLog, Dirt]]:
        """Return the logs that are due, the dirtiest first."""
        self._looked_ms = now_ms
        offsets = self._offsets()
        found = []
        self._delay_ms = 0
        for log in self._candidates():
            if now_ms < log.cleaning.paused_until_ms:
                continue
            dirt = _dirt(log, offsets, now_ms)
            log.cleaning.dirty_ratio = dirt.ratio
            if dirt.is_checkpoint_wrong:
                self._note(log, dirt.first_dirty)
            self._delay_ms = max(self._delay_ms, dirt.delay_ms)
            found.append((log, dirt))
        self._dirtiest = max((dirt.ratio for _, dirt in found), default=0.0)
        due = [row for row in found if row[1].is_due(row[0].config)]
        return sorted(due, key=lambda row: row[1].ratio, reverse=True)

    def _candidates(self) -> Iterator[PartitionLog]:
        for topic in self._store.topics():
            try:
                if not self._store.topic_config(topic).is_compacted:
                    continue
                if not self._store.has_config(topic):
                    continue
                logs = [self._store.partition(topic, n) for n in self._store.partitions(topic)]
            except LogfsError:
                continue  # deleted meanwhile
            for log in logs:
                is_open = log.offline is None and not log.is_deleted and not log.is_unreadable
                if is_open and log.cleaning.uncleanable is None:
                    yield log

    def _clean(
        self,
        log: PartitionLog,
        dirt: Dirt,
        now_ms: int,
        tools: CleaningTools,
        thread: object,
    ) -> bool:
        """Compact a log once; whatever it runs into is dealt with."""
        try:
            done = clean(log, dirt, now_ms, tools)
        except (CleaningAbortedError, DeletedError, LogOfflineError) as error:
            logger.info("%s", error)
            return False
        except (LogfsError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _PASSING:
                log.cleaning.pause(now_ms)
                logger.warning(
                    "%s: compaction: %s; it is tried again in %d s",
                    log.topic_partition, error, log.cleaning.pause_ms // 1000,
                )  # fmt: skip
                return False
            if log.offline is None:
                log.cleaning.uncleanable = str(error)
                logger.warning(
                    "%s is not compacted any more until the next start: %s",
                    log.topic_partition, error,
                )  # fmt: skip
            return False
        log.cleaning.pause_ms = 0
        self._last[thread] = done.stats
        self._note(log, done.end_offset)
        _remember(log, done, now_ms)
        return True

    def _offsets(self) -> dict[TopicPartition, int]:
        """Return where the compactions ended, those that the file does not have included."""
        offsets = read_cleaner_offsets(self._store.disk)
        for log in self._store.all_partitions():
            if log.cleaning.unsaved_offset is not None:
                offsets[log.topic_partition] = log.cleaning.unsaved_offset
                self._note(log, log.cleaning.unsaved_offset)
        return offsets

    def _note(self, log: PartitionLog, offset: int) -> None:
        """Note where a compaction ended; what cannot be written is kept until it can."""
        existing = {found.topic_partition for found in self._store.all_partitions()}
        facts = log.cleaning
        try:
            note_cleaned(self._store.disk, log.topic_partition, offset, existing)
        except OSError as error:
            if facts.unsaved_offset is None:
                logger.warning("%s: where compaction ended is noted later: %s",
                               log.topic_partition, error)  # fmt: skip
            facts.unsaved_offset = offset
        else:
            facts.unsaved_offset = None


def check_compactable(log: PartitionLog) -> None:
    """Refuse to compact a topic whose policy does not say so.

    Raises:
        PolicyViolationError: The message says what to do.
        LogOfflineError, DeletedError, ReadOnlyError: See ``PartitionLog.check_writable``.
    """
    log.check_writable()
    if not log.config.is_compacted:
        policy = log.config.get("cleanup.policy")
        both = f"{policy},compact" if policy else "compact"
        raise PolicyViolationError(
            f"{log.topic_partition}: its cleanup.policy is {policy or 'empty'}, so records stay "
            "whatever comes after them with the same key; 'logfs topic alter TOPIC --config "
            f"cleanup.policy={both}' allows compaction"
        )


def compact_now(
    log: PartitionLog,
    now_ms: int,
    tools: CleaningTools,
    find: FindKeys = find_keys,
    *,
    roll: bool = False,
) -> Compacted:
    """Compact a log because somebody says so, however dirty it is, as far as it can be.

    What is clean already is gone through as well, for tombstones and markers whose time has passed.

    Args:
        log: The log; see ``check_compactable``.
        now_ms: The clock.
        tools: What to work with.
        find: Finds the last offset of each key.
        roll: Begin a new segment before, so that what is in the active one can be cleaned.

    Raises:
        CleaningAbortedError: The log was truncated or trimmed meanwhile, or ``tools`` said so.
        CorruptRecordError: A batch is damaged.
        LogfsError, OSError: See ``rounds.clean``.
    """
    check_compactable(log)
    stats, rounds = CleanerStats(), 0
    with log.cleaning.lock:
        if roll:
            log.roll(now_ms)
        while True:
            offsets = read_cleaner_offsets(log.disk)
            dirt = _dirt(log, offsets, now_ms)
            is_clean = dirt.first_dirty >= dirt.first_uncleanable
            if dirt.first_uncleanable <= log.snapshot.segments[0].base_offset or (
                rounds and is_clean
            ):
                break
            done = clean(log, dirt, now_ms, tools, find)
            note_cleaned(log.disk, log.topic_partition, done.end_offset)
            _remember(log, done, now_ms)
            stats.add(done.stats)
            rounds += 1
        log.cleaning.uncleanable = None
    return Compacted(
        log.topic_partition.partition,
        dirt.first_dirty,
        rounds,
        stats.bytes_read,
        stats.bytes_written,
        stats.messages_read,
        stats.messages_written,
        stats.elapsed_s,
    )


def logs_of(store: Catalog, topic: str, number: int | None) -> list[PartitionLog]:
    """Return one partition of a topic, or all of them; each can be compacted.

    Raises:
        NoSuchTopicError, NoSuchPartitionError: It does not exist.
        LogfsError: See ``check_compactable``.
    """
    if topic not in store.topics():
        raise NoSuchTopicError(f"no topic {topic}")
    numbers = store.partitions(topic) if number is None else [number]
    logs = [store.partition(topic, n) for n in numbers]
    for log in logs:
        check_compactable(log)
    return logs


def _dirt(log: PartitionLog, offsets: dict[TopicPartition, int], now_ms: int) -> Dirt:
    return find_dirt(log.snapshot, log.config, offsets.get(log.topic_partition), now_ms)


def _remember(log: PartitionLog, done: Cleaned, now_ms: int) -> None:
    facts = log.cleaning
    facts.cleaned_ms, facts.end_offset = now_ms, done.end_offset
    facts.read_bytes, facts.written_bytes = done.stats.bytes_read, done.stats.bytes_written
    counters = log.counters
    counters.compactions += 1
    counters.compacted_bytes_in += done.stats.bytes_read
    counters.compacted_bytes_out += done.stats.bytes_written
    counters.compaction_s += done.stats.elapsed_s
