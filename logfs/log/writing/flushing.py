"""Making a partition durable, once for everybody who asks at the same time.

A flush costs milliseconds and covers everything appended before it began. Whoever asks while one
is under way waits for it, and returns without an fsync of his own if it covered him.

The active segment's ``.log`` alone is synced by a flush: its indexes are rebuilt after a power cut,
since recovery scans the segment that holds the recovery point. Those of a sealed segment are synced
before the recovery point moves past it.

A flush can be begun without waiting for it (``begin``), if it takes no more than that one fsync. It
is treated as one that is under way until somebody has taken note of how it ended: whoever began it
(``end``), or whoever comes in between and has to wait for it.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from logfs.disk.vfs import Disk, File, Sync, Syncs
from logfs.log.counters import LogCounters
from logfs.log.segments.segment import Segment, SegmentFiles
from logfs.log.segments.snapshot import Snapshot
from logfs.log.segments.table import SegmentTable


class Flush(NamedTuple):
    """A flush whose fsync goes on by itself.

    ``end_offset`` is the first offset that it does not cover, ``started_s`` when it began.
    """

    sync: Sync
    end_offset: int
    started_s: float


class Flusher:
    """The flushes of one partition; any thread may call.

    Args:
        disk: The data directory.
        directory: That of the partition.
        table: Its segment table; None if it is only read.
        recovery_point: Where to go on.
        counters: Told how long flushes take.
        clock_s: Seconds that only go forward.

    Attributes:
        recovery_point: First offset that is not known to be durable.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        table: SegmentTable | None,
        recovery_point: int,
        counters: LogCounters,
        clock_s: Callable[[], float],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._table = table
        self._counters = counters
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._sealed: list[tuple[Segment, SegmentFiles, Sequence[File]]] = []
        self._has_new_names = False
        self._failure: OSError | None = None
        self._begun: Flush | None = None
        self.recovery_point = recovery_point

    @property
    def has_sealed(self) -> bool:
        """Whether a sealed segment waits to be made durable."""
        return bool(self._sealed)

    def add_sealed(self, segment: Segment, files: SegmentFiles, others: Sequence[File]) -> None:
        """Note a segment that was sealed, and that its successor has new names.

        ``others`` go with its indexes: what recovery does not make again once it is durable.
        """
        self._sealed.append((segment, files, others))
        self._has_new_names = True

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep flushes out while the log is being cut.

        Raises:
            OSError: The flush that was under way has failed.
        """
        with self._lock:
            with self._final_failure():
                self._finish()
            yield

    def lower(self, offset: int) -> None:
        """Nothing from an offset on is treated as durable any more. While paused."""
        self.recovery_point = min(self.recovery_point, offset)

    def truncated(self, offset: int) -> None:
        """The log was cut to an offset, what is left of it made durable. While paused."""
        self._sealed = [row for row in self._sealed if row[0].next_offset <= offset]
        self.recovery_point = min(self.recovery_point, offset)
        self._has_new_names = True

    def flush(self, snapshot: Callable[[], Snapshot], wanted: int) -> None:
        """Return once every record below the offset ``wanted`` is durable.

        Raises:
            OSError: It is not; see ``vfs.File.sync``: final, so every later call raises it too.
        """
        if self.recovery_point >= wanted:
            return
        with self._lock, self._final_failure():
            self._finish()
            if self.recovery_point >= wanted:
                return
            started_s = self._clock_s()
            now = snapshot()
            self._flush_sealed()
            now.active.files().log.sync()
            self._counters.flush_s.observe(self._clock_s() - started_s)
            self.recovery_point = max(self.recovery_point, now.end.offset)

    def begin(self, snapshot: Callable[[], Snapshot], syncs: Syncs) -> Flush | None:
        """Begin a flush of everything that is there now, which goes on by itself. Never waits.

        Returns:
            The flush, for ``end``; None: it takes more than an fsync of the active segment, the
            disk cannot, or another flush is under way.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._begun is not None or self._failure is not None:
                return None
            started_s = self._clock_s()
            now = snapshot()
            # Only now: what was sealed before is known.
            if self._sealed or self._has_new_names:
                return None
            sync = now.active.files().log.begin_sync(syncs)
            if sync is not None:
                self._begun = Flush(sync, now.end.offset, started_s)
            return self._begun
        finally:
            self._lock.release()

    def end(self, flush: Flush) -> bool:
        """Take note of a flush that was begun and whose sync is done. Never waits.

        Returns:
            Whether what it covers is durable. If not, it has failed, or another thread is about to
            take note of it: ``flush`` waits for that, and knows.
        """
        if self._begun is flush:
            if flush.sync.has_failed or not self._lock.acquire(blocking=False):
                return False
            try:
                self._finish()
            finally:
                self._lock.release()
        return self._failure is None

    def flush_sealed(self) -> None:
        """Make the segments durable that were sealed, and move the recovery point after them."""
        with self._lock, self._final_failure():
            self._finish()
            self._flush_sealed()

    def _finish(self) -> None:
        """Wait for the flush that was begun, if any, and take note of it. With the lock."""
        flush = self._begun
        if flush is None:
            return
        try:
            flush.sync.wait()
        finally:
            self._begun = None
        self._counters.flush_s.observe(self._clock_s() - flush.started_s)
        self.recovery_point = max(self.recovery_point, flush.end_offset)

    @contextlib.contextmanager
    def _final_failure(self) -> Iterator[None]:
        """Keep whoever waited for a flush that failed from trusting one of his own."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except OSError as error:
            self._counters.failed_flushes += 1
            self._failure = error
            raise

    def _flush_sealed(self) -> None:
        sealed = list(self._sealed)
        for _, files, others in sealed:
            files.log.sync()
            for index in files.indexes.all():
                index.sync()
            for file in others:
                file.sync()
        if self._has_new_names:
            self._has_new_names = False
            self._disk.sync_directory(self._directory)
        if sealed and self._table is not None:
            self._table.sync()
        for segment, _, _ in sealed:
            segment.close_files()
            self.recovery_point = max(self.recovery_point, segment.next_offset)
        del self._sealed[: len(sealed)]
