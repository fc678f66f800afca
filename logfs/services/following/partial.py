"""A log from the middle on, while the positions of what is before it are not known yet.

In a large directory that was never seen before, the positions of ``orders/0`` are known only when
all of it has been read. A selector by offset or time needs no more than its own range: it gets a
its own log that begins with the segment in which the range begins, at position 0.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from logfs.disk.vfs import Disk
from logfs.errors import CorruptRecordError
from logfs.log.indexes.index import TIME_INDEX, decode_time_entry
from logfs.log.names import FileKind, format_segment_file
from logfs.log.reading.address import (
    AtByte,
    AtGroup,
    AtOffset,
    Earliest,
    Latest,
    Now,
    PartitionAddress,
    Point,
    Time,
)
from logfs.log.reading.lookup import offset_for_time
from logfs.log.reading.readable import ReadableLog
from logfs.services.following.entries import read_last
from logfs.services.following.files import FollowContext
from logfs.services.following.followed import FollowedLog
from logfs.services.following.listing import list_logs
from logfs.services.following.loading import follow_partial

_STEP_BYTES = 1024 * 1024


class PartialLogs:
    """The parts that are in use. May be used by several threads."""

    def __init__(self, following: FollowContext) -> None:
        self._following = following
        self._parts: WeakValueDictionary[tuple[str, int], FollowedLog] = WeakValueDictionary()
        self._lock = threading.Lock()

    def all(self) -> list[FollowedLog]:
        """Return all parts."""
        with self._lock:
            return list(self._parts.values())

    def for_range(
        self, log: ReadableLog, address: PartitionAddress, now_ms: int
    ) -> tuple[FollowedLog, PartitionAddress] | None:
        """Return the part of a log for a range, and the address in it; None: all is needed."""
        disk, directory = self._following.disk, log.directory
        bases = sorted(list_logs(disk, directory, now_ms).logs)
        base = first_segment(disk, directory, bases, address.start, now_ms) if bases else None
        if base is None or isinstance(address.end, AtByte | Earliest):
            return None
        part, start = self._part(log, base, now_ms), address.start
        read_range(part, address, now_ms)
        if isinstance(start, AtOffset) and start.n < 0:
            # Counted back from the end, which is known now.
            start = AtOffset(max(part.log_end_offset + start.n, bases[0]))
            address = replace(address, start=start)
            part = self._part(log, max(b for b in bases if b <= start.n), now_ms)
            read_range(part, address, now_ms)
        return part, address

    def _part(self, log: ReadableLog, base_offset: int, now_ms: int) -> FollowedLog:
        with self._lock:
            key = f"{log.topic_id} {log.directory}", base_offset
            part = self._parts.get(key)
            if part is None:
                part = self._parts[key] = follow_partial(self._following, log, base_offset, now_ms)
            return part


def first_segment(
    disk: Disk, directory: str, bases: Sequence[int], point: Point | None, now_ms: int
) -> int | None:
    """Choose the segment with which a range begins; None if that takes the whole log."""
    match point:
        case AtOffset(n) if n >= 0:
            return max((base for base in bases if base <= n), default=bases[0])
        case AtOffset() | Latest():
            return bases[-1]
        case Time():
            return _first_reaching(disk, directory, bases, point.at(now_ms))
        case None | AtByte() | Earliest() | AtGroup():
            return None


def _first_reaching(disk: Disk, directory: str, bases: Sequence[int], timestamp_ms: int) -> int:
    """Return the first segment whose time index reaches a moment; the last one always may."""
    for base in bases[:-1]:
        name = format_segment_file(base, FileKind.TIME_INDEX)
        last = read_last(disk, f"{directory}/{name}", TIME_INDEX.entry_bytes)
        # An index without entries says nothing.
        if not last or decode_time_entry(last, 0, base).timestamp >= timestamp_ms:
            return base
    return bases[-1]


def read_range(part: FollowedLog, address: PartitionAddress, now_ms: int) -> None:
    """Read on until the points of a range are known, or all there is has been read."""
    points = [p for p in (address.start, address.end) if p is not None]
    while not all(_is_reached(part, point, now_ms) for point in points):
        if not part.refresh(now_ms, _STEP_BYTES) and part.is_caught_up:
            break


def _is_reached(part: FollowedLog, point: Point, now_ms: int) -> bool:
    """Whether what has been read says where a point is."""
    if part.is_caught_up:
        return True
    match point:
        case AtOffset(n) if n >= 0:
            return part.log_end_offset > n
        case Time() if not isinstance(point, Now):
            return _has_time(part, point.at(now_ms))
        case _:
            return False


def _has_time(part: FollowedLog, timestamp_ms: int) -> bool:
    try:
        return offset_for_time(part.snapshot, timestamp_ms) is not None
    except CorruptRecordError:
        return True
