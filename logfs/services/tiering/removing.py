"""Tiered segments that the log has dropped go from the store.

By then the log start has moved, durably: by retention, by a trim, or because tiered storage was
switched off. First the head loses their entries, in the same swap in which their objects are noted
as doomed. Other machines may still read by an older head. So the objects are deleted after
``file.delete.delay.ms``, and at least ``SHORTEST_DELAY_MS``. At last the head forgets them.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from logfs.disk.remote.objects import ObjectStore
from logfs.log.remote.entries import TIERED_ENTRY_BYTES, TieredEntry
from logfs.log.remote.head import Doomed, Head, SpilledTable, decode_table
from logfs.log.remote.keys import PartitionPlace
from logfs.log.segments.snapshot import LogPoint
from logfs.services.tiering.heads import HeadWriter

logger = logging.getLogger(__name__)

SHORTEST_DELAY_MS = 600_000
DELETED_AT_ONCE = 1000
"""Objects that are deleted before the head is changed again."""


class Removed(NamedTuple):
    """What was done.

    Attributes:
        segments: Entries that the head has lost.
        objects: Objects that were deleted.
        waiting: Objects that are still to be deleted.
    """

    segments: int
    objects: int
    waiting: int


class DroppedSegments:
    """Finds the entries that a head loses when the log start moves.

    The last table that was read is kept: the log start moves through the entries of one table for a
    long time.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._table: tuple[str, tuple[TieredEntry, ...]] = "", ()

    def between(self, head: Head, start: LogPoint) -> list[TieredEntry]:
        """Return the entries of a head that end after its log start and not after another one."""
        return [
            entry
            for entry in self._entries(head, start)
            if head.start.offset < entry.next_offset <= start.offset
        ]

    def _entries(self, head: Head, start: LogPoint) -> Iterator[TieredEntry]:
        for table in head.tables:
            if table.next_offset > head.start.offset and table.first_offset < start.offset:
                yield from self._read(table)
        yield from head.entries

    def _read(self, table: SpilledTable) -> tuple[TieredEntry, ...]:
        if self._table[0] != table.key:
            data, _ = self._store.get(table.key, table.entry_count * TIERED_ENTRY_BYTES)
            self._table = table.key, decode_table(data, table, f"{self._store.url}/{table.key}")
        return self._table[1]


def doom_dropped(writer: HeadWriter, dropped: DroppedSegments, start: LogPoint, now_ms: int) -> int:
    """Let the head begin at a log start; returns how many segments it has lost.

    Raises:
        FencedError: Another process writes the partition to the store.
        OSError: The store failed; the head may begin there.
    """
    gone: list[TieredEntry] = []

    def move(head: Head) -> Head:
        gone.clear()
        if start.offset <= head.start.offset:
            return head
        gone.extend(dropped.between(head, start))
        tables = tuple(t for t in head.tables if t.next_offset > start.offset)
        keys = [*_keys(writer.place, gone), *(t.key for t in head.tables if t not in tables)]
        return replace(
            head,
            start=start,
            entries=tuple(e for e in head.entries if e.next_offset > start.offset),
            tables=tables,
            doomed=(*head.doomed, *(Doomed(key, now_ms) for key in keys)),
        )

    writer.change(move)
    return len(gone)


def delete_doomed(
    writer: HeadWriter, delay_ms: int, now_ms: int, is_used: Callable[[str], bool]
) -> tuple[int, int]:
    """Delete the doomed objects that are due; returns how many, and how many still wait.

    Args:
        writer: The writer of the head.
        delay_ms: ``file.delete.delay.ms``.
        now_ms: The clock.
        is_used: Whether an open file still reads the object with a key.

    Raises:
        FencedError, OSError: See ``doom_dropped``.
    """
    due_ms = now_ms - max(delay_ms, SHORTEST_DELAY_MS)
    doomed = writer.head().doomed
    due = [row for row in doomed if row.since_ms <= due_ms and not is_used(row.key)]
    for start in range(0, len(due), DELETED_AT_ONCE):
        part = due[start : start + DELETED_AT_ONCE]
        for row in part:
            writer.store.delete(row.key)
        gone = {row.key for row in part}
        writer.change(
            lambda head, gone=gone: replace(  # type: ignore[misc]
                head, doomed=tuple(row for row in head.doomed if row.key not in gone)
            )
        )
    return len(due), len(doomed) - len(due)


def remove_partition(
    writer: HeadWriter, dropped: DroppedSegments, delay_ms: int, now_ms: int
) -> bool:
    """Delete everything that the store has of a partition; returns whether that is done.

    The head goes last. Until then it says what is left to do.

    Args:
        writer: That of the head; has fenced other writers.
        dropped: Finds the entries of the same partition.
        delay_ms: ``file.delete.delay.ms``.
        now_ms: The clock.

    Raises:
        FencedError, OSError: See ``doom_dropped``.
    """
    head = writer.head()
    if head.next_offset is not None:
        end = LogPoint(head.next_offset, head.start.positions)
        doom_dropped(writer, dropped, end, now_ms)
    _, waiting = delete_doomed(writer, delay_ms, now_ms, lambda _: False)
    if waiting:
        return False
    writer.remove()
    return True


def _keys(place: PartitionPlace, entries: list[TieredEntry]) -> Iterator[str]:
    for entry in entries:
        yield place.log(entry.base_offset, entry.segment_id)
        yield place.indexes(entry.base_offset, entry.segment_id)
