"""What makes a partition durable: flushes, and what waits for one of them.

A flush that is a single fsync may also be begun, to go on by itself; see ``flushing``.
"""

from logfs.disk.vfs import Syncs
from logfs.log.replacing import ReplaceableLog
from logfs.log.writing.flushing import Flush


class FlushableLog(ReplaceableLog):
    """A partition whose records can be made durable. Any thread may call, beside appends."""

    def flush(self) -> None:
        """Return once everything appended before the call is durable.

        Raises:
            LogOfflineError: An earlier write or fsync failed, so nothing can be promised.
            DeletedError: The topic was deleted.
            OSError: This fsync failed; the log is offline from now on. With ENOSPC the log is as
                before: it was loaded from a full disk, and there is still no room.
        """
        if self.offline is not None or self.is_deleted:
            self.check_writable()
        if self._deferred is not None and not self.is_durable(self.log_end_offset):
            self._finish_before_flush()
        # First: what is appended from now on is noted again, and may not be covered.
        self._state.unflushed_since_ms = None
        with self.offline_on_failure("fsync"):
            self.line_files.sync()
            self._flusher.flush(lambda: self._state.snapshot, self.log_end_offset)
        self._remove_durable_lines()

    def is_durable(self, offset: int) -> bool:
        """Whether a ``flush`` that is to cover every record below an offset would do nothing."""
        return (
            self._flusher.recovery_point >= offset
            and self.offline is None
            and not self.is_deleted
            and self.line_files.are_settled
        )

    def begin_flush(self, syncs: Syncs) -> Flush | None:
        """Begin what ``flush`` does, to go on by itself, if it is a single fsync. Never waits.

        Whoever began it calls ``end_flush`` when its sync comes out of ``syncs``. Meanwhile anybody
        may call anything else.

        Returns:
            None: it takes more than that, or another flush is under way; ``flush`` does it all.
        """
        if self.offline is not None or self.is_deleted or not self.line_files.are_settled:
            return None
        if self._deferred is not None:
            return None
        # First, as in ``flush``.
        since_ms, self._state.unflushed_since_ms = self.unflushed_since_ms, None
        begun = self._flusher.begin(lambda: self.snapshot, syncs)
        if begun is None and self.unflushed_since_ms is None:
            self._state.unflushed_since_ms = since_ms
        return begun

    def end_flush(self, flush: Flush) -> bool:
        """Take note of a flush that was begun and whose sync is done. Never waits.

        Returns:
            Whether what was appended before it is durable. If not, ``flush`` waits for whoever is
            at it, or takes the log offline and raises what is to be raised.
        """
        return self._flusher.end(flush)

    # Inside

    def _finish_before_flush(self) -> None:
        """Make the file of the active segment if it has none: records may be unsynced before it."""
        with self._lock:
            if not self.disk.exists(self.snapshot.active.name):
                self.finish_loading()

    def _remove_durable_lines(self) -> None:
        if not self.line_files.are_settled:
            with self._lock:
                self.line_files.remove_durable(self.recovery_point)
