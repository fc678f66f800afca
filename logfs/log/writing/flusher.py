"""Making a partition durable: callers that ask at the same time share one fsync.

A flush costs milliseconds and covers everything appended before it began. A caller that asks while
one is under way waits for it, and needs no other fsync if it covered the caller's records.

The active segment's ``.log`` alone is synced by a flush: its indexes are rebuilt after a power cut,
since recovery scans the segment that holds the recovery point. Those of a sealed segment are synced
before the recovery point moves past it.

A flush can be begun without waiting for it (``begin``), if it takes no more than that one fsync. It
is treated as under way until its result has been noted: by the caller that began it (``end``), or
by another caller that has to wait for it.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logfs.disk.vfs import File, Sync, Syncs
from logfs.log.losses import REMOVED, Loss, log_loss
from logfs.log.segments.segment import Segment, SegmentFiles
from logfs.log.writing.state import PartitionState


class Flush(NamedTuple):
    """A flush whose fsync runs by itself.

    ``end_offset`` is the first offset that it does not cover, ``started_s`` when it began.
    """

    sync: Sync
    segment: Segment
    log: File
    end_offset: int
    started_s: float


class Flusher:
    """Makes a partition durable; any thread may call, beside appends."""

    def __init__(self, state: PartitionState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._sealed: list[tuple[Segment, SegmentFiles | None, Sequence[File]]] = []
        self._has_new_names = False
        self._failure: OSError | None = None
        self._begun: Flush | None = None

    def flush(self) -> None:
        """Return once everything appended before the call is durable.

        Raises:
            LogOfflineError: An earlier write or fsync failed, so nothing can be promised.
            DeletedError: The topic was deleted.
            OSError: This fsync failed; the log is offline from now on. With ENOSPC the log is as
                before: it was loaded from a full disk, and there is still no room.
        """
        state = self._state
        if state.offline is not None or state.is_deleted:
            state.check_writable()
        if state.deferred is not None and not self.is_durable(state.snapshot.end.offset):
            self._finish_before_flush()
        # First: what is appended from now on is noted again, and may not be covered.
        state.unflushed_since_ms = None
        with state.offline_on_failure("fsync"):
            state.line_files.sync()
            self.flush_to(state.snapshot.end.offset)
        self.remove_durable_lines()

    def is_durable(self, offset: int) -> bool:
        """Whether a ``flush`` that is to cover every record below an offset would do nothing."""
        state = self._state
        return (
            state.recovery_point >= offset
            and state.offline is None
            and not state.is_deleted
            and state.line_files.are_settled
        )

    def begin(self, syncs: Syncs) -> Flush | None:
        """Begin what ``flush`` does, in the background, if it is a single fsync. Never waits.

        The caller calls ``end`` when the sync comes out of ``syncs``. Meanwhile any thread may
        call any other method.

        Returns:
            None: it takes more than that, or another flush is under way; ``flush`` does it all.
        """
        state = self._state
        if state.offline is not None or state.is_deleted or not state.line_files.are_settled:
            return None
        if state.deferred is not None:
            return None
        # First, as in ``flush``.
        since_ms, state.unflushed_since_ms = state.unflushed_since_ms, None
        begun = self._begin(syncs)
        if begun is None and state.unflushed_since_ms is None:
            state.unflushed_since_ms = since_ms
        return begun

    def end(self, flush: Flush) -> bool:
        """Take note of a flush that was begun and whose sync is done. Never waits.

        Returns:
            Whether what it covers is durable. If not, it has failed, or another thread is about to
            take note of it: ``flush`` waits for that, and knows.
        """
        if self._begun is flush:
            has_failed = flush.sync.has_failed or self._state.lock.sync_error
            has_failed = has_failed or not flush.log.has_name()
            if has_failed or not self._lock.acquire(blocking=False):
                return False
            try:
                self._finish()
            finally:
                self._lock.release()
        return self._failure is None

    @property
    def has_sealed(self) -> bool:
        """Whether a sealed segment waits to be made durable."""
        return bool(self._sealed)

    @property
    def takes_one_sync(self) -> bool:
        """Whether a sync of the active ``.log`` makes all records durable. With the lock."""
        is_more = self._sealed or self._has_new_names or self._failure is not None
        return not is_more and self._state.line_files.are_settled

    def add_sealed(self, segment: Segment, files: SegmentFiles, others: Sequence[File]) -> None:
        """Note a segment that was sealed, and that its successor has new names.

        ``others`` go with its indexes: what recovery does not make again once it is durable.
        """
        self._sealed.append((segment, files, others))
        self._has_new_names = True

    def forget(self, segment: Segment, is_replaced: bool) -> None:
        """Sync a segment no more, and close its files: it was deleted, with all before it.

        If another one replaces it, that one is durable, and what goes with it is still to be.
        """
        for number, row in enumerate(self._sealed):
            if row[0] is segment and is_replaced:
                self._sealed[number] = segment, None, row[2]
            elif row[0] is segment:
                self._remove(row)
                self._state.recovery_point = max(self._state.recovery_point, segment.next_offset)
                return

    def forget_all(self) -> None:
        """Close the files of all sealed segments: nothing is synced any more."""
        self._sealed.clear()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep flushes out while the log is being cut; raise the OSError of one under way."""
        with self._lock:
            with self._final_failure():
                self._finish()
            yield

    def lower(self, offset: int) -> None:
        """Nothing from an offset on is treated as durable any more. While paused."""
        self._state.recovery_point = min(self._state.recovery_point, offset)

    def truncated(self, offset: int) -> None:
        """The log was cut to an offset, what is left of it made durable. While paused."""
        self._sealed = [row for row in self._sealed if row[0].next_offset <= offset]
        self._state.recovery_point = min(self._state.recovery_point, offset)
        self._has_new_names = True

    def flush_to(self, wanted: int) -> None:
        """Return once every record below the offset ``wanted`` is durable.

        Raises:
            OSError: It is not; see ``vfs.File.sync``: final, so every later call raises it too.
        """
        state = self._state
        if state.recovery_point >= wanted:
            return
        with self._lock, self._final_failure():
            self._finish()
            if state.recovery_point >= wanted:
                return
            started_s = state.host.clock_s()
            now = state.snapshot
            self._flush_sealed()
            log = now.active.files().log
            log.sync()
            self._check_has_name(now.active, log)
            state.counters.flush_s.observe(state.host.clock_s() - started_s)
            state.recovery_point = max(state.recovery_point, now.end.offset)

    def flush_sealed(self) -> None:
        """Make the segments durable that were sealed, and move the recovery point after them."""
        with self._lock, self._final_failure():
            self._finish()
            self._flush_sealed()

    # Inside

    def _begin(self, syncs: Syncs) -> Flush | None:
        """Begin the fsync of the active segment; None if that is not enough, or not possible."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            has_failed = self._failure is not None or self._state.lock.sync_error
            if self._begun is not None or has_failed:
                return None
            started_s = self._state.host.clock_s()
            now = self._state.snapshot
            # Only now: what was sealed before is known.
            if self._sealed or self._has_new_names:
                return None
            log = now.active.files().log
            sync = log.begin_sync(syncs)
            if sync is not None:
                self._begun = Flush(sync, now.active, log, now.end.offset, started_s)
            return self._begun
        finally:
            self._lock.release()

    def _finish(self) -> None:
        """Wait for the flush that was begun, if any, and take note of it. With the lock."""
        state = self._state
        error = state.lock.sync_error
        if error:  # of a native thread, which has left its requests to Python
            raise OSError(error, os.strerror(error), state.snapshot.active.name)
        flush = self._begun
        if flush is None:
            return
        try:
            flush.sync.wait()
            self._check_has_name(flush.segment, flush.log)
        finally:
            self._begun = None
        state.counters.flush_s.observe(state.host.clock_s() - flush.started_s)
        state.recovery_point = max(state.recovery_point, flush.end_offset)

    def _check_has_name(self, segment: Segment, log: File) -> None:
        """Raise OSError (EIO), and tell of a loss, if another program has removed the active log.

        Its bytes are on the disk until the file is closed, and no start finds them.
        """
        state = self._state
        if log.has_name() or state.is_deleted or state.snapshot.active is not segment:
            return
        begin, end = segment.base_offset, state.snapshot.end
        detail = (
            f"{segment.name}: another program has removed it, with the records from offset {begin} "
            f"to {end.offset - 1}"
        )
        file = segment.name.rpartition("/")[2]
        loss = Loss(state.last_modified_ms, REMOVED, file, 0, end.file_size, begin, detail)
        log_loss(state.topic_partition, loss)
        with contextlib.suppress(OSError):  # its directory may be gone as well
            state.losses.add(loss)
        raise OSError(errno.EIO, "another program has removed the file", segment.name)

    @contextlib.contextmanager
    def _final_failure(self) -> Iterator[None]:
        """Let no caller that waited for a failed flush trust its own fsync."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except OSError as error:
            self._state.counters.failed_flushes += 1
            self._failure = error
            raise

    def _flush_sealed(self) -> None:
        state = self._state
        sealed = list(self._sealed)
        for _, files, others in sealed:
            if files is not None:
                files.log.sync()
                for index in files.indexes.all():
                    index.sync()
            for file in others:
                file.sync()
        if self._has_new_names:
            self._has_new_names = False
            state.disk.sync_directory(state.directory)
        if sealed:
            state.table.sync()
        for row in sealed:
            row[0].close_files()
            state.recovery_point = max(state.recovery_point, row[0].next_offset)
            self._remove(row)

    def _remove(self, row: tuple[Segment, SegmentFiles | None, Sequence[File]]) -> None:
        with contextlib.suppress(ValueError):  # another thread has removed or changed it
            self._sealed.remove(row)

    def _finish_before_flush(self) -> None:
        """Make the file of the active segment if it has none: records may be unsynced before it."""
        state = self._state
        with state.lock:
            if not state.disk.exists(state.snapshot.active.name):
                state.finish_loading()

    def remove_durable_lines(self) -> None:
        """Remove the files of lines whose records are durable."""
        state = self._state
        if not state.line_files.are_settled:
            with state.lock:
                state.line_files.remove_durable(state.recovery_point)
