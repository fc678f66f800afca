"""``log.cleaner.io.max.bytes.per.second``: how fast compaction reads and writes.

Source: Kafka Throttler.
"""

import threading
from collections.abc import Callable

SHORTEST_PAUSE_S = 0.02
"""Shorter ones are saved up: a thread that sleeps wakes up late."""


class Throttle:
    """A rate that all compactions share. Any thread may call.

    Args:
        bytes_per_second: What they may read and write together.
        clock_s: A clock that only goes on, in seconds.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self, bytes_per_second: float, clock_s: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock_s = clock_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_s = 0.0

    def spend(self, size_bytes: int) -> None:
        """Account for bytes, and wait as long as it takes to keep to the rate."""
        with self._lock:
            now_s = self._clock_s()
            self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_second
            pause_s = self._free_s - now_s
        if pause_s > SHORTEST_PAUSE_S:
            self._sleep(pause_s)
