"""The requests that are always refused: nothing is removed, renamed or linked by its name."""

import errno

import pyfuse3
from pyfuse3 import EntryAttributes, FUSEError, RequestContext

from logfs.fs.kernel.errnos import Translator
from logfs.fs.kernel.suspects import SuspectRequests
from logfs.fs.tree.accesslog import AccessLog
from logfs.fs.tree.inodes import InodeTable
from logfs.fs.tree.lookups import Lookups
from logfs.fs.tree.nodes import Node
from logfs.fs.tree.replies import RequestCounts, request_handler
from logfs.fs.tree.rules import refusal
from logfs.services.following.store import AnyStore


class RefusedOperations(pyfuse3.Operations):
    """The handlers that refuse, with the errno that says why."""

    translator: Translator
    request_counts: RequestCounts
    access_log: AccessLog | None
    suspects: SuspectRequests | None
    inodes: InodeTable[Node]
    lookups: Lookups
    _store: AnyStore

    @request_handler
    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        """Refuse to remove a file."""
        await self._refuse(parent_inode, name)

    @request_handler
    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        """Refuse to rename anything."""
        await self._refuse(parent_inode_old, name_old)

    @request_handler
    async def link(
        self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        """Refuse to make a second name."""
        self.inodes.node(inode)
        raise refusal(read_only=self._store.read_only)

    @request_handler
    async def symlink(
        self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        """Refuse to make a link."""
        self.inodes.node(parent_inode)
        raise refusal(read_only=self._store.read_only)

    @request_handler
    async def mknod(
        self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        """Refuse to make a special file."""
        self.inodes.node(parent_inode)
        raise refusal(read_only=self._store.read_only)

    @request_handler
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        """Answer that this is no link; there are none."""
        self.inodes.node(inode)
        raise FUSEError(errno.EINVAL)

    async def _refuse(self, parent_inode: int, name: bytes) -> None:
        await self.lookups.find(self.inodes.node(parent_inode), name)
        raise refusal(read_only=self._store.read_only)
