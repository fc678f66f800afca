"""A data directory read through its mount, for users without access to the directory itself.

The files of partitions are in ``.segments``, with the permissions of their topics. The files in the
root of a data directory are not there: the mount answers for them.
"""

import errno
import os
from collections.abc import Collection
from contextlib import suppress
from typing import TypeAlias
from zlib import crc32

from logfs.disk.posix import PosixDisk
from logfs.disk.posixfile import PosixFile
from logfs.disk.vfs import SMALL_FILE_BYTES, File, FileStat, RootedDisk
from logfs.library.owner import data_directory
from logfs.library.places import ROOT_FILES, Place
from logfs.log import names
from logfs.log.checkpoints import format_offsets
from logfs.log.reading.address import SEGMENTS_NAME
from logfs.machine import mountpoints
from logfs.machine.disks import disk_of, is_url
from logfs.machine.host import system_clock
from logfs.types import TopicPartition

_FACTS = {
    names.LOG_START_OFFSET_CHECKPOINT: "user.logfs.log_start_offset",
    names.REPLICATION_OFFSET_CHECKPOINT: "user.logfs.high_watermark",
}
"""Files of the root that readers need, and the attribute of a partition with the same fact."""
_TOPIC_ID = "user.logfs.topic_id"
_INODE = "user.logfs.inode"
_LOG = ".log"
_PROBED_BYTES = 1 << 20

Names: TypeAlias = list[TopicPartition]
Entries: TypeAlias = list[tuple[str, bool]]


def reading_disk(place: Place, topics: Collection[str] | None = None) -> RootedDisk:
    """Return the disk from which to read the files of a data directory, a mount or a URL.

    Args:
        topics: The topics that will be read; None: all. Others may be missing.

    Raises:
        OSError: The mount does not answer.
    """
    if not place.is_mount:
        return disk_of(place.root)
    data = data_directory(place)
    return disk_of(data) if _is_readable(data) else MountedDisk(place.root, topics)


def reading_root(place: Place) -> str:
    """Return the directory that a process opens with ``disk_at`` to read a data directory.

    The data directory; the mount point for a user of the mount that may not read the directory.

    Raises:
        OSError: The mount does not answer.
    """
    data = data_directory(place)
    return place.root if place.is_mount and not _is_readable(data) else data


def disk_at(root: str) -> RootedDisk:
    """Return the disk from which this machine reads the files of a ``reading_root`` or a URL."""
    return MountedDisk(root) if not is_url(root) and is_mount_point(root) else disk_of(root)


def is_mount_point(path: str) -> bool:
    """Return whether logfs is mounted at a path on this machine."""
    found = mountpoints.mount_at(path)
    return found is not None and found.kind == mountpoints.KIND


class _MountedFile(PosixFile):
    """A ``.log`` below ``.segments``."""

    __slots__ = ("_size",)

    def __init__(self, path: str, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self._size = 0

    def size(self) -> int:
        """See ``vfs.File``; read to the end if the file was replaced, since stat fails then."""
        try:
            self._size = super().size()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            while data := self.pread(_PROBED_BYTES, self._size):
                self._size += len(data)
        return self._size

    def inode(self) -> int:
        """Return the number that the file has on the disk."""
        return _disk_inode(self.fileno(), super().inode())


class MountedDisk(PosixDisk):
    """The directory ``.segments`` of a mount, with the interface of the mounted data directory.

    Args:
        topics: The visible topics; None: all.
    """

    __slots__ = ("_topics", "point")

    def __init__(self, point: str, topics: Collection[str] | None = None) -> None:
        super().__init__(f"{point}/{SEGMENTS_NAME}")
        self.point = point
        self._topics = topics

    def list(self, name: str) -> "Entries":
        """See ``vfs.Disk``."""
        if name:
            return super().list(name)
        return [(found.directory, True) for found in sorted(self._partitions())]

    def inodes(self, name: str) -> dict[str, int]:
        """See ``vfs.Disk``; the number of a partition's directory is made of its topic's id."""
        if name:
            return self._files(name)
        found = self._partitions()
        ids = {topic: self._topic_number(topic) for topic, _ in found}
        return {one.directory: ids[one.topic] for one in found}

    def stat(self, name: str) -> FileStat:
        """See ``vfs.Disk``; the root has always just changed."""
        now_ms = system_clock().now_ms()
        if name in _FACTS:
            return FileStat(size=0, mtime_ms=now_ms, is_directory=False, inode=0)
        found = super().stat(name)
        if not name:
            return found._replace(mtime_ms=now_ms)
        return found._replace(inode=self._inode(name, found.inode))

    def open(
        self, name: str, *, write: bool = False, create: bool = False, uncached: bool = False
    ) -> File:
        """See ``vfs.Disk``; nothing can be written."""
        file = super().open(name, write=write, create=create, uncached=uncached)
        if write or not name.endswith(_LOG):
            return file
        try:
            return _MountedFile(self._path(name), os.dup(file.fileno()))
        finally:
            file.close()

    def exists(self, name: str) -> bool:
        """See ``vfs.Disk``."""
        return name in _FACTS or super().exists(name)

    def read(self, name: str, most: int | None = SMALL_FILE_BYTES) -> bytes:
        """See ``vfs.Disk``."""
        fact = _FACTS.get(name)
        return super().read(name, most) if fact is None else self._checkpoint(fact)

    def mount_id(self) -> str | None:
        """Return the id of the mount under the data directory, whose page cache may be lost."""
        place = Place(self.point, (), is_mount=True)
        return PosixDisk(data_directory(place)).mount_id()

    def is_locked(self, name: str) -> bool:
        """Return True: the daemon of the mount owns the data directory."""
        return True

    def _partitions(self) -> "Names":
        if self._topics is None:
            parsed = map(names.parse_partition_directory, os.listdir(self.root))  # noqa: PTH208
            return [TopicPartition(one.topic, one.partition) for one in parsed if one is not None]
        return [one for topic in self._topics for one in self._of_topic(topic)]

    def _of_topic(self, topic: str) -> "Names":
        try:
            numbers = os.listdir(f"{self.point}/{topic}")  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [TopicPartition(topic, int(number)) for number in numbers]

    def _files(self, directory: str) -> dict[str, int]:
        found = {}
        for name, ino in super().inodes(directory).items():
            with suppress(FileNotFoundError):  # removed meanwhile
                found[name] = self._inode(f"{directory}/{name}", ino)
        return found

    def _inode(self, name: str, ino: int) -> int:
        """Return the number that a ``.log`` has on the disk; ``ino`` for any other file."""
        return _disk_inode(self._path(name), ino) if name.endswith(_LOG) else ino

    def _topic_number(self, topic: str) -> int:
        try:
            return crc32(os.getxattr(f"{self.point}/{topic}", _TOPIC_ID))
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.ENOENT, errno.EACCES):
                raise
            return 0  # it has none, was deleted meanwhile, or this user may not read it

    def _checkpoint(self, fact: str) -> bytes:
        offsets = {}
        for found in self._partitions():
            path = f"{self.point}/{found.topic}/{found.partition}"
            try:
                offsets[found] = int(os.getxattr(path, fact))
            except (FileNotFoundError, PermissionError):
                continue  # deleted meanwhile, or a partition that this user may not read
        return format_offsets(offsets)


def _disk_inode(path: str | int, ino: int) -> int:
    """Return the number of a file on the disk; ``ino`` if the daemon does not say it."""
    try:
        return int(os.getxattr(path, _INODE))
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        return ino


def _is_readable(data: str) -> bool:
    """Tell whether this user may read a data directory, its small files and its partitions."""
    if not os.access(data, os.R_OK | os.X_OK):
        return False
    with os.scandir(data) as entries:
        for entry in entries:
            is_partition = names.parse_partition_directory(entry.name) is not None
            wanted = os.R_OK | os.X_OK if is_partition else os.R_OK
            if (is_partition or entry.name in ROOT_FILES) and not os.access(entry.path, wanted):
                return False
    return True
