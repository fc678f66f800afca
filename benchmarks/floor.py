"""The floor: what a request costs through pyfuse3 and trio when the handler does nothing.

    python -m benchmarks.floor MOUNTPOINT [CONTENT]

Every name in the root is a directory, every name in that is the one file; a listing has LISTED
names. Reads return slices of CONTENT, held in memory and not copied; writes are counted as written
and forgotten. Flags, timeouts and block size are those with which logfs opens a growing name.
"""

import errno
import os
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, ReaddirToken, RequestContext

_BLOCK_BYTES = 1024 * 1024
_DIRECTORY_INODE = 2
_FILE_INODE = 3
_NAMES_S = 1.0
_IDLE_WORKERS = 4
_MAX_REQUESTS = 4096

LISTED = 1000
"""How many names a listing has."""


class Floor(pyfuse3.Operations):
    """One directory, one file."""

    supports_dot_lookup = False

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = memoryview(content)
        self._file = self._entry(_FILE_INODE, stat.S_IFREG | 0o644, len(content))
        # A selector is looked up every time.
        self._selected = self._entry(_FILE_INODE, stat.S_IFREG | 0o644, len(content))
        self._selected.entry_timeout = 0.0
        self._names = [str(number).encode() for number in range(LISTED)]

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Find any name."""
        if parent_inode == pyfuse3.ROOT_INODE:
            return self._entry(_DIRECTORY_INODE, stat.S_IFDIR | 0o755, 0)
        return self._selected if b"@" in name else self._file

    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        """Answer stat(2)."""
        if inode == _FILE_INODE:
            return self._file
        return self._entry(inode, stat.S_IFDIR | 0o755, 0)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Do nothing."""

    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        """Open a directory."""
        return 1

    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        """List the names, each with its attributes."""
        for number in range(start_id, LISTED):
            if not pyfuse3.readdir_reply(token, self._names[number], self._file, number + 1):
                return

    async def releasedir(self, fh: int) -> None:
        """Do nothing."""

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        """Open the file."""
        return FileInfo(fh=1, direct_io=True, keep_cache=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        """Return the bytes; pyfuse3 takes any buffer."""
        return self._content[off : off + size]  # type: ignore[return-value]

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        """Forget the bytes."""
        return len(buf)

    async def flush(self, fh: int) -> None:
        """Do nothing."""

    async def release(self, fh: int) -> None:
        """Do nothing."""

    async def fsync(self, fh: int, datasync: bool) -> None:
        """Do nothing."""

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        """Answer that there is none."""
        raise FUSEError(errno.ENODATA)

    def _entry(self, inode: int, mode: int, size: int) -> EntryAttributes:
        entry = EntryAttributes()
        entry.st_ino = inode
        entry.st_mode = mode
        entry.st_uid = os.getuid()
        entry.st_gid = os.getgid()
        entry.st_size = size
        entry.st_blocks = (size + 511) // 512
        entry.st_blksize = _BLOCK_BYTES
        entry.attr_timeout = 0.0 if inode == _FILE_INODE else _NAMES_S
        entry.entry_timeout = _NAMES_S
        return entry


async def _serve() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal)
        await pyfuse3.main(_IDLE_WORKERS, _MAX_REQUESTS)
        nursery.cancel_scope.cancel()


async def _stop_on_signal() -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            pyfuse3.terminate()


def main(point: str, content: bytes) -> None:
    """Mount and serve until a signal."""
    pyfuse3.init(Floor(content), point, {"fsname=floor", "default_permissions"})
    try:
        trio.run(_serve)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main(sys.argv[1], b"".join(Path(path).read_bytes() for path in sys.argv[2:]))
