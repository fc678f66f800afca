"""Where an export writes: a directory, or a prefix of an object store. Names are relative to it.

What both promise: a file is seen whole or not at all, under its name for ever, and is durable when
``put`` returns. If two run at the same time, one fails: a directory has a lock; in a store a run
replaces the manifest only if no other run has replaced it since.

In a directory a file is written under ``_logfs/writing`` and renamed; the next run removes what a
killed one has left there. A file for a store is written into a temporary file without a name and
becomes an object with one upload. An upload that was killed leaves no object. What a store keeps of
it, the rules of the bucket for incomplete uploads remove.
"""

import contextlib
import io
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Protocol

from logfs.disk.posix import PosixDisk
from logfs.disk.remote.objects import ChangedError, ObjectStore
from logfs.disk.remote.urls import is_store_url, refuse_wrong_url
from logfs.errors import ExportError
from logfs.machine.disks import open_objects
from logfs.spark.exporting.spool import Spool, SpooledFile

FOLDER = "_logfs"
MANIFEST = f"{FOLDER}/manifest.json"
DONE = f"{FOLDER}/done"
WRITING = f"{FOLDER}/writing"
LOCK = f"{FOLDER}/.lock"
_MANIFEST_BYTES = 256 << 20
_PART_BYTES = 16 << 20


class Scratch(Protocol):
    """Takes files that are not whole yet."""

    def create(self) -> io.IOBase:
        """Return a new file, to be written from its start to its end."""
        ...


class ExportTarget(Protocol):
    """A destination.

    Attributes:
        address: An absolute path, or a URL.
        is_locked: One run at a time has ``owned`` it. If not, a run replaces the manifest first.
    """

    address: str
    is_locked: bool

    def owned(self) -> AbstractContextManager[None]:
        """Own it for a run; what an earlier one left unfinished is removed.

        Raises:
            LockedError: Another run is under way.
        """
        ...

    def read(self, name: str) -> bytes:
        """Return a small file; FileNotFoundError if there is none."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Write a small file as a whole, or replace it.

        Raises:
            ExportError: It is the manifest, and another run has replaced it.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file."""
        ...

    def exists(self, name: str) -> bool:
        """Return whether there is such a file."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the files below a folder ("": all but those of ``_logfs``), sorted."""
        ...

    def sizes(self) -> dict[str, int]:
        """Return the sizes in bytes of ``names("")``."""
        ...

    def remove_all(self, names: Collection[str]) -> None:
        """Remove the files of these names that are there, durably."""
        ...

    def scratch(self, name: str) -> AbstractContextManager[Scratch]:
        """Return a place for files that are not whole yet; what is left there is removed after."""
        ...

    def put(self, file: io.IOBase, name: str) -> int:
        """Put a file of ``scratch`` in its place, durably; return its size."""
        ...

    def local(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Return a file opened for reading, or a copy that is removed after."""
        ...


def open_target(destination: str) -> ExportTarget:
    """Return a destination, which need not exist; sends no request.

    Raises:
        InvalidConfigError: It is no address of a store, or obstore is missing.
    """
    refuse_wrong_url(destination)
    if not is_store_url(destination):
        return FolderTarget(str(Path(destination).resolve()))
    return StoreTarget(open_objects(destination.rstrip("/")))


class FolderTarget:
    """A directory; see ``ExportTarget``."""

    is_locked = True

    def __init__(self, path: str) -> None:
        self.address = path
        self._disk = PosixDisk(path)

    @contextmanager
    def owned(self) -> Iterator[None]:
        """See ``ExportTarget``."""
        Path(self.address).mkdir(parents=True, exist_ok=True)
        for folder in (FOLDER, DONE, WRITING):
            self._make_folder(folder)
        self._disk.sync_directory(FOLDER)
        self._disk.sync_directory("")
        lock = self._disk.lock(LOCK)
        try:
            for name, _ in self._disk.list(WRITING):
                self._disk.remove_tree(f"{WRITING}/{name}")
            yield
        finally:
            lock.close()

    def read(self, name: str) -> bytes:
        """See ``ExportTarget``."""
        return self._disk.read(name)

    def replace(self, name: str, data: bytes) -> None:
        """See ``ExportTarget``."""
        self._disk.replace(name, data)

    def remove(self, name: str) -> None:
        """See ``ExportTarget``."""
        self._disk.remove(name)

    def exists(self, name: str) -> bool:
        """See ``ExportTarget``."""
        return self._disk.exists(name)

    def names(self, folder: str) -> list[str]:
        """See ``ExportTarget``."""
        found = []
        for name, is_directory in self._disk.list(folder):
            path = f"{folder}/{name}" if folder else name
            if not is_directory:
                found.append(path)
            elif path != FOLDER:
                found += self.names(path)
        return sorted(found)

    def sizes(self) -> dict[str, int]:
        """See ``ExportTarget``."""
        return {name: self._disk.stat(name).size for name in self.names("")}

    def remove_all(self, names: Collection[str]) -> None:
        """See ``ExportTarget``."""
        folders = {str(Path(name).parent) for name in names}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(name)
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                self._disk.sync_directory(folder)

    @contextmanager
    def scratch(self, name: str) -> Iterator[Scratch]:
        """See ``ExportTarget``."""
        # Of this attempt alone: Spark may begin another one before this one has ended.
        folder = f"{WRITING}/{name}.{os.urandom(8).hex()}"
        self._disk.make_directory(folder)
        with ExitStack() as files:
            yield _Folder(Path(self.address, folder), files)
        self._disk.remove_tree(folder)

    def put(self, file: io.IOBase, name: str) -> int:
        """See ``ExportTarget``."""
        assert isinstance(file, io.BufferedWriter)
        file.close()
        return self._place(str(Path(file.name).relative_to(self.address)), name)

    def _place(self, written: str, name: str) -> int:
        file = self._disk.open(written, write=True)
        file.sync()
        size = file.size()
        file.close()
        folders = [str(folder) for folder in Path(name).parents][:-1]
        for folder in reversed(folders):
            self._make_folder(folder)
        self._disk.rename(written, name)
        # All of them: another writer may have made a directory and not synced its parent yet.
        for folder in (*folders, ""):
            self._disk.sync_directory(folder)
        return size

    @contextmanager
    def local(self, name: str) -> Iterator[IO[bytes]]:
        """See ``ExportTarget``."""
        with Path(self.address, name).open("rb") as file:
            yield file

    def _make_folder(self, name: str) -> None:
        with contextlib.suppress(FileExistsError):
            self._disk.make_directory(name)


class _Folder:
    """Makes the files of a ``scratch`` of a directory, and closes them at the end."""

    def __init__(self, path: Path, files: ExitStack) -> None:
        self._path = path
        self._files = files
        self._count = 0

    def create(self) -> io.IOBase:
        """See ``Scratch``."""
        self._count += 1
        return self._files.enter_context(Path(self._path, str(self._count)).open("xb"))


class StoreTarget:
    """A prefix of an object store; see ``ExportTarget``."""

    is_locked = False

    def __init__(self, store: ObjectStore) -> None:
        self.address = store.url
        self._store = store
        self._etag: str | None = None

    @contextmanager
    def owned(self) -> Iterator[None]:
        """See ``ExportTarget``: here the first ``replace`` of the manifest decides."""
        yield

    def read(self, name: str) -> bytes:
        """See ``ExportTarget``."""
        data, found = self._store.get(name, _MANIFEST_BYTES)
        if name == MANIFEST:
            self._etag = found.etag
        return data

    def replace(self, name: str, data: bytes) -> None:
        """See ``ExportTarget``."""
        if name != MANIFEST:
            self._store.put(name, [data])
            return
        try:
            if self._etag is None:
                self._etag = self._store.create(name, data)
            else:
                self._etag = self._store.swap(name, data, self._etag)
        except (ChangedError, FileExistsError) as error:
            raise ExportError(
                f"{self.address}: another export to it is under way, or has begun since: run this "
                "one again when that has ended"
            ) from error

    def remove(self, name: str) -> None:
        """See ``ExportTarget``."""
        self._store.delete(name)

    def exists(self, name: str) -> bool:
        """See ``ExportTarget``."""
        try:
            self._store.stat(name)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """See ``ExportTarget``."""
        found = self._store.list_all(f"{folder}/" if folder else "")
        keys = (one.key for one in found)
        return sorted(key for key in keys if folder or not key.startswith(f"{FOLDER}/"))

    def sizes(self) -> dict[str, int]:
        """See ``ExportTarget``."""
        found = self._store.list_all("")
        return {one.key: one.size for one in found if not one.key.startswith(f"{FOLDER}/")}

    def remove_all(self, names: Collection[str]) -> None:
        """See ``ExportTarget``."""
        for name in names:
            self._store.delete(name)

    def scratch(self, name: str) -> AbstractContextManager[Scratch]:
        """See ``ExportTarget``."""
        del name
        return closing(Spool())

    def put(self, file: io.IOBase, name: str) -> int:
        """See ``ExportTarget``."""
        assert isinstance(file, SpooledFile)
        self._store.put(name, file.parts())
        return file.size

    @contextmanager
    def local(self, name: str) -> Iterator[IO[bytes]]:
        """See ``ExportTarget``."""
        with tempfile.TemporaryFile(prefix="logfs-export-") as file:
            size, done = self._store.stat(name).size, 0
            while done < size:
                part = self._store.get_range(name, done, min(_PART_BYTES, size - done))
                file.write(part)
                done += len(part)
            file.seek(0)
            yield file


def refuse_inside(destination: str, data: str) -> None:
    """Refuse a destination that is in the data directory, or in the prefix of the logs.

    Raises:
        ExportError: It is.
    """
    if destination == data or destination.startswith(f"{data}/"):
        raise ExportError(
            f"{destination} is in the data directory, where no broker starts with a directory that "
            "it does not know: export to another place"
        )
