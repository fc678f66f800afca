"""``logfs://``: addresses as files for fsspec, and so for pandas, Dask and DuckDB by URL.

    pandas.read_json("logfs:///var/lib/logfs/orders/0@-1d.jsonl", lines=True)

A path is that of ``logfs cat``, ``DATA/TOPIC/PARTITION[@FROM[..TO]][.VIEW]``. DATA is a data
directory or a mount point. A file that is opened to read has the bytes that the address means at
that moment, so its size is known and does not change. Files are opened to append (``ab``), never to
overwrite. Directories are DATA and its topics.

fsspec finds this class by the name of the protocol. It is not imported by anything here.
"""

import io
import os
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from fsspec.spec import AbstractFileSystem

from logfs.errors import LogfsError, NoDataDirectoryError, TopicExistsError
from logfs.library.addresses import FoundAddress, ReadableFile, find
from logfs.library.directory import partitions_of, split_address
from logfs.library.places import Place, locate
from logfs.library.writer import Writer
from logfs.library.zones import zone_of
from logfs.log.lines.form import LineForm, LineTarget
from logfs.log.reading.address import Suffix
from logfs.machine.disks import disk_of
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.resolve import fixed_now
from logfs.types import IsolationLevel, View

_BUFFER_BYTES = 1 << 20
_SPOOLED_BYTES = 64 << 20
_VIEWS = {Suffix.TEXT: View.TEXT, Suffix.TSV: View.TSV, Suffix.JSONL: View.JSONL}


class LogfsFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Data directories and mounts of logfs as a file system of fsspec.

    Args:
        isolation_level: ``read_uncommitted``, ``read_committed`` or ``high_watermark``: which
            records of a data directory are shown. A mount shows what its own option says.
        options: Those of fsspec.
    """

    protocol = "logfs"
    root_marker = "/"

    def __init__(self, isolation_level: str = "read_uncommitted", **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self._level = IsolationLevel(isolation_level)

    @classmethod
    def _strip_protocol(cls, path: str | list[str]) -> Any:  # noqa: ANN401 - as in fsspec
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path).removeprefix(f"{cls.protocol}://")
        return path.rstrip("/") or cls.root_marker

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: ANN401
        """List the topics of a data directory, or the partitions of a topic.

        Raises:
            FileNotFoundError: There is no such directory.
        """
        path = self._strip_protocol(path)
        place = _locate(path)
        if place.is_mount and Path(path).is_dir():
            names = sorted(entry.name for entry in Path(path).iterdir())
        elif place.is_mount or len(place.address) > 1:
            return [self.info(path)] if detail else [path]
        else:
            names = _names_in(path, place)
        paths = [f"{path}/{name}" for name in names]
        return [self.info(one) for one in paths] if detail else paths

    def info(self, path: str, **_: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the name, the size in bytes (None for a directory) and the type of a path.

        Raises:
            FileNotFoundError: There is no such path.
        """
        path = self._strip_protocol(path)
        place = _locate(path)
        if place.is_mount and Path(path).is_dir():
            return _directory(path)
        if not place.is_mount and len(place.address) < 2 and "@" not in "".join(place.address):
            _names_in(path, place)
            return _directory(path)
        with self._open(path) as file:
            return {"name": path, "size": file.seek(0, io.SEEK_END), "type": "file"}

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:  # noqa: ANN401
        """Create a topic with the usual number of partitions.

        Raises:
            FileExistsError: It exists.
        """
        place = _locate(self._strip_protocol(path))
        (topic,) = place.address
        try:
            with Writer.of(place) as writer:
                writer.change_topics(lambda topics: topics.create_topic(topic, None, {}))
        except TopicExistsError as error:
            raise FileExistsError(str(error)) from error

    def _open(self, path: str, mode: str = "rb", *_: Any, **__: Any) -> BinaryIO:  # noqa: ANN401
        path = self._strip_protocol(path)
        place = _locate(path)
        if mode == "ab":
            return io.BufferedWriter(_Appended(place), _BUFFER_BYTES)
        if mode != "rb":
            raise PermissionError(f"{path}: records are not overwritten: open it with 'a'")
        if place.is_mount:
            return Path(path).open("rb")
        try:
            return _opened(find(place, self._level, zone_of(place)))
        except LogfsError as error:
            raise FileNotFoundError(f"{path}: {error}") from error


def _locate(path: str) -> Place:
    try:
        return locate(path)
    except NoDataDirectoryError as error:
        raise FileNotFoundError(str(error)) from error


def _names_in(path: str, place: Place) -> list[str]:
    """Return the names in a data directory or a topic of it."""
    found = partitions_of(disk_of(place.root))
    if not place.address:
        return list(found)
    (topic,) = place.address
    if topic not in found:
        raise FileNotFoundError(f"{path}: no topic {topic}")
    return list(map(str, found[topic]))


def _directory(path: str) -> dict[str, Any]:
    return {"name": path, "size": None, "type": "directory"}


def _opened(found: FoundAddress) -> BinaryIO:
    """Return what an address means as a file that can be read anywhere."""
    if found.resolved is None:
        return io.BytesIO(found.text) if found.file is None else _spooled(found.file)
    fixed = fixed_now(found.resolved)
    if fixed is not None:
        return io.BufferedReader(_Fixed(FixedFile(fixed)), _BUFFER_BYTES)
    one = found.resolved
    return _spooled(GrowingFile(one.log, one.view, one.start, one.limit, one.level))


def _spooled(file: ReadableFile) -> BinaryIO:
    """Return a copy of a file whose size only a reader that goes through it finds out."""
    copy = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115 - it is returned
    buffer, offset = memoryview(bytearray(_BUFFER_BYTES)), 0
    try:
        while count := file.read_into(buffer, offset):
            copy.write(buffer[:count])
            offset += count
    finally:
        file.close()
    copy.seek(0)
    return copy  # type: ignore[return-value]


class _Fixed(io.RawIOBase):
    """A fixed name."""

    def __init__(self, file: FixedFile) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, out: Any) -> int:  # noqa: ANN401 - any writable buffer
        with memoryview(out).cast("B") as view:
            count = self._file.read_into(view, self._position)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size()}
        self._position = max(begin[whence] + offset, 0)
        return self._position

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _Appended(io.RawIOBase):
    """Appends lines; what follows the last newline becomes a record when it is closed."""

    def __init__(self, place: Place) -> None:
        topic, address = split_address(place.address)
        view = None if address is None or address.has_selector else _VIEWS.get(address.view)
        if address is None or view is None:
            path = "/".join([place.root, *place.address])
            raise PermissionError(
                f"{path}: expected TOPIC/PARTITION, which may end in .tsv or .jsonl, to append"
            )
        self._target = LineTarget(topic, address.partition, LineForm(view))
        self._writer = Writer.of(place)
        self._rest = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        lines = self._rest + bytes(data)
        end = lines.rfind(b"\n") + 1
        self._append(lines[:end])
        self._rest = lines[end:]
        return memoryview(data).nbytes

    def close(self) -> None:
        if self.closed:
            return
        try:
            rest, self._rest = self._rest, b""
            self._append(rest + b"\n" if rest else b"")
        finally:
            self._writer.close()
            super().close()

    def _append(self, lines: bytes) -> None:
        if not lines:
            return
        done = self._writer.append_lines(self._target, lines)
        if done.refusal is not None:
            raise done.refusal
