"""The requests that are always refused: here nothing is removed, renamed or linked by its name."""

import errno

import pyfuse3
from pyfuse3 import EntryAttributes, FUSEError, RequestContext

from logfs.fs.answers import Requests, answered
from logfs.fs.errnos import Translator
from logfs.fs.inodes import InodeTable
from logfs.fs.nodes import Node
from logfs.fs.rules import refusal


class Refusals(pyfuse3.Operations):
    """A file system as far as it refuses.

    Attributes:
        translator: Knows the errnos.
        requests: Counts what is answered.
        inodes: What the kernel knows.
        is_read_only: Nothing may be written at all.
    """

    translator: Translator
    requests: Requests
    inodes: InodeTable[Node]
    is_read_only: bool

    async def _find(self, parent: Node, name: bytes) -> Node:
        """Find a name."""
        raise NotImplementedError

    @answered
    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        """Refuse to remove a file."""
        await self._refuse(parent_inode, name)

    @answered
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

    @answered
    async def link(
        self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        """Refuse to make a second name."""
        self.inodes.node(inode)
        raise refusal(read_only=self.is_read_only)

    @answered
    async def symlink(
        self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        """Refuse to make a link."""
        self.inodes.node(parent_inode)
        raise refusal(read_only=self.is_read_only)

    @answered
    async def mknod(
        self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        """Refuse to make a special file."""
        self.inodes.node(parent_inode)
        raise refusal(read_only=self.is_read_only)

    @answered
    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        """Answer that this is no link; there are none."""
        self.inodes.node(inode)
        raise FUSEError(errno.EINVAL)

    async def _refuse(self, parent_inode: int, name: bytes) -> None:
        await self._find(self.inodes.node(parent_inode), name)
        raise refusal(read_only=self.is_read_only)
