"""The cleaner in numbers, under Kafka's names.

Source: Kafka LogCleaner, LogCleanerManager (kafka.log:type=LogCleaner and LogCleanerManager).
"""

from dataclasses import dataclass


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
