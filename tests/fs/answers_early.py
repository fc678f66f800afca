"""A file system whose reads are answered behind the next write's reply: python FILE POINT.

``file`` has no end: a read waits for the next write, and is answered with what was written, by the
hooks. What its handler answers later, another text, must not reach the reader. ``end`` is the end.
"""

import errno
import stat
import sys

from logfs.fs import hooks
from logfs.fs.prompt import Prompt

hooks.load()

import pyfuse3  # noqa: E402 - the hooks have to come first
import trio  # noqa: E402

_FILE = 2
_END = b"end\n"


class _Read:
    def __init__(self, number: int) -> None:
        self.number = number
        self.text = b""
        self.woken = trio.Event()

    def find(self) -> memoryview | None:
        return memoryview(bytearray(self.text))

    def note_answered(self, size: int) -> None:
        assert size == len(self.text)
        self.woken.set()

    def put_back(self) -> None:
        self.woken.set()


class Early(pyfuse3.Operations):
    """Reads at 0 return at once, all others wait."""

    def __init__(self) -> None:
        super().__init__()
        self._prompt = Prompt(hooks.loaded())
        self._waiting: list[_Read] = []

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
        reading = _Read(self._prompt.request())
        self._waiting.append(reading)
        await reading.woken.wait()
        return b"" if reading.text == _END else b"late\n"

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        waiting, self._waiting = self._waiting, []
        for reading in waiting:
            reading.text = buf
            if buf == _END:
                reading.woken.set()
            else:
                self._prompt.add(reading.number, reading)
        return len(buf)


pyfuse3.init(Early(), sys.argv[1], {"fsname=early"})
try:
    trio.run(pyfuse3.main)
finally:
    pyfuse3.close()
