"""Records that a query wants as the lines of a view, without an object for each.

One thread reads a window of the log after the other. Others search them meanwhile, if there is
enough to search and native code can do it alone; the lines come in the order of the log.
"""

import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logfs.errors import CorruptRecordError
from logfs.log.reading.offsetcursor import OffsetCursor
from logfs.log.reading.records import hidden_transactions, unreadable
from logfs.log.segments.batches import Window
from logfs.log.segments.snapshot import Snapshot
from logfs.records._reading import RecordSearch, matched_lines
from logfs.records.compression import decompress
from logfs.types import Closeable, IsolationLevel, View

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

_WINDOW_BYTES = 2 << 20
_THREADS = 2
_FEW_WINDOWS = 4
"""Starting threads takes longer than they would save with less than that."""


_Found = tuple[bytes, int, int]


class _Searched(NamedTuple):
    """A window and what is found in it: lines, where the search ended, and the offset there."""

    window: Window
    found: "Future[_Found] | _Found"


class LineReader(OffsetCursor, Closeable):
    """Reads the records that a search takes. One user at a time.

    Args:
        offset: The offset to begin at; one that is not kept any more means the next that is.
        search: Which records to take.
        view: The form of the lines.
        window_bytes: How much of a log is searched at a time, unless a batch is larger.
        threads: How many search, if there is enough for them.

    Attributes:
        offset: Every record before it that is kept and seen has been searched, and returned if it
            is wanted.
    """

    def __init__(  # noqa: PLR0913 - what is read, and how
        self,
        snapshot: Callable[[], Snapshot],
        offset: int,
        level: IsolationLevel,
        search: RecordSearch,
        view: View,
        *,
        window_bytes: int = _WINDOW_BYTES,
        threads: int = _THREADS,
    ) -> None:
        super().__init__(offset)
        self._snapshot = snapshot
        self._level = level
        self._search = search
        self._view = view
        self._window_bytes = window_bytes
        self._most_threads = min(threads, _processors()) if search.is_native else 1
        self._free: list[Window] = []
        self._ahead = deque[_Searched]()
        self._threads: Executor | None = None

    def read(self, stop: int) -> bytes:
        """Return the next lines, those of one window; nothing only at ``stop`` or at the end.

        Raises:
            CorruptRecordError: The next batch is damaged; ``offset`` is before it.
            FileNotFoundError: Another process has just removed or replaced a file: the snapshot
                is out of date.
        """
        while True:
            snapshot = self._snapshot()
            end = min(stop, snapshot.visible_end(self._level).offset)
            self._begin(snapshot)
            if self.offset >= end:
                return b""
            if lines := self._read_some(snapshot, end):
                return lines

    def close(self) -> None:
        """Wait for the threads and end them."""
        self._drop_ahead()
        if self._threads is not None:
            self._threads.shutdown()

    def _read_some(self, snapshot: Snapshot, end: int) -> bytes:
        """Search what one window holds; nothing if that has no wanted record, or at a border."""
        before, number = self._segment, self._enter(snapshot)
        if self._segment is not before:
            self._drop_ahead()
        if number is None:
            return b""
        segment, next_offset = snapshot.segments[number], snapshot.end_of(number)[1]
        try:
            self._look_ahead(snapshot, number, end)
            if not self._ahead:
                self.offset = next_offset  # what was here has been compacted away
                return b""
            return self._take()
        except CorruptRecordError as error:
            self._drop_ahead()
            self._fail()
            raise unreadable(segment, self.offset, self._position, error) from None

    def _look_ahead(self, snapshot: Snapshot, number: int, end: int) -> None:
        """Read windows and have them searched, until enough are; raise for the first one only."""
        segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
        aborted = hidden_transactions(snapshot, number, self._level)
        is_large = file_end - self._position >= _FEW_WINDOWS * self._window_bytes
        if self._threads is None and is_large and self._most_threads > 1:
            self._threads = _new_threads(self._most_threads)
        most = 1 if self._threads is None else self._most_threads + 1
        while len(self._ahead) < most and self._position < file_end:
            window = self._free.pop() if self._free else Window()
            try:
                log, position = segment.files().log, self._position
                window.load(log, position, file_end, self._window_bytes, True, self._after)
            except (CorruptRecordError, OSError):
                if self._ahead:
                    return
                raise
            self._position, self._after = window.file_end, window.after
            search = partial(self._find, window, self.offset, end, aborted)
            found = search() if self._threads is None else self._threads.submit(search)
            self._ahead.append(_Searched(window, found))

    def _find(self, window: Window, first: int, end: int, aborted: bytes) -> _Found:
        return matched_lines(
            window.buffer, 0, window.stop, first, end, decompress, aborted, self._search, self._view
        )

    def _take(self) -> bytes:
        """Return the lines of the first window."""
        window, found = self._ahead.popleft()
        lines, at, self.offset = found if isinstance(found, tuple) else found.result()
        self._free.append(window)
        if at < window.stop:  # damage, or the end
            self._drop_ahead()
            self._position, self._after = window.file_position + at, 0
        return lines

    def _drop_ahead(self) -> None:
        while self._ahead:
            window, found = self._ahead.popleft()
            if not isinstance(found, tuple) and not found.cancel():
                found.exception()  # waits
            self._free.append(window)


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _new_threads(count: int) -> "Executor":
    from concurrent.futures import ThreadPoolExecutor  # only here: it takes long to import

    return ThreadPoolExecutor(count)
