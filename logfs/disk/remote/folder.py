"""Objects that are files below a local directory: a copy of a bucket, read-only.

For a bucket that was copied (``aws s3 sync``, ``rclone copy``) or mounted by another program, and
for stores that are directories in the first place, as Kafka's LocalTieredStorage.
"""

import errno
from collections.abc import Iterable, Iterator
from typing import NoReturn

from logfs.disk.posix import PosixDisk
from logfs.disk.remote.objects import KeyListing, ObjectStat
from logfs.disk.vfs import FileStat, ReadableBuffer

SCHEME = "file://"


class FolderStore:
    """An ``ObjectStore`` of the files below a directory; every change is refused with EROFS."""

    def __init__(self, root: str) -> None:
        self.url = f"{SCHEME}{root}"
        self._disk = PosixDisk(root)

    def get(self, key: str, most: int) -> tuple[bytes, ObjectStat]:
        """See ``ObjectStore``."""
        stat = self.stat(key)
        return self._disk.read(key, most), stat

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """See ``ObjectStore``."""
        file = self._disk.open(key)
        try:
            data = file.pread(length, start)
        finally:
            file.close()
        if len(data) < length:
            text = f"{len(data)} bytes from byte {start} on, {length} expected"
            raise OSError(errno.EIO, text, f"{self.url}/{key}")
        return memoryview(data)

    def stat(self, key: str) -> ObjectStat:
        """See ``ObjectStore``; the ETag tells one file from the one that takes its place."""
        found = self._disk.stat(key)
        if found.is_directory:
            raise FileNotFoundError(errno.ENOENT, "it is a directory", f"{self.url}/{key}")
        return _described(key, found)

    def put(self, key: str, parts: Iterable[ReadableBuffer]) -> None:
        """Raise OSError (EROFS)."""
        self._refuse(key)

    def create(self, key: str, data: ReadableBuffer) -> str:
        """Raise OSError (EROFS)."""
        self._refuse(key)

    def swap(self, key: str, data: ReadableBuffer, etag: str) -> str:
        """Raise OSError (EROFS)."""
        self._refuse(key)

    def delete(self, key: str) -> None:
        """Raise OSError (EROFS)."""
        self._refuse(key)

    def list_level(self, prefix: str) -> KeyListing:
        """See ``ObjectStore``."""
        try:
            found = self._disk.contents(prefix.rstrip("/"))
        except (FileNotFoundError, NotADirectoryError):
            return KeyListing([], [])
        objects = [self.stat(prefix + name) for name in sorted(found.files)]
        return KeyListing(sorted(found.directories), objects)

    def list_all(self, prefix: str) -> Iterator[ObjectStat]:
        """See ``ObjectStore``."""
        parent, _, start = prefix.rpartition("/")
        level = self.list_level(f"{parent}/" if parent else "")
        yield from (stat for stat in level.objects if stat.key.startswith(prefix))
        for name in level.directories:
            if name.startswith(start):
                yield from self.list_all(f"{parent}/{name}/" if parent else f"{name}/")

    def _refuse(self, key: str) -> NoReturn:
        raise OSError(errno.EROFS, "the copy of a bucket is read-only", f"{self.url}/{key}")


def _described(key: str, found: FileStat) -> ObjectStat:
    etag = f"{found.inode:x}-{found.mtime_ms:x}-{found.size:x}"
    return ObjectStat(key, found.size, etag, found.mtime_ms)
