"""A file system of one file, of which reads at 0 return at once, for programs that tests start.

Import what is needed of pyfuse3 from here: the hooks have to come first.
"""

import errno
import stat
import sys

from logfs.fs.kernel import hooks

hooks.load()

import pyfuse3  # noqa: E402 - see above
import trio  # noqa: E402
from pyfuse3 import FUSEError  # noqa: E402

__all__ = ["FUSEError", "OneFile", "pyfuse3", "serve", "trio"]

_FILE = 2


class OneFile(pyfuse3.Operations):
    """``file``, read directly; ``answer`` says what reads after 0 get."""

    async def getattr(
        self, inode: int, ctx: pyfuse3.RequestContext | None = None
    ) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = pyfuse3.InodeT(inode)
        entry.st_mode = pyfuse3.ModeT(
            stat.S_IFREG | 0o644 if inode == _FILE else stat.S_IFDIR | 0o755
        )
        return entry

    async def lookup(
        self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext
    ) -> pyfuse3.EntryAttributes:
        if name != b"file":
            raise FUSEError(errno.ENOENT)
        return await self.getattr(_FILE)

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        return pyfuse3.FileInfo(fh=pyfuse3.FileHandleT(inode), direct_io=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return b"begin\n" if off == 0 else await self.answer()

    async def answer(self) -> bytes:
        raise NotImplementedError


def serve(operations: OneFile, name: str) -> None:
    """Mount where the first argument says, and serve until it is unmounted."""
    pyfuse3.init(operations, sys.argv[1], {f"fsname={name}"})
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close()
