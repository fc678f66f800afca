"""Files of any disk copied into a directory of this machine, as those of an object store.

A copy is whole and durable under its name, or it is missing; see ``link_or_copy``.
"""

from logfs.disk.link_or_copy import Count, FileTransfer
from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import TEMPORARY_SUFFIX, Disk, File, parent_of

_CHUNK_BYTES = 8 << 20


class DiskTransfer(FileTransfer):
    """Copies files of a disk that this machine cannot open by path. One thread at a time.

    What was copied before, with the same size and time, is not copied again.
    """

    def __init__(self, disk: Disk, target: str, *, count: Count | None = None) -> None:
        super().__init__("", target, may_link=False, count=count)
        self._disk = disk
        self._to = PosixDisk(target)

    def copy(
        self, name: str, *, to: str | None = None, inode: int | None = None, size: int | None = None
    ) -> None:
        """See ``FileTransfer``."""
        place = to or name
        stat = self._disk.stat(name)
        if inode not in (None, stat.inode):
            raise FileNotFoundError(f"{name} is another file by now")
        if self._is_there(name, place):
            return
        length = stat.size if size is None else size
        source, temporary = self._disk.open(name, uncached=True), place + TEMPORARY_SUFFIX
        try:
            copy = self._to.open(temporary, write=True, create=True)
            try:
                copy.truncate(0)
                self._copy_bytes(source, copy, length)
                copy.sync()
            finally:
                copy.close()
        finally:
            source.close()
        self._to.touch_times(temporary, stat.mtime_ms)
        self._to.rename(temporary, place)
        self._to.sync_directory(parent_of(place))

    def is_copy(self, name: str, root: str) -> bool:
        """See ``FileTransfer``."""
        return self._is_there(name, name, PosixDisk(root))

    def begins_alike(self, name: str, root: str, size: int) -> bool:
        """See ``FileTransfer``; ``root`` is the target."""
        try:
            file = self._to.open(name)
        except FileNotFoundError:
            return False
        try:
            return file.pread(size, 0) == self._disk.open(name).pread(size, 0)
        finally:
            file.close()

    def reuse(self, name: str, root: str) -> bool:
        """See ``FileTransfer``."""
        return root == self.target or self._put_link(root, name)

    def _copy_bytes(self, source: File, copy: File, length: int) -> None:
        for start in range(0, length, _CHUNK_BYTES):
            wanted = min(_CHUNK_BYTES, length - start)
            data = source.pread(wanted, start)
            if len(data) < wanted:
                raise FileNotFoundError("the file has become shorter")
            copy.pwrite(data, start)
            self._counted(len(data))

    def _is_there(self, name: str, place: str, root: PosixDisk | None = None) -> bool:
        stat = self._disk.stat(name)
        try:
            found = (root or self._to).stat(place)
        except FileNotFoundError:
            return False
        return (found.size, found.mtime_ms) == (stat.size, stat.mtime_ms)
