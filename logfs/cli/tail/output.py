"""The output of ``logfs tail``: it writes lines, flushes, and commits the positions of a group."""

import select
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO

from logfs.cli import failures
from logfs.cli.tail.records import Followed, Printed

if TYPE_CHECKING:
    from logfs.cli.tail.groups import TailGroup

_GROUP_BYTES = 4 << 10
"""The bytes that are flushed at a time for a group: a pipe takes all of them or none."""


class Output:
    """The output, and how far each partition was written to it.

    Args:
        group: Its positions are committed; None: no group.
    """

    def __init__(self, out: BinaryIO, group: "TailGroup | None") -> None:
        self._out = out
        self._group = group
        self._written: dict[Followed, int] = {}
        self._flushed: dict[Followed, int] = {}

    def begin(self, followed: Followed) -> None:
        """Add a partition, of which nothing is written yet."""
        self._written[followed] = self._flushed[followed] = followed.cursor.offset

    def write(self, printed: Iterable[Printed]) -> None:
        """Write lines; those for a group are flushed a few at a time, and committed when due."""
        unflushed = 0
        for _, text, followed, stop in printed:
            is_full = unflushed > 0 and unflushed + len(text) > _GROUP_BYTES
            if self._group is not None and (is_full or self._group.is_due):
                self._flush()
                unflushed = 0
                self.commit(only_if_due=True)
            self._out.write(text)
            self._written[followed] = stop
            unflushed += len(text)

    def flush_all(self, read: Iterable[Followed]) -> None:
        """Flush what was written: everything that the cursors of some partitions have read."""
        for followed in read:
            self._written[followed] = max(self._written[followed], followed.cursor.offset)
        self._flush()

    def commit(self, *, only_if_due: bool = False) -> None:
        """Commit the positions after what has reached the reader of the output."""
        if self._group is None or (only_if_due and not self._group.is_due):
            return
        with failures.about(f"group {self._group.name}"):
            flushed = self._flushed.items()
            self._group.commit({(one.root, one.name): offset for one, offset in flushed})

    @property
    def has_reader(self) -> bool:
        """Whether the output has a reader; a pipe without one has an error."""
        poll = select.poll()
        poll.register(self._out, 0)
        return not any(events & select.POLLERR for _, events in poll.poll(0))

    def _flush(self) -> None:
        self._out.flush()
        self._flushed = dict(self._written)
