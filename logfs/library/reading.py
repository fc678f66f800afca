"""Iterators over the records of a partition: up to an offset, or for as long as records come."""

import logging
import time
from collections.abc import Callable, Iterator

from logfs.disk.watching import Watch
from logfs.errors import CorruptRecordError, DeletedError
from logfs.library.source import SETTLING_S, Source
from logfs.log.reading.address import Point
from logfs.log.reading.readable import ReadableLog
from logfs.log.reading.records import RecordReader
from logfs.records.record import Record
from logfs.types import IsolationLevel

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""A follower looks at least this often, whether it was told of a change or not."""


class Cursor:
    """A place in a partition that moves on. One thread at a time.

    Args:
        source: Where the partition is read from.
        log: The partition.
        offset: Where to begin.
        level: What is seen.

    Attributes:
        source: Where the partition is read from.
    """

    def __init__(
        self, source: Source, log: ReadableLog, offset: int, level: IsolationLevel
    ) -> None:
        self.source = source
        self._log = log
        self._level = level
        self._reader = RecordReader(lambda: log.snapshot, offset, level)

    @property
    def offset(self) -> int:
        """Everything before it has been read."""
        return self._reader.offset

    def read(self, stop: int | None = None) -> list[Record]:
        """Return the next records; none at ``stop``, or at the end as it was at the last look.

        Raises:
            CorruptRecordError: The next ones are damaged.
            OSError: The disk failed.
        """
        while True:
            self._note_removed()
            try:
                return self._reader.read(stop)
            except (CorruptRecordError, FileNotFoundError):
                if not self.source.has_changed(self._log):
                    raise

    def look(self, *, is_around_known: bool = False) -> bool:
        """Take notice of what was appended or removed; True if there is more to read at once.

        See ``Source.look``.

        Raises:
            DeletedError: The topic is gone.
        """
        has_more = self.source.look(self._log, is_around_known=is_around_known)
        if self._log.is_deleted:
            raise DeletedError(f"{self._log.topic_partition}: the topic has been deleted")
        return has_more

    def end_before(self, point: Point) -> int | None:
        """Return the offset at which to end before a point; None while nothing has reached it."""
        return self.source.end_before(self._log, point, self._level)

    @property
    def is_settling(self) -> bool:
        """Whether a change has been seen that the next look has to confirm."""
        return self._log.is_settling

    def _note_removed(self) -> None:
        offset, start = self._reader.offset, self._log.log_start_offset
        if offset < start:
            logger.warning(
                "%s: offsets %d to %d were removed before they were read",
                self._log.topic_partition, offset, start,
            )  # fmt: skip
            self._reader.offset = start


def read(cursor: Cursor, stop: int) -> Iterator[list[Record]]:
    """Yield what there is up to an offset, in batches that are never empty."""
    while True:
        while records := cursor.read(stop):
            yield records
        if cursor.offset >= stop or not cursor.look():
            return


def follow(
    cursor: Cursor,
    watch: Watch,
    stop: Point | None,
    timeout_s: float | None,
    is_over: Callable[[], bool],
) -> Iterator[list[Record]]:
    """Yield what there is and what comes, in batches that are never empty.

    Args:
        cursor: Where to begin.
        watch: Watches the directories in which something may change; closed at the end.
        stop: Where to end once that is reached; None: nowhere.
        timeout_s: Ends after so many seconds in which no record came; None: never.
        is_over: Asked whenever nothing is left to yield; True ends it.
    """
    with watch:
        since_s = time.monotonic()
        while not is_over():
            has_more = cursor.look()
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
