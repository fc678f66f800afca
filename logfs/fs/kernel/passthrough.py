"""Passthrough: sealed files that the kernel reads itself, from the file on the disk.

Where kernel and privileges allow it (Linux 6.9, CAP_SYS_ADMIN) an open file of a sealed segment is
tied to the file on the disk, its *backing file*: reads, mappings and splices never reach the
daemon, and continue when the file has been deleted. Elsewhere the kernel caches what the daemon
reads.

An inode is either cached or passed through, and all open files of an inode share one backing file:
the kernel refuses anything else with EIO. So an inode that was cached stays cached as long as the
kernel knows it, and a backing file is closed with the last open file. No pyfuse3.
"""

import contextlib
import errno
import logging
import os
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger(__name__)

ON = "passthrough"
_REASONS = {
    errno.EPERM: "without CAP_SYS_ADMIN",
    errno.ELOOP: "the data directory is on a stacked file system, as overlayfs is",
}


class PassthroughHooks(Protocol):
    """The functions of ``hooks.Hooks`` that are needed here."""

    @property
    def is_active(self) -> bool:
        """Whether the mount goes through the hooks."""

    @property
    def has_passthrough(self) -> bool | None:
        """Whether the kernel supports passthrough."""

    def backing_open(self, descriptor: int) -> int:
        """Register an open file as a backing file; returns its number."""

    def backing_close(self, number: int) -> None:
        """Close a backing file."""

    def pass_through(self, handle: int, number: int) -> None:
        """Let a handle read from a backing file."""


class _Backing:
    """A backing file: its number, and how many open files read from it."""

    __slots__ = ("handles", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.handles = 0


class Passthrough:
    """The backing files of inodes that are open. Event loop only.

    Args:
        hooks: The hooks; None where they were not built.
        wanted: False with the mount option ``no_passthrough``.

    Attributes:
        opens: How many files were opened for passthrough.
        note: Called with an inode and the number of its new backing file, or 0 when it is closed.
    """

    def __init__(self, hooks: PassthroughHooks | None, *, wanted: bool = True) -> None:
        self._hooks = hooks
        self._wanted = wanted
        self._refusal: str | None = None
        self._backings: dict[int, _Backing] = {}
        self.opens = 0
        self.note: Callable[[int, int], None] = lambda _inode, _number: None

    def __len__(self) -> int:
        return len(self._backings)

    @property
    def why_not(self) -> str | None:
        """Why the kernel caches sealed files instead; None if it need not, as far as known."""
        if not self._wanted:
            return "mount option no_passthrough"
        if self._hooks is None:
            return "logfs was built without the headers of libfuse"
        if not self._hooks.is_active:
            return "libfuse is older than 3.14"
        if self._hooks.has_passthrough is False:
            return "Linux has it from 6.9 on"
        return self._refusal

    def describe(self) -> str:
        """Return how sealed files are read, for people."""
        why_not = self.why_not
        return ON if why_not is None else f"page cache ({why_not})"

    def probe(self, descriptor: int) -> None:
        """Find out with an open file of the data directory whether passthrough works."""
        number = self._open(descriptor)
        if self._hooks is not None and number:
            self._hooks.backing_close(number)

    def hold(self, inode: int, descriptor: int) -> bool:
        """Open a sealed inode for passthrough; it must not be open as a cached one.

        Args:
            inode: Its number.
            descriptor: The file on the disk; the caller may close it afterwards.

        Returns:
            Whether it is passed through; then ``release`` has to follow. False: it has to be
            cached, as long as the kernel knows it.
        """
        backing = self._backings.get(inode)
        if backing is None:
            number = self._open(descriptor)
            if not number:
                return False
            backing = self._backings[inode] = _Backing(number)
            self.note(inode, number)
        backing.handles += 1
        self.opens += 1
        return True

    def resume(self, inode: int, number: int, handles: int) -> None:
        """Continue with a backing file that an earlier daemon has opened.

        Args:
            inode: The number of its inode.
            number: The number of the backing file.
            handles: How many open files read from it. Without any it is closed.
        """
        backing = self._backings[inode] = _Backing(number)
        backing.handles = handles
        if not handles:
            self._close(inode)

    def is_passed(self, inode: int) -> bool:
        """Whether the open files of an inode are passed through."""
        return inode in self._backings

    def attach(self, inode: int, handle: int) -> None:
        """Connect an open file to the backing file of its inode, directly before the reply."""
        if self._hooks is not None:
            self._hooks.pass_through(handle, self._backings[inode].number)

    def release(self, inode: int) -> None:
        """Note that an open file was closed; with the last one the backing file is closed."""
        backing = self._backings[inode]
        backing.handles -= 1
        if not backing.handles:
            self._close(inode)

    def _close(self, inode: int) -> None:
        number = self._backings.pop(inode).number
        if self._hooks is not None:
            with contextlib.suppress(FileNotFoundError):  # closed by the daemon before
                self._hooks.backing_close(number)
        self.note(inode, 0)

    def _open(self, descriptor: int) -> int:
        """Open a backing file; 0 if that fails. A reason that applies to all files is kept."""
        if self._hooks is None or self.why_not is not None:
            return 0
        try:
            return self._hooks.backing_open(descriptor)
        except OSError as error:
            number = error.errno or errno.EIO
            if number in _REASONS:
                self._refusal = _REASONS[number]
            else:
                logger.warning("a sealed file is cached instead of passed through: %s",
                               os.strerror(number))  # fmt: skip
            return 0
