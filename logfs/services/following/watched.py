"""The common part of logs that another process writes: looks at them, and pins of their files."""

import abc
import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logfs.errors import DeletedError, LogfsError, ReadOnlyError
from logfs.log.producers.state import ProducerState
from logfs.log.reading.readable import ReadableLog, ReadableState
from logfs.log.segments.segment import Segment

if TYPE_CHECKING:
    from logfs.log.partition import PartitionLog

STEP_BYTES = 16 * 1024 * 1024
"""The most bytes that one call of ``refresh`` reads, so that others have their turn."""


class WatchedLog(ReadableLog):
    """A partition that another process writes. ``refresh`` in one thread at a time.

    Attributes:
        is_caught_up: Everything that was there has been read once.
    """

    is_followed = True

    def __init__(self, state: ReadableState) -> None:
        super().__init__(state)
        self._lock = threading.Lock()
        self._held: list[Segment] = []
        self.is_caught_up = False

    @property
    def writable(self) -> "PartitionLog":
        """The log to write to; there is none: always raise ReadOnlyError."""
        raise ReadOnlyError(f"{self.topic_partition}: the data directory is open read-only")

    @property
    @abc.abstractmethod
    def producers(self) -> ProducerState:
        """The state of the producers at the log end."""

    @property
    def done_bytes(self) -> int:
        """Bytes of the log whose positions are known."""
        return self.snapshot.size_bytes

    def refresh(self, now_ms: int, limit_bytes: int = STEP_BYTES) -> bool:
        """Look at the directory and show what has changed; return whether there is more to do.

        Raises:
            OSError: The disk failed; readers continue with what they had.
            LogfsError: Something in the directory cannot be used.
        """
        with self._lock:
            if self.is_deleted:
                return False
            return self._refresh(now_ms, limit_bytes)

    @abc.abstractmethod
    def _refresh(self, now_ms: int, limit_bytes: int) -> bool:
        """Do what ``refresh`` does, under the lock."""

    def note_checkpoints(self, start_offset: int, high_watermark: int | None) -> None:
        """Take over what the checkpoint files of the directory say of this partition."""

    def forsake(self, directory: str) -> None:
        """The topic was deleted; readers continue while the files last, under another name."""
        with self._lock:
            self.state.is_deleted = True
            self.state.directory = directory
            for segment in (*self.snapshot.segments, *self._held):
                segment.directory = directory
                if segment.pins:
                    self._hold(segment)

    def pin(self, segments: Sequence[Segment]) -> None:
        """Keep the files of segments until ``unpin``: once they are deleted they are held open.

        Raises:
            DeletedError: The files of one are gone already.
        """
        for segment in segments:
            if segment.is_gone:
                raise DeletedError(f"{segment.name}: the segment has been deleted")
        for segment in segments:
            segment.pins += 1
            if segment.is_deleted or self.is_deleted:
                self._hold(segment)

    def unpin(self, segments: Sequence[Segment]) -> None:
        """Undo ``pin``."""
        for segment in segments:
            segment.pins -= 1
            if not segment.pins and segment in self._held:
                self._held.remove(segment)
                segment.close_files()

    def _let_go(self, segments: Sequence[Segment]) -> None:
        """Segments are not in the log any more: close them, unless open files read them."""
        for segment in segments:
            if segment.pins:
                self._hold(segment)
            else:
                segment.close_files()
            segment.is_deleted = True

    def _hold(self, segment: Segment) -> None:
        """Keep the files of a deleted segment open for the files that read it."""
        files = segment.files()
        with contextlib.suppress(OSError, LogfsError):
            files.text_entries()
            _ = files.log
            segment.pinned_files = files
            self._held.append(segment)
