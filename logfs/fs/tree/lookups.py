"""From names to nodes, without waiting for an object store or for positions.

The kernel holds the lock of a directory while it looks a name up in it or lists it. An open that
may create a file (``>>``) needs that lock too. So a look-up must not wait for an object store, nor
until the positions of a broker's log are known, or other programs would wait with it. A name that
needs them is found at once, as a ``PendingNode``. The first request that needs the file itself
(GETATTR, OPEN) resolves it; the kernel holds no directory meanwhile.

A resolved node keeps the number that the kernel knows. Programs see the inode number of the
canonical node with the same bytes, see ``InodeTable.shown_number``. So ``cp`` and ``tail -F``,
which compare stat(2) before and after they open a file, see one file.
"""

import copy
import itertools
from collections.abc import Callable

from logfs.disk.waiting import WouldWaitError
from logfs.fs.kernel.errnos import NotIndexedYetError, StaleError
from logfs.fs.tree.indexwait import IndexWait
from logfs.fs.tree.inodes import InodeTable
from logfs.fs.tree.nodes import Node, PendingIn, PendingNode, RootNode
from logfs.fs.tree.rawnodes import RawDirectoryNode
from logfs.fs.tree.tree import DeferredLookup, Tree


class Lookups:
    """The look-ups of a mount. Event loop only.

    Args:
        tree: The names.
        inodes: The nodes that the kernel knows.
        index_wait: The waits for positions that are not known yet.
        now_ms: The clock.
    """

    def __init__(
        self,
        tree: Tree,
        inodes: InodeTable[Node],
        index_wait: IndexWait,
        now_ms: Callable[[], int],
    ) -> None:
        self._tree = tree
        self._inodes = inodes
        self._index_wait = index_wait
        self._now_ms = now_ms
        self._serials = itertools.count()

    async def find(self, parent: Node, name: bytes) -> Node:
        """Find a name in a directory.

        Raises:
            LogfsError, OSError: See ``Tree.find``.
        """
        found = self._tree.find(parent, name)
        await wait_for_releases(found)
        if not isinstance(found, Node):
            found = await self._ask(parent, name, found)
        known = self._inodes.canonical(found)
        if known is found or self._tree.is_live(known):
            return known
        # The topic was deleted and restored, and programs still have its old files open.
        found.ino = known.ino
        self._inodes.replace(found)
        return found

    def find_now(self, parent: Node, name: bytes) -> Node | None:
        """Find a name in a directory if that takes no await; else None."""
        found = self._tree.find(parent, name)
        if not isinstance(found, Node):
            return None
        partition = found.partition
        if partition is not None and partition.executor.releasing is not None:
            return None
        known = self._inodes.canonical(found)
        return known if known is found or self._tree.is_live(known) else None

    async def resolved(self, number: int, pid: int) -> Node:
        """Return the node with a number; if it is pending, wait until it is resolved.

        Raises:
            StaleError: It is not known, or is gone.
            LogfsError, OSError: It does not exist, or the store failed.
        """
        node = self._inodes.node(number)
        if not isinstance(node, PendingNode):
            return node
        found = None
        while found is None:
            if not node.is_current:
                raise StaleError(f"{node.partition.topic_partition} has been reloaded")
            question = self._tree.look_up_again(node)
            try:
                found = await node.partition.executor.query(question.ask, *question.args)
            except NotIndexedYetError as error:
                log = error.log
                await self._index_wait.for_log(log, pid)
        known = self._inodes.node(number)
        if known is not node:
            return known  # another request was quicker
        resolved = copy.copy(found)  # look-ups share what they found
        resolved.ino = number
        self._inodes.replace(resolved)
        return resolved

    async def _ask(self, parent: Node, name: bytes, question: DeferredLookup[Node]) -> Node:
        partition, now_ms = question.partition, self._now_ms()
        try:
            return await partition.executor.query_locally(question.ask, *question.args)
        except (WouldWaitError, NotIndexedYetError):
            return PendingNode(
                partition,
                self._tree.ownership,
                name.decode(),
                directory=_kind_of(parent),
                now_ms=now_ms,
                serial=next(self._serials),
            )


async def wait_for_releases(found: Node | DeferredLookup[Node]) -> None:
    """Wait until the partition of a node has the last lines of files that were closed."""
    partition = found.partition
    if partition is not None and partition.executor.releasing is not None:
        await partition.executor.releasing.wait()


def _kind_of(directory: Node) -> PendingIn:
    if isinstance(directory, RawDirectoryNode):
        return PendingIn.SEGMENTS
    return PendingIn.ROOT if isinstance(directory, RootNode) else PendingIn.TOPIC
