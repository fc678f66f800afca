"""Replies: results in pyfuse3's types, and an errno for everything that a handler raises."""

import functools
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pyfuse3 import EntryAttributes, FUSEError, StatvfsData

from logfs.fs.kernel.errnos import Translator
from logfs.fs.kernel.permissions import FileAttributes
from logfs.fs.kernel.suspects import SuspectRequests
from logfs.fs.tree.accesslog import AccessLog
from logfs.fs.tree.nodes import Node

OPERATIONS: set[str] = set()
"""The names of all handlers."""

MAX_REQUEST_BYTES = 1024 * 1024
"""The largest read and write the kernel sends, and the block size that makes programs send it."""

_BLOCK_BYTES = 512
NS_PER_MS = 1_000_000


class RequestCounts:
    """The requests of the kernel, counted by how they were answered.

    Changed on the event loop only; any thread may read.

    Attributes:
        done: Requests that were answered with what they asked for, by operation.
        failed: Those that were answered with an errno, by operation and errno.
    """

    def __init__(self) -> None:
        self.done: defaultdict[str, int] = defaultdict(int)
        self.failed: defaultdict[tuple[str, int], int] = defaultdict(int)


class RequestHandlers(Protocol):
    """An object with handlers.

    Attributes:
        translator: Knows the errnos, and what to log.
        request_counts: The number of replies.
        access_log: Notes requests; None: none is kept.
        suspects: Refuses requests that may end this daemon, too; None: there are none.
    """

    translator: Translator
    request_counts: RequestCounts
    access_log: AccessLog | None
    suspects: SuspectRequests | None


SelfT = TypeVar("SelfT", bound=RequestHandlers)
P = ParamSpec("P")
T = TypeVar("T")


def request_handler(
    handler: Callable[Concatenate[SelfT, P], Awaitable[T]],
) -> Callable[Concatenate[SelfT, P], Coroutine[Any, Any, T]]:
    """Turn every exception of a handler into an errno; any other would end the mount."""
    request = handler.__name__
    OPERATIONS.add(request)

    @functools.wraps(handler)
    async def answer(self: SelfT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        suspects, suspect = self.suspects, 0
        try:
            if suspects is not None:
                suspect = await suspects.begin(request, args)
            result = await handler(self, *args, **kwargs)
        except FUSEError as error:
            self.request_counts.failed[request, error.errno] += 1
            if self.access_log is not None:
                self.access_log.note_request(request, args, error.errno)
            raise
        except Exception as error:  # noqa: BLE001 - see above
            number = self.translator.translate(request, error)
            self.request_counts.failed[request, number] += 1
            if self.access_log is not None:
                self.access_log.note_request(request, args, number)
            raise FUSEError(number) from None
        finally:
            if suspects is not None:
                suspects.end(suspect)
        self.request_counts.done[request] += 1
        if self.access_log is not None:
            self.access_log.note_request(request, args, 0)
        return result

    return answer


def blocks_of(size: int) -> int:
    """Return the blocks that stat(2) tells of a length.

    They cover it, so that a file with holes does not look sparse: a program that seeks for data
    would find it all.
    """
    return (size + _BLOCK_BYTES - 1) // _BLOCK_BYTES


def make_entry(node: Node, attributes: FileAttributes) -> EntryAttributes:
    """Describe an inode."""
    mode, uid, gid, size, mtime_ms = attributes
    mtime_ns = mtime_ms * NS_PER_MS
    entry = EntryAttributes()
    entry.st_ino = node.ino
    entry.st_mode = mode
    entry.st_uid = uid
    entry.st_gid = gid
    entry.st_size = size
    entry.st_blocks = blocks_of(size)
    entry.st_blksize = MAX_REQUEST_BYTES
    entry.st_atime_ns = mtime_ns
    entry.st_mtime_ns = mtime_ns
    entry.st_ctime_ns = mtime_ns
    entry.attr_timeout = node.attr_timeout_s
    entry.entry_timeout = node.entry_timeout_s
    return entry


def make_statvfs(free: os.statvfs_result) -> StatvfsData:
    """Describe a file system: the room is that of the data directory's."""
    stats = StatvfsData()
    stats.f_bsize = MAX_REQUEST_BYTES
    stats.f_frsize = free.f_frsize
    stats.f_blocks = free.f_blocks
    stats.f_bfree = free.f_bfree
    stats.f_bavail = free.f_bavail
    stats.f_files = free.f_files
    stats.f_ffree = free.f_ffree
    stats.f_favail = free.f_favail
    stats.f_namemax = free.f_namemax
    return stats
