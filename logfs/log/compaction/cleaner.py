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
from dataclasses import dataclass
from typing import NamedTuple

from logfs.disk.vfs import DISK_FULL
from logfs.errors import (
    CleaningAbortedError,
    DeletedError,
    LogfsError,
    LogOfflineError,
)
from logfs.log.catalog import Catalog
from logfs.log.cleanercheckpoint import note_cleaned, read_cleaner_offsets
from logfs.log.compaction.dirtyrange import DirtyRange, find_dirty_range
from logfs.log.compaction.rounds import clean
from logfs.log.compaction.tools import CleanerStats, CleaningTools
from logfs.log.partition import PartitionLog
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_PASSING = DISK_FULL | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors after which a log can be compacted another time."""


@dataclass(frozen=True, slots=True)
class CleanerMetrics:
    """One look at the cleaner.

    Attributes:
        max_buffer_utilization_percent: How full the map of keys was in the last round, of any
            thread. (Kafka's own is always 0 or 100.)
        cleaner_recopy_percent: Bytes written by the last rounds, of those they read.
        max_clean_time_secs: Longest of the last rounds.
        max_compaction_delay_secs: For how long a log has been overdue under max.compaction.lag.ms.
        dead_thread_count: Threads that have ended; always 0, a failure ends none.
        uncleanable_partitions_count: Partitions that failed and are left alone until a restart.
        uncleanable_bytes: What could be cleaned of them.
        max_dirty_percent: Of the dirtiest log, cleanable bytes.
        time_since_last_run_ms: Since it was last looked for something to clean; None if never.
    """

    max_buffer_utilization_percent: int = 0
    cleaner_recopy_percent: int = 0
    max_clean_time_secs: int = 0
    max_compaction_delay_secs: int = 0
    dead_thread_count: int = 0
    uncleanable_partitions_count: int = 0
    uncleanable_bytes: int = 0
    max_dirty_percent: int = 0
    time_since_last_run_ms: int | None = None

    def by_name(self) -> dict[str, int | None]:
        """Return the numbers under the names that Kafka's metrics have."""
        return {
            "max-buffer-utilization-percent": self.max_buffer_utilization_percent,
            "cleaner-recopy-percent": self.cleaner_recopy_percent,
            "max-clean-time-secs": self.max_clean_time_secs,
            "max-compaction-delay-secs": self.max_compaction_delay_secs,
            "DeadThreadCount": self.dead_thread_count,
            "uncleanable-partitions-count": self.uncleanable_partitions_count,
            "uncleanable-bytes": self.uncleanable_bytes,
            "max-dirty-percent": self.max_dirty_percent,
            "time-since-last-run-ms": self.time_since_last_run_ms,
        }


class Chosen(NamedTuple):
    """A log that is compacted next, and what of it."""

    log: PartitionLog
    dirt: DirtyRange


class LogCleaner:
    """Compacts the logs of a store. Any thread may call; each log is compacted by one at a time."""

    def __init__(self, store: Catalog[PartitionLog]) -> None:
        self._store = store
        self._last: dict[object, CleanerStats] = {}
        self._looked_ms: int | None = None
        self._dirtiest = 0.0
        self._delay_ms = 0

    def clean_dirtiest(self, now_ms: int, tools: CleaningTools, thread: object = None) -> bool:
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

        Nobody else compacts it until ``clean`` or ``release`` is called.
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
            self.release(chosen)

    def release(self, chosen: Chosen) -> None:
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
            sum(
                find_dirty_range(
                    log.snapshot, log.config, offsets.get(log.topic_partition), now_ms
                ).cleanable_bytes
                for log in bad
            ),
            int(100 * self._dirtiest),
            None if self._looked_ms is None else now_ms - self._looked_ms,
        )

    def _due(self, now_ms: int) -> list[tuple[PartitionLog, DirtyRange]]:
        """Return the logs that are due, the dirtiest first."""
        self._looked_ms = now_ms
        offsets = self._offsets()
        found = []
        self._delay_ms = 0
        for log in self._candidates():
            if now_ms < log.cleaning.paused_until_ms:
                continue
            dirt = find_dirty_range(
                log.snapshot, log.config, offsets.get(log.topic_partition), now_ms
            )
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
        dirt: DirtyRange,
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
