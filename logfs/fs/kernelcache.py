"""Names, attributes and bytes that the kernel has cached, dropped before their time.

The kernel returns from such a call only when running requests have been answered. So the calls run
in threads, which are abandoned when the mount stops.
"""

import contextlib
from collections.abc import Iterable

import pyfuse3
import trio


class KernelCache:
    """Names and bytes that the kernel has cached. Event loop only."""

    async def drop_name(self, parent: int, name: str) -> None:
        """Make the kernel look a name up again at its next use."""
        await trio.to_thread.run_sync(_drop_name, parent, name.encode(), abandon_on_cancel=True)

    async def drop_bytes(self, inodes: Iterable[int]) -> None:
        """Make the kernel ask for bytes and attributes of inodes again at their next use."""
        await trio.to_thread.run_sync(_drop_bytes, list(inodes), abandon_on_cancel=True)

    async def drop_attributes(self, inodes: Iterable[int]) -> None:
        """Make the kernel ask for modes, owners and sizes of inodes again at their next use."""
        await trio.to_thread.run_sync(_drop_attributes, list(inodes), abandon_on_cancel=True)


def _drop_name(parent: int, name: bytes) -> None:
    with contextlib.suppress(OSError):  # it is not there
        pyfuse3.invalidate_entry(pyfuse3.InodeT(parent), pyfuse3.FileNameT(name))


def _drop_attributes(inodes: list[int]) -> None:
    for inode in inodes:
        with contextlib.suppress(OSError):  # it is not there
            pyfuse3.invalidate_inode(pyfuse3.InodeT(inode), attr_only=True)


def _drop_bytes(inodes: list[int]) -> None:
    for inode in inodes:
        with contextlib.suppress(OSError):  # it is not there
            pyfuse3.invalidate_inode(pyfuse3.InodeT(inode))
