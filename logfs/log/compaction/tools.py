"""What a compaction gets from its caller, and the numbers it reports.

``Throttle`` implements ``log.cleaner.io.max.bytes.per.second``. Source: Kafka Throttler.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from logfs.disk.vfs import File
from logfs.errors import CorruptRecordError
from logfs.records.layout import size_of

_SHORTEST_PAUSE_S = 0.02
"""Shorter pauses are added up: a thread that sleeps wakes up late."""


def _ignore(_: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class CleaningTools:
    """What a compaction works with.

    Attributes:
        new_id: Gives 16 random bytes.
        clock_s: A clock that only goes on, in seconds.
        spend: Told of bytes before they are read and after they were written. It may wait, and
            raises CleaningAbortedError to end the compaction.
        map_bytes: Memory for keys, ``log.cleaner.dedupe.buffer.size`` for one thread.
        load_factor: Share of it that is filled, ``log.cleaner.io.buffer.load.factor``.
        piece_bytes: Bytes read at once.
        advance: Told of bytes that were dealt with, for those who watch.
    """

    new_id: Callable[[], bytes]
    clock_s: Callable[[], float]
    spend: Callable[[int], None] = _ignore
    map_bytes: int = 128 * 1024 * 1024
    load_factor: float = 0.9
    piece_bytes: int = 256 * 1024
    advance: Callable[[int], None] = _ignore


@dataclass(slots=True)
class CleanerStats:
    """What one round of compaction did. Source: Kafka CleanerStats.

    Attributes:
        map_bytes_read: Bytes that were read for their keys.
        map_messages_read: Records of them.
        bytes_read, messages_read: What was filtered.
        bytes_written, messages_written: What is left of it.
        invalid_messages: Records without a key, which went.
        utilization: How full the map of keys was, 0 to 1.
        index_s: Seconds spent on the map.
        elapsed_s: Seconds spent in all.
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
        """Add what a further round did; of the map's utilization the larger counts."""
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
        if pause_s > _SHORTEST_PAUSE_S:
            self._sleep(pause_s)


def read_pieces(
    log: File,
    name: str,
    size_bytes: int,
    piece_bytes: int,
    take: Callable[[bytearray, int], int | None],
) -> int:
    """Hand a log over piece by piece.

    Args:
        log: The file.
        name: Its name, for messages.
        size_bytes: How many of its bytes are batches.
        piece_bytes: How many to read at once; more only for a batch that is larger.
        take: Called with a buffer that begins with a batch and how many of its bytes are meant;
            returns how many it has used up, whole batches, or None if it wants no more.

    Returns:
        How many bytes were used up.

    Raises:
        CorruptRecordError: A batch is cut, or ``take`` found it damaged; with file and position.
    """
    buffer, position = bytearray(min(piece_bytes, max(size_bytes, 1))), 0
    while position < size_bytes:
        size = min(len(buffer), size_bytes - position)
        if log.pread_into(memoryview(buffer)[:size], position) < size:
            raise CorruptRecordError(f"{name}: it ends before byte {position + size}", position)
        try:
            used = take(buffer, size)
        except CorruptRecordError as error:
            at = position + (error.position or 0)
            raise CorruptRecordError(f"{name} at byte {at}: {error}", at, name) from error
        if used is None:
            break
        position += used
        if used:
            continue
        wanted = size_of(buffer)
        if wanted <= size or wanted > size_bytes - position:
            raise CorruptRecordError(
                f"{name} at byte {position}: a batch of {wanted} bytes is cut", position, name
            )
        buffer = bytearray(wanted)
    return position
