"""Names, attributes and bytes that the kernel has cached, dropped before their time.

The kernel may return from such a call only when running requests have been answered. A daemon with
a thread in it cannot be killed: its successor would wait for its end, and the requests for the
successor. So the hooks send these notifications from their own process. Without the hooks they
are sent by threads, which are abandoned when the mount stops.

Source: Linux fs/fuse/inode.c and dir.c, fuse_reverse_inval_inode, fuse_reverse_inval_entry.
"""

import contextlib
import os
import struct
from collections.abc import Iterable

import pyfuse3
import trio

from logfs.fs.kernel.hooks import Hooks
from logfs.fs.threads import run_in_thread

_INVALIDATE_INODE = 2
_INVALIDATE_ENTRY = 3
_HEADER = struct.Struct("<IiQ")
_INODE = struct.Struct("<Qqq")
_ENTRY = struct.Struct("<QII")


class KernelCache:
    """Names and bytes that the kernel has cached. Event loop only.

    Args:
        hooks: Send the notifications; None where they were not built.
    """

    def __init__(self, hooks: Hooks | None = None) -> None:
        self._hooks = hooks if hooks is not None and hooks.is_active else None

    async def drop_name(self, parent: int, name: str) -> None:
        """Make the kernel look a name up again at its next use."""
        encoded = name.encode()
        if self._hooks is None:
            await run_in_thread(_drop_name, parent, encoded, abandon_on_cancel=True)
            return
        body = _ENTRY.pack(parent, len(encoded), 0) + encoded + b"\0"
        await _sent_apart(self._hooks, _message(_INVALIDATE_ENTRY, body))

    async def drop_bytes(self, inodes: Iterable[int]) -> None:
        """Make the kernel ask for bytes and attributes of inodes again at their next use."""
        if self._hooks is None:
            await run_in_thread(_drop_bytes, list(inodes), abandon_on_cancel=True)
            return
        bodies = [_INODE.pack(inode, 0, 0) for inode in inodes]
        await _sent_apart(self._hooks, *(_message(_INVALIDATE_INODE, body) for body in bodies))

    async def drop_attributes(self, inodes: Iterable[int]) -> None:
        """Make the kernel ask for modes, owners and sizes of inodes again at their next use."""
        if self._hooks is None:
            await run_in_thread(_drop_attributes, list(inodes), abandon_on_cancel=True)
            return
        for inode in inodes:
            self._hooks.knows_node(inode)  # it never waits


def _message(code: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), code, 0) + body


async def _sent_apart(hooks: Hooks, *messages: bytes) -> None:
    if not messages:
        return
    child = hooks.notify_apart(b"".join(messages))
    ended = os.pidfd_open(child)
    try:
        await trio.lowlevel.wait_readable(ended)
        os.waitpid(child, os.WNOHANG)  # noqa: ASYNC222 - it has ended
    finally:
        os.close(ended)


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
