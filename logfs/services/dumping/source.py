"""The files of a dump, and reading their batches from start to end through a window.

    bytes of any batch or message
    0-7    offset   int64   v2: of the first record; v0, v1: of the (last) record
    8-11   length   int32   bytes after it, at least 14
    16     magic    int8

Source: Kafka FileLogInputStream, FileRecords.slice.
"""

import struct
from typing import NamedTuple

from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError
from logfs.log.names import parse_cut_file
from logfs.log.segments.batches import Chunks
from logfs.records.layout import (
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD_BYTES,
    SHORTEST_LENGTH,
    UP_TO_MAGIC_BYTES,
)

MAX_FILE_BYTES = 2**31 - 1

_FRAME = struct.Struct(">qiib")
_INT32 = struct.Struct(">i")
_WINDOW_BYTES = 1 << 20


class DumpFile(NamedTuple):
    """A file to print, on the disk of its directory or of one above."""

    disk: Disk
    name: str
    path: str
    absolute: str

    @property
    def directory(self) -> str:
        """The folder on the disk, with a slash; empty for its root."""
        return self.name[: self.name.rfind("/") + 1]

    @property
    def file_name(self) -> str:
        """The name without folders."""
        return self.name.rpartition("/")[2]

    @property
    def is_log(self) -> bool:
        """Whether the file is a ``.log``, or a part that was cut from one."""
        return self.file_name.endswith(".log") or parse_cut_file(self.file_name) is not None

    @property
    def base_offset(self) -> int:
        """Base offset of the segment, by the file's name; raise CorruptRecordError without one."""
        cut = parse_cut_file(self.file_name)
        if cut is not None:
            return cut.base_offset
        text = self.file_name.split(".")[0]
        if not (text.isascii() and text.isdecimal()):
            raise CorruptRecordError(
                f"{self.path}: expected a base offset in the name, as 00000000000000000000.log"
            )
        return int(text)

    def sibling(self, suffix: str) -> str:
        """Name, on the disk, of the file of the same segment with another suffix."""
        return f"{self.directory}{self.file_name.split('.')[0]}{suffix}"


class Frame(NamedTuple):
    """A batch in the window: its place in the buffer and in the file, and its first fields."""

    place: int
    position: int
    offset: int
    size_bytes: int
    magic: int

    @property
    def is_legacy(self) -> bool:
        """Whether the entry is a message of format v0 or v1."""
        return self.magic < 2


class BatchWindow:
    """A part of a file in memory, moved over it as batches are asked for."""

    def __init__(self, file: File, end: int, path: str, window_bytes: int = _WINDOW_BYTES) -> None:
        self.start = 0
        self.filled = 0
        self.end = end
        self._chunks = Chunks(file, end, window_bytes)
        self._path = path

    @property
    def buffer(self) -> bytearray:
        """Bytes of the file, from position ``start`` on."""
        return self._chunks.data

    def index_of(self, position: int, size: int) -> int:
        """Bring bytes into the window; return their place in ``buffer``.

        Args:
            size: How many bytes at least; fewer only where ``end`` is before them.

        Raises:
            CorruptRecordError: The file has become shorter while it was read.
        """
        stop = min(position + size, self.end)
        if position < self.start or stop > self.start + self.filled:
            self.filled = self._chunks.read(position, size)
            self.start = position
            if self.filled < stop - position:
                raise CorruptRecordError(
                    f"{self._path}: ends at {position + self.filled}, expected {self.end} bytes; "
                    "it was cut while it was read",
                    position,
                    self._path,
                )
        return position - self.start

    def frame(self, position: int) -> Frame | None:
        """Return the whole batch at a position, None without; raise CorruptRecordError."""
        if position >= self.end - UP_TO_MAGIC_BYTES:
            return None
        index = self.index_of(position, UP_TO_MAGIC_BYTES)
        offset, length, _, magic = _FRAME.unpack_from(self.buffer, index)
        if length < SHORTEST_LENGTH:
            raise CorruptRecordError(
                f"{self._path}: batch at position {position}: found length {length}, expected at "
                f"least {SHORTEST_LENGTH}; zeros are what preallocation leaves",
                position,
                self._path,
            )
        size = LOG_OVERHEAD_BYTES + length
        if position > self.end - size:
            return None
        return Frame(self.index_of(position, size), position, offset, size, magic)

    def last_offset(self, frame: Frame) -> int:
        """Return the last offset of a batch; raise CorruptRecordError if its header is cut."""
        if frame.is_legacy:
            return frame.offset
        if frame.position + HEADER_BYTES > self.end:
            raise CorruptRecordError(
                f"{self._path}: batch at position {frame.position}: the file ends in its header",
                frame.position,
                self._path,
            )
        index = self.index_of(frame.position, HEADER_BYTES)
        (delta,) = _INT32.unpack_from(self.buffer, index + LAST_OFFSET_DELTA_AT)
        return frame.offset + int(delta)
