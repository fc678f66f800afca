"""The data directory that has a store: its file ``logfs.remote``, and the disk with both.

The file is made by ``logfs remote init`` and edited by people; a daemon reads it when it starts. It
is a plain file of ``key=value`` lines, whose name a broker ignores.

``logfs.remote.home`` tells a plain copy from the directory that had the id first:

    MACHINE/INODE           the machine, and the inode of the directory
    INODE/INODE/GENERATION  of the directory, and of this very file; only where the file system has
                            generations

A copy has other inodes, or another generation: it is random, and new for each use of an inode. A
disk that is moved to another machine keeps all three. Without generations the first line decides.
"""

import errno
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from logfs.config.properties import format_properties, parse_properties
from logfs.config.remote import RemoteConfig
from logfs.disk.generations import generation_of
from logfs.disk.ownership import may_be_foreign
from logfs.disk.remote.counters import BlockCounters
from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import CachedBytes, OpenPart, OverlayDisk, RemotePart
from logfs.disk.vfs import SMALL_FILE_BYTES, Disk, File, RootedDisk, check_size
from logfs.errors import InvalidConfigError, LogfsError
from logfs.log.names import REMOTE, REMOTE_HOME
from logfs.log.remote.catalog import DirectoryCatalog
from logfs.log.remote.head import WritingDirectory
from logfs.log.remote.rows import TieredRows


class OpenedStore(NamedTuple):
    """A store, what opens parts of its objects as files, what reads cost, and what is cached."""

    objects: ObjectStore
    open_part: OpenPart
    counters: BlockCounters | None = None
    cached: CachedBytes | None = None


OpenStore = Callable[[RemoteConfig], OpenedStore]
"""Opens the store of a data directory; sends no request."""


def read_remote_config(disk: Disk) -> RemoteConfig | None:
    """Return the settings of a data directory's store; None if it has none.

    Raises:
        InvalidConfigError: The file does not parse; the message names it.
        OSError: The disk failed.
    """
    try:
        file = disk.open(REMOTE)
    except FileNotFoundError:
        return None
    try:
        size, is_foreign = file.size(), may_be_foreign(file)
        check_size(size, SMALL_FILE_BYTES, REMOTE)
        data = file.pread(size, 0)
    finally:
        file.close()
    try:
        properties = parse_properties(data.decode(), source=REMOTE)
        return RemoteConfig.from_properties(properties, is_foreign=is_foreign)
    except UnicodeDecodeError:
        raise InvalidConfigError(f"{REMOTE}: it is not UTF-8") from None
    except InvalidConfigError as error:
        text = str(error)
        raise InvalidConfigError(text if text.startswith(REMOTE) else f"{REMOTE}: {text}") from None


class OwnDirectory(NamedTuple):
    """Which data directory this is.

    Attributes:
        directory_id: 16 bytes; a plain copy has the same.
        is_copy: The directory is a copy of that for which the id was noted, or was moved to
            another file system.
    """

    directory_id: bytes
    is_copy: bool

    @property
    def refusal(self) -> str | None:
        """Why this directory may not write to the store; None: it may."""
        if not self.is_copy:
            return None
        return (
            "this data directory is a copy of another one, or it was moved to another file system: "
            "nothing is copied to the object store or deleted from it. If the other one is gone: "
            "stop the daemon, then 'logfs remote take-over'"
        )

    def writer(self, host: str, now_ms: int) -> WritingDirectory:
        """Return it as the writer of partitions from now on; ``host`` is the machine's name."""
        return WritingDirectory(self.directory_id, host, now_ms)


def own_directory(
    disk: Disk, new_id: Callable[[], bytes], machine: str, *, is_moved: bool = False
) -> OwnDirectory:
    """Return which data directory this is; the first call notes it.

    Args:
        disk: The local disk.
        new_id: Gives 16 random bytes.
        machine: Tells this machine from others.
        is_moved: The directory is no copy: note where it is now.

    Raises:
        InvalidConfigError, OSError: See ``read_remote_config``.
    """
    config = read_remote_config(disk)
    place = f"{machine}/{disk.stat('').inode}"
    noted = [] if is_moved else _read_home(disk)
    if config is not None and config.directory_id:
        directory_id = bytes.fromhex(config.directory_id)
        if noted:
            identity = _identity(disk)
            if identity is not None and len(noted) > 1:
                return OwnDirectory(directory_id, noted[1] != identity)
            if identity is None or noted[0] != place:
                return OwnDirectory(directory_id, noted[0] != place)
    else:
        directory_id, text = new_id(), disk.read(REMOTE).decode()
        separator = "" if text.endswith("\n") or not text else "\n"
        lines = f"{text}{separator}directory.id={directory_id.hex()}\n"
        disk.replace(REMOTE, lines.encode())
    _note_home(disk, place)
    return OwnDirectory(directory_id, is_copy=False)


def _read_home(disk: Disk) -> list[str]:
    """Return the lines of the note; none if it is missing, or was not written to its end."""
    try:
        text = disk.read(REMOTE_HOME).decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines() if text.endswith("\n") else []


def _note_home(disk: Disk, place: str) -> None:
    """Write the note in its place: a file that is renamed over it would have another inode."""
    file = disk.open(REMOTE_HOME, write=True, create=True)
    try:
        file.truncate(0)
        identity = _identity(disk)
        file.pwrite("".join(f"{line}\n" for line in (place, identity) if line).encode(), 0)
        file.sync()
    finally:
        file.close()
    disk.sync_directory("")


def _identity(disk: Disk) -> str | None:
    """Return what tells the file of the note from a copy of it; None if that is not known."""
    file = disk.open(REMOTE_HOME)
    try:
        generation = generation_of(file)
        if generation is None:
            return None
        return f"{disk.stat('').inode}/{file.inode()}/{generation}"
    finally:
        file.close()


def forget_directory_id(disk: Disk) -> None:
    """Take the id out of ``logfs.remote``, if there is one: a copy is another data directory.

    With the same id the copy and its origin would take the partitions of the store from each other.
    """
    try:
        lines = disk.read(REMOTE).splitlines(keepends=True)
    except FileNotFoundError:
        return
    kept = [line for line in lines if line.partition(b"=")[0].strip() != b"directory.id"]
    if kept != lines:
        disk.replace(REMOTE, b"".join(kept))


def write_remote_config(disk: Disk, config: RemoteConfig) -> None:
    """Write the settings of a data directory's store, durably."""
    disk.replace(REMOTE, format_properties(config.overrides()).encode())


def tiered_disk(local: RootedDisk, open_store: OpenStore) -> RootedDisk:
    """Return the disk of a data directory with the files that its store has.

    The store is opened at the first request.

    Args:
        local: The disk of the directory; the answer if it has no ``logfs.remote``.
        open_store: Opens the store.

    Raises:
        InvalidConfigError, OSError: See ``read_remote_config``.
    """
    config = read_remote_config(local)
    if config is None:
        return local
    opened = _Opened(config, open_store)
    catalog = DirectoryCatalog(local, opened.objects, config.url)
    return OverlayDisk(local, catalog, opened.open_part, opened.counters, opened.cached)


def without_store(local: Disk) -> OverlayDisk:
    """Return the disk of a data directory whose store is not asked: tiered segments are known."""

    def objects() -> ObjectStore:
        raise OSError(errno.EIO, "the object store is not asked here")

    def open_part(name: str, _: RemotePart) -> File:
        raise OSError(errno.EIO, "the file is in an object store, which is not asked here", name)

    return OverlayDisk(local, DirectoryCatalog(local, objects, ""), open_part)


def tiered_sizes(local: Disk, directory: str) -> dict[int, int]:
    """Return the bytes of each tiered ``.log`` of a partition directory, by base offset.

    Raises:
        CorruptIndexError, UnsupportedFormatError, OSError: See ``TieredRows.load``.
    """
    rows = TieredRows.load(local, directory)
    return {} if rows is None else {base: row.size_bytes for base, row in rows.entries.items()}


class _Opened:
    """A store that is opened when it is first needed. Any thread."""

    def __init__(self, config: RemoteConfig, open_store: OpenStore) -> None:
        self._config = config
        self._open_store = open_store
        self._guard = threading.Lock()
        self._opened: OpenedStore | None = None

    def objects(self) -> ObjectStore:
        """Return the store."""
        return self._get().objects

    def counters(self) -> BlockCounters | None:
        """Return what reads have cost; None before the store was used."""
        opened = self._opened
        return None if opened is None else opened.counters

    def cached(self, keys: Iterable[str]) -> int:
        """Return how many bytes of objects are in the cache; 0 before the store was used."""
        opened = self._opened
        return 0 if opened is None or opened.cached is None else opened.cached(keys)

    def open_part(self, name: str, part: RemotePart) -> File:
        """Return the file of a part of an object."""
        return self._get().open_part(name, part)

    def _get(self) -> OpenedStore:
        with self._guard:
            if self._opened is None:
                try:
                    self._opened = self._open_store(self._config)
                except LogfsError as error:  # a reader expects what a disk raises
                    raise OSError(errno.EIO, str(error), self._config.url) from None
            return self._opened
