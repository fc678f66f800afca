"""What a compaction is given from outside, and what it counts."""

from collections.abc import Callable
from dataclasses import dataclass


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
