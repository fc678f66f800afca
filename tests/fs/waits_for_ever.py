"""A file system of one file, whose reads wait until a signal interrupts them: python FILE POINT."""

import errno
import stat
import sys

from logfs.fs import hooks
from logfs.fs.interrupts import Interrupts

hooks.load()

import pyfuse3  # noqa: E402 - the hooks have to come first
import trio  # noqa: E402

_FILE = 2


class Waits(pyfuse3.Operations):
    """Reads at 0 return at once, all others wait."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = Interrupts(hooks.loaded())

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
            raise pyfuse3.FUSEError(errno.ENOENT)
        return await self.getattr(_FILE)

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> pyfuse3.FileInfo:
        return pyfuse3.FileInfo(fh=pyfuse3.FileHandleT(inode), direct_io=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        if off == 0:
            return b"begin\n"
        with self.interrupts.watched() as interrupted:
            await interrupted.wait()
        raise pyfuse3.FUSEError(errno.EINTR)


pyfuse3.init(Waits(), sys.argv[1], {"fsname=waits"})
try:
    trio.run(pyfuse3.main)
finally:
    pyfuse3.close()
