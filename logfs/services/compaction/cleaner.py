"""Which log is compacted next.

The dirtiest of the logs that are due is first (see ``dirtyrange``). A log whose compaction fails,
other than by a change of the log meanwhile, is *uncleanable*: it is not compacted until the next
start. The daemon's log and ``.meta`` say so.

Source: Kafka LogCleanerManager.grabFilthiestCompactedLog, LogCleaner.CleanerThread.
"""

import logging
from dataclasses import dataclass

from logfs.config import TopicConfig
from logfs.log.catalog import Catalog
from logfs.log.cleanercheckpoint import note_cleaned, read_cleaner_offsets
from logfs.log.counters import RewritingStatus
from logfs.log.partition import PartitionLog
from logfs.services.compaction.dirtyrange import DirtyRange, find_dirty_range
from logfs.services.compaction.rewriter import ChosenLog, LogRewriter
from logfs.services.compaction.rounds import clean
from logfs.services.compaction.tools import CleanerStats, CleaningTools
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CleanerMetrics:
    """The cleaner in numbers, at one time. Source: Kafka LogCleaner, LogCleanerManager.

    "Last round" is the last round of each thread.

    Attributes:
        max_buffer_utilization_percent: How full the fullest map of keys was in a last round.
            (Kafka's own is always 0 or 100.)
        cleaner_recopy_percent: Bytes that the last rounds wrote, of the bytes they read.
        max_clean_time_secs: Duration of the longest last round.
        max_compaction_delay_secs: For how long a log has been overdue under max.compaction.lag.ms.
        dead_thread_count: Threads that have ended; always 0, a failure ends none.
        uncleanable_partitions_count: Partitions whose compaction failed.
        uncleanable_bytes: Cleanable bytes of these partitions.
        max_dirty_percent: Cleanable bytes of the dirtiest log, of all its sealed bytes.
        time_since_last_run_ms: Time since the last search for a log to compact; None if none was.
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
        """Return the numbers by the names of Kafka's metrics."""
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


class LogCleaner(LogRewriter[DirtyRange]):
    """Compacts the logs of a store."""

    name = "compaction"

    def __init__(self, store: Catalog[PartitionLog]) -> None:
        super().__init__(store)
        self._last: dict[object, CleanerStats] = {}
        self._looked_ms: int | None = None
        self._dirtiest = 0.0
        self._delay_ms = 0

    def metrics(self, now_ms: int) -> CleanerMetrics:
        """Return the metrics of the cleaner."""
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
        for log in self._candidates(now_ms):
            if log.cleaning.uncleanable is not None:
                continue
            dirty = find_dirty_range(
                log.snapshot, log.config, offsets.get(log.topic_partition), now_ms
            )
            log.cleaning.dirty_ratio = dirty.ratio
            if dirty.is_checkpoint_wrong:
                self._note(log, dirty.first_dirty)
            self._delay_ms = max(self._delay_ms, dirty.delay_ms)
            found.append((log, dirty))
        self._dirtiest = max((dirty.ratio for _, dirty in found), default=0.0)
        due = [row for row in found if row[1].is_due(row[0].config)]
        return sorted(due, key=lambda row: row[1].ratio, reverse=True)

    def _is_wanted(self, config: TopicConfig) -> bool:
        return config.is_compacted

    def _status(self, log: PartitionLog) -> RewritingStatus:
        return log.cleaning

    def _rewrite(
        self, chosen: ChosenLog[DirtyRange], now_ms: int, tools: CleaningTools, thread: object
    ) -> None:
        done = clean(chosen.log, chosen.part, now_ms, tools)
        self._last[thread] = done.stats
        self._note(chosen.log, done.end_offset)

    def _give_up(self, chosen: ChosenLog[DirtyRange], error: Exception) -> None:
        chosen.log.cleaning.uncleanable = str(error)
        logger.warning(
            "%s is not compacted any more until the next start: %s",
            chosen.log.topic_partition, error,
        )  # fmt: skip

    def _offsets(self) -> dict[TopicPartition, int]:
        """Return where the last compactions ended, from the checkpoint file and from memory."""
        offsets = read_cleaner_offsets(self._store.disk)
        for log in self._store.all_partitions():
            if log.cleaning.unsaved_offset is not None:
                offsets[log.topic_partition] = log.cleaning.unsaved_offset
                self._note(log, log.cleaning.unsaved_offset)
        return offsets

    def _note(self, log: PartitionLog, offset: int) -> None:
        """Save where a compaction ended; if that fails the offset is kept, to be saved later."""
        existing = {found.topic_partition for found in self._store.all_partitions()}
        status = log.cleaning
        try:
            note_cleaned(self._store.disk, log.topic_partition, offset, existing)
        except OSError as error:
            if status.unsaved_offset is None:
                logger.warning("%s: where compaction ended is noted later: %s",
                               log.topic_partition, error)  # fmt: skip
            status.unsaved_offset = offset
        else:
            status.unsaved_offset = None
