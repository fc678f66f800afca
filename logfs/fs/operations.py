"""The requests of the kernel: decode, call, translate, reply. The only caller of pyfuse3's types.

Every handler takes its place in line before its first await: pyfuse3 starts handlers in the order
in which it reads requests, and runs each up to there before it reads the next. What a handler may
raise is an errno; everything else is translated on the way out (``errnos``).

pyfuse3 copies what ``read`` returns before anything else runs on the loop, so reads on the loop all
use one buffer; a read that waits in a thread has its own.
"""

import functools
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, RequestContext, StatvfsData

from logfs.errors import DeletedError, LogfsError, ReadOnlyError
from logfs.fs.errnos import (
    IsADirectoryNodeError,
    NoSuchAttributeError,
    RefusedError,
    StaleError,
    Translator,
)
from logfs.fs.handles import HandleTable, OpenDirectory, OpenFile, Reader
from logfs.fs.host import Clock
from logfs.fs.inodes import InodeTable
from logfs.fs.nodes import DirectoryNode, FileNode, Node, TopicNode
from logfs.fs.options import MountOptions
from logfs.fs.partitions import Partition
from logfs.fs.rules import check_open, partition_to_make, refusal
from logfs.fs.tasks import Upkeep
from logfs.fs.topics import TopicChanges
from logfs.fs.tree import Question, Tree
from logfs.fs.xattrs import change_attribute, get_attribute, list_attributes
from logfs.log.store import LogStore

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_REQUEST_BYTES = 1024 * 1024
_BLOCK_BYTES = 512
_NS_PER_MS = 1_000_000


def answered(
    handler: Callable[Concatenate["Operations", P], Awaitable[T]],
) -> Callable[Concatenate["Operations", P], Coroutine[Any, Any, T]]:
    """Turn what a handler raises into an errno."""
    request = handler.__name__

    @functools.wraps(handler)
    async def answer(self: "Operations", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await handler(self, *args, **kwargs)
        except FUSEError:
            raise
        except Exception as error:  # noqa: BLE001 - an exception that got out would end the mount
            raise FUSEError(self.translator.translate(request, error)) from None

    return answer


class Operations(pyfuse3.Operations):
    """The file system, as pyfuse3 wants it."""

    supports_dot_lookup = False

    def __init__(self, store: LogStore, tree: Tree, options: MountOptions, clock: Clock) -> None:
        super().__init__()
        self.translator = Translator()
        self._store = store
        self._tree = tree
        self._options = options
        self._clock = clock
        self._now_ms = clock.now_ms
        self._inodes: InodeTable[Node] = InodeTable(tree.root)
        self._files: HandleTable[OpenFile] = HandleTable()
        self._directories: HandleTable[OpenDirectory] = HandleTable()
        self._buffer = memoryview(bytearray(MAX_REQUEST_BYTES))
        self._topics = TopicChanges(store, options, clock)
        self._store_lock = trio.Lock()
        self.upkeep = Upkeep(store, tree, self._store_lock, clock)

    # Names and attributes

    @answered
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Find a name."""
        node = await self._find(self._inodes.node(parent_inode), name)
        entry = await self._entry(node)
        self._inodes.count(node)
        return entry

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Take look-ups back."""
        self._inodes.forget(inode_list)

    @answered
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        """Answer stat(2)."""
        node = self._inodes.node(inode)
        await self._settle(node.partition)
        return await self._entry(node)
