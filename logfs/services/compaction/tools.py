"""What a compaction gets from its caller, and the numbers it reports.

``Throttle`` implements ``log.cleaner.io.max.bytes.per.second``. Source: Kafka Throttler.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from logfs.config import StoreConfig
from logfs.errors import CleaningAbortedError

_MAX_MAP_BYTES = 2**31 - 1
"""For one thread. Source: Kafka LogCleaner.CleanerThread."""
_MIN_PIECE_BYTES = 4096
_SHORTEST_PAUSE_S = 0.02
"""Shorter pauses are added up: a thread that sleeps wakes up late."""


def _ignore(_: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class CleaningTools:
    """Memory, clock and rate of a compaction.

    Attributes:
        new_id: Returns 16 random bytes.
        clock_s: A monotonic clock, in seconds.
        spend: Called with a number of bytes before they are read and after they were written. It
            may wait, and raises CleaningAbortedError to end the compaction.
        map_bytes: Memory for keys, ``log.cleaner.dedupe.buffer.size`` for one thread.
        load_factor: Share of the memory to fill, ``log.cleaner.io.buffer.load.factor``.
        piece_bytes: Number of bytes to read at once.
        advance: Called with a number of bytes that were filtered, to show progress.
    """

    new_id: Callable[[], bytes]
    clock_s: Callable[[], float]
    spend: Callable[[int], None] = _ignore
    map_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    piece_bytes: int = 256 * 1024
    advance: Callable[[int], None] = _ignore


def tools_for(
    config: StoreConfig,
    new_id: Callable[[], bytes],
    clock_s: Callable[[], float],
    sleep: Callable[[float], object],
    is_stopping: Callable[[], bool] = lambda: False,
) -> CleaningTools:
    """Return the tools that a configuration prescribes, for one of ``log.cleaner.threads``."""
    throttle = Throttle(config.log_cleaner_io_max_bytes_per_second, clock_s, sleep)
    threads = max(1, config.log_cleaner_threads)

    def spend(size_bytes: int) -> None:
        throttle.spend(size_bytes)
        if is_stopping():
            raise CleaningAbortedError("a compaction ends before it is done: logfs stops")

    return CleaningTools(
        new_id,
        clock_s,
        spend,
        min(config.log_cleaner_dedupe_buffer_size // threads, _MAX_MAP_BYTES),
        config.log_cleaner_io_buffer_load_factor,
        max(config.log_cleaner_io_buffer_size // threads // 2, _MIN_PIECE_BYTES),
    )


@dataclass(slots=True)
class CleanerStats:
    """The numbers of one round of compaction. Source: Kafka CleanerStats.

    Attributes:
        map_bytes_read, map_messages_read: Bytes and records that were read for their keys.
        bytes_read, messages_read: Bytes and records that were filtered.
        bytes_written, messages_written: Bytes and records that were kept.
        invalid_messages: Records without a key, which were removed.
        utilization: How full the map of keys was, 0 to 1.
        index_s: Seconds for the map.
        elapsed_s: Seconds in all.
    """

    map_bytes_read: int = 0
    map_messages_read: int = 0
    bytes_read: int = 0
    messages_read: int = 0
    bytes_written: int = 0
    messages_written: int = 0
    invalid_messages: int = 0
    utilization: float = 0.0
    index_s: float = 0.0
    elapsed_s: float = 0.0

    def add(self, other: "CleanerStats") -> None:
        """Add the numbers of another round; ``utilization`` becomes the larger of the two."""
        self.map_bytes_read += other.map_bytes_read
        self.map_messages_read += other.map_messages_read
        self.bytes_read += other.bytes_read
        self.messages_read += other.messages_read
        self.bytes_written += other.bytes_written
        self.messages_written += other.messages_written
        self.invalid_messages += other.invalid_messages
        self.utilization = max(self.utilization, other.utilization)
        self.index_s += other.index_s
        self.elapsed_s += other.elapsed_s


class Throttle:
    """A rate that all compactions share; ``sleep`` takes seconds. Any thread may call."""

    def __init__(
        self,
        bytes_per_second: float,
        clock_s: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock_s = clock_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_s = 0.0

    def spend(self, size_bytes: int) -> None:
        """Account for bytes, and wait as long as the rate requires."""
        with self._lock:
            now_s = self._clock_s()
            self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_second
            pause_s = self._free_s - now_s
        if pause_s > _SHORTEST_PAUSE_S:
            self._sleep(pause_s)
