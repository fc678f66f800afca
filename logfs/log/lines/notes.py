"""What a writer notes of its writes, and what a restarted process reads of that.

A process that is killed in a write is followed by another one, which gets the same write again. It
must not append what the log has already. So each write is noted before its append: where the log
ends, and how long the unfinished line is. One line is one record, so the log itself tells how many
lines of the write are in it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from logfs.log.partition import PartitionLog
from logfs.log.writing.segmentremoval import DeletedFiles
from logfs.types import View

WriterT_contra = TypeVar("WriterT_contra", contravariant=True)


class AppendNotes(Protocol):
    """The notes of one request that appends many lines, to one partition or to several."""

    def applied(self, log: PartitionLog) -> tuple[int, int]:
        """Return how many of its records a log has, and the offset of the first of them."""
        ...

    def begin_append(self, log: PartitionLog, records: int) -> None:
        """Note that records are about to be appended after so many; with the lock of the log."""
        ...

    def end_append(self, log: PartitionLog) -> None:
        """Note that those which are in the log are all; with its lock."""
        ...


class Resumption(Protocol[WriterT_contra]):
    """The state that another process has left: its writes, and the needs of its open files."""

    def deleted_in(self, directory: str) -> Sequence[DeletedFiles]:
        """Return the deleted segments of a partition that open files read, as they were deleted."""
        ...

    def view_of(self, name: str) -> View | None:
        """Return the view of the unfinished line in a file; None if no open file continues with it.

        The file does not tell it if a kill has cut its header.
        """
        ...

    def settle(self, log: PartitionLog, writers: Mapping[str, WriterT_contra]) -> None:
        """Note how much of each begun write is in a log that was loaded.

        It is called before anything is appended to the log.

        Args:
            log: The log.
            writers: A writer for each of the names that is in its directory, and that has no
                record of its line in the log.
        """
        ...
