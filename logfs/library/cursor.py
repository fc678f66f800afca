"""Iterators over the records of a partition, up to an offset or following new ones."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

from logfs.disk.watching import Watch
from logfs.errors import CorruptRecordError, DeletedError
from logfs.library.followed_directory import SETTLING_S, FollowedDirectory
from logfs.log.reading.address import Point
from logfs.log.reading.readable import ReadableLog
from logfs.log.reading.records import RecordReader, window_of
from logfs.records._reading import RecordSearch
from logfs.records.record import Record
from logfs.services.views.matched_lines import LineReader
from logfs.types import IsolationLevel, View

logger = logging.getLogger(__name__)

_MORE_OFFSETS = 4
LOOK_S = 1.0
"""The longest time between two looks of a follower, also if inotify reports nothing."""


class Cursor:
    """Reads the records of a partition one after the other. One thread at a time.

    Args:
        search: Which records to return; None: all.
        cursors: How many cursors are open at the same time: they share the memory.
    """

    def __init__(
        self,
        source: FollowedDirectory,
        log: ReadableLog,
        offset: int,
        level: IsolationLevel,
        *,
        search: RecordSearch | None = None,
        cursors: int = 1,
    ) -> None:
        self.source = source
        self._log = log
        self._level = level
        self._search = search
        self._reader = RecordReader(
            lambda: log.snapshot, offset, level, search=search, window_bytes=window_of(cursors)
        )

    @property
    def offset(self) -> int:
        """The offset of the next record to read."""
        return self._reader.offset

    def at(self, offset: int, *, is_for_all: bool = False) -> "Cursor":
        """Return another cursor over the log, at another offset; ``is_for_all``: of all records."""
        search = None if is_for_all else self._search
        return Cursor(self.source, self._log, offset, self._level, search=search)

    def start_of_last(self, count: int, stop: int) -> int:
        """Return the offset of the first of the last ``count`` wanted records before an offset.

        It is the first one that there is if there are fewer, and ``stop`` if there is none.
        """
        if not count:
            return stop
        step = count  # some offsets have no record
        while True:
            cursor = self.at(max(stop - step, 0))
            begin = cursor.offset
            last = deque[int](maxlen=min(count, stop + 1))
            while records := cursor.read(stop):
                last.extend(record.offset for record in records)
            if len(last) >= count or begin <= self._log.log_start_offset:
                return last[0] if last else stop
            step *= _MORE_OFFSETS

    def read(self, stop: int | None = None) -> list[Record]:
        """Return the next records, none at ``stop`` or at the end; raise CorruptRecordError."""
        while True:
            self._note_removed()
            try:
                return self._reader.read(stop)
            except (CorruptRecordError, FileNotFoundError):
                if not self.source.has_changed(self._log):
                    raise

    def lines(self, view: View, stop: int) -> Iterator[bytes]:
        """Yield the next records up to an offset as the lines of a view; see ``read``.

        ``offset`` moves on with each piece. Large logs are searched by several threads.
        """
        search = self._search or RecordSearch()
        with LineReader(
            lambda: self._log.snapshot, self.offset, self._level, search, view
        ) as reader:
            while True:
                self._note_removed()
                try:
                    text = reader.read(stop)
                except (CorruptRecordError, FileNotFoundError):
                    if not self.source.has_changed(self._log):
                        raise
                    continue
                finally:
                    self._reader.offset = max(self._reader.offset, reader.offset)
                if not text:
                    return
                yield text

    def refresh(self, *, is_around_known: bool = False) -> bool:
        """Load appends and removals; return True if there is more to read at once.

        See ``FollowedDirectory.refresh``.

        Raises:
            DeletedError: The topic was deleted.
        """
        has_more = self.source.refresh(self._log, is_around_known=is_around_known)
        if self._log.is_deleted:
            raise DeletedError(f"{self._log.topic_partition}: the topic has been deleted")
        return has_more

    def end_before(self, point: Point) -> int | None:
        """Return the offset at which to end before a point; None while no record has reached it."""
        return self.source.end_before(self._log, point, self._level)

    @property
    def is_settling(self) -> bool:
        """Whether the next look must confirm a change."""
        return self._log.is_settling

    def _note_removed(self) -> None:
        offset, start = self._reader.offset, self._log.log_start_offset
        if offset < start:
            logger.warning(
                "%s: offsets %d to %d were removed before they were read",
                self._log.topic_partition, offset, start,
            )  # fmt: skip
            self._reader.offset = start


def read_batches(cursor: Cursor, stop: int) -> Iterator[list[Record]]:
    """Yield the records up to an offset, in lists that are never empty."""
    while True:
        while records := cursor.read(stop):
            yield records
        if cursor.offset >= stop or not cursor.refresh():
            return


def follow_batches(
    cursor: Cursor,
    watch: Watch,
    stop: Point | None,
    timeout_s: float | None,
    is_over: Callable[[], bool],
    *,
    ticks: bool = False,
) -> Iterator[list[Record]]:
    """Yield present and new records, in lists that are never empty without ``ticks``.

    Args:
        watch: Watches the directories of the partition; closed at the end.
        stop: End at this point when a record reaches it; None: never.
        timeout_s: End when no record has come for so many seconds; None: never.
        ticks: Yield an empty list after each wait, which takes ``LOOK_S`` at most.
        is_over: Called when no record is left to yield; True ends the iterator.
    """
    with watch:
        since_s = time.monotonic()
        while not is_over():
            has_more = cursor.refresh()
            end = None if stop is None else cursor.end_before(stop)
            while records := cursor.read(end):
                yield records
                since_s = time.monotonic()
            if end is not None and cursor.offset >= end:
                return
            left_s = LOOK_S
            if timeout_s is not None:
                left_s = since_s + timeout_s - time.monotonic()
                if left_s <= 0:
                    return
            if not has_more:
                longest_s = SETTLING_S if cursor.is_settling else LOOK_S
                watch.wait(min(left_s, longest_s))
                if ticks:
                    yield []
