"""The bytes of an unfinished line, in a plain file ``logfs.N.unfinished`` of the partition.

Every open file that has written the beginning of a line has one. The line becomes a record when
it is completed, when the file is closed, or when the partition is loaded after a crash. So that a
crash between the append and the end of this file cannot make two records of one line, the append
is announced here first: an announced batch that stands in the log has consumed the line.

    header, 16 bytes
    bytes  field    type
    0-3    magic    "LFUN"
    4-7    version  int32   1
    8-11   view     int32   0 text, 1 tsv, 2 jsonl
    12-15  zero

    frames, one behind the other
    0-3    kind     int32   1 bytes of the line; 2 announcement; 3 the announced batch was not
                            appended, the line goes on
    4-7    length   int32   of the data
    8-11   CRC      uint32  CRC-32C of the frame before's CRC (0: none), bytes 0-7 and the data
    12-    data             2: base offset int64, CRC uint32 of the batch; 3: none

Bytes of a line directly behind an announcement begin the next line. Frames are only appended, so
nothing that was synced is written again, and a torn one ends the file. It is cut back to its header
between two lines when it has grown. A file that was synced holds one line only, and stays until the
record of that line is durable: a power cut may take the record, but not what was synced before.
"""

import contextlib
import logging
import struct
from typing import NamedTuple

from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError, UnsupportedFormatError
from logfs.records.checksum import crc32c
from logfs.types import View

logger = logging.getLogger(__name__)

VERSION = 1
_MAGIC = b"LFUN"
_HEADER = struct.Struct(">4sii4x")
_FRAME = struct.Struct(">iiI")
_CHECKED = struct.Struct(">Iii")
_MARK = struct.Struct(">qI")
_BYTES, _ANNOUNCED, _CANCELLED = 1, 2, 3
_RESET_BYTES = 64 * 1024


class UnfinishedLine(NamedTuple):
    """What an ``.unfinished`` file holds.

    Attributes:
        view: The rendering the line is written in.
        data: Its bytes so far.
        announced: Base offset and CRC of the batch that holds the line, if it was appended.
        end: Where the valid frames end.
        crc: Of the last of them.
    """

    view: View
    data: bytes
    announced: tuple[int, int] | None
    end: int
    crc: int


def decode_unfinished(name: str, data: bytes) -> UnfinishedLine:
    """Decode a whole file. One that is cut in its header, or all zero, holds nothing.

    Raises:
        CorruptRecordError: The header does not decode.
        UnsupportedFormatError: A newer logfs wrote it.
    """
    if len(data) < _HEADER.size or not any(data[: _HEADER.size]):
        return UnfinishedLine(View.TEXT, b"", None, 0, 0)
    magic, version, view = _HEADER.unpack_from(data)
    if magic != _MAGIC or view not in tuple(View):
        raise CorruptRecordError(f"{name}: not an unfinished line (its header does not decode)", 0)
    if version != VERSION:
        raise UnsupportedFormatError(f"{name}: version {version}, this logfs reads {VERSION}")
    line, announced = b"", None
    position, crc = _HEADER.size, 0
    while position + _FRAME.size <= len(data):
        kind, length, found = _FRAME.unpack_from(data, position)
        begin = position + _FRAME.size
        content = data[begin : begin + max(length, 0)]
        if len(content) != length or found != _checksum(crc, kind, content):
            break
        position, crc = begin + length, found
        if kind == _BYTES:
            line = content if announced else line + content
        announced = _MARK.unpack(content) if kind == _ANNOUNCED else None
    return UnfinishedLine(View(view), line, announced, position, crc)


class UnfinishedFile:
    """The ``.unfinished`` file of one writer: made when first needed, one owner.

    Attributes:
        name: Of the file below the data directory.
        line: The bytes of the unfinished line so far.
        is_durable: Some of them may survive a power cut.
    """

    def __init__(self, disk: Disk, directory: str, name: str, view: View) -> None:
        self._disk = disk
        self._directory = directory
        self.name = f"{directory}/{name}"
        self._view = view
        self._file: File | None = None
        self._end = 0
        self._crc = 0
        self._is_announced = False
        self._is_synced = True
        self.is_durable = False
        self.line = b""

    def keep(self, data: bytes) -> None:
        """Add bytes to the line: they survive a kill of the process when this returns.

        Raises:
            OSError: They could not be stored; the line is as before.
        """
        self._open()
        frames = [(_BYTES, data)]
        if self.line and self._is_announced:
            frames.insert(0, (_CANCELLED, b""))
        self._write(*frames)
        self._is_announced = False
        self.line += data

    def adopt(self, line: UnfinishedLine) -> None:
        """Go on with the file that an earlier writer left."""
        self._file = self._disk.open(self.name, write=True)
        self._end, self._crc = line.end, line.crc
        self._is_announced = line.announced is not None
        self.is_durable = True
        self.line = line.data

    def announce(self, base_offset: int, crc: int) -> None:
        """Say that the line is part of a batch that is about to be appended.

        Durable if the line may be: else a power cut could keep both the line and its record.
        """
        self._write((_ANNOUNCED, _MARK.pack(base_offset, crc)))
        self._is_announced = True
        if self.is_durable:
            self.sync()

    def cancel(self) -> None:
        """The announced batch was not appended. What cannot be noted now is with the next bytes."""
        with contextlib.suppress(OSError):
            self._write((_CANCELLED, b""))
            self._is_announced = False

    def consumed(self) -> None:
        """The announced batch is in the log: the line is a record, the next one is empty."""
        self.line = b""

    def sync(self) -> None:
        """Make the bytes kept so far durable."""
        if self._file is None or self._is_synced:
            return
        self._file.sync()
        if not self.is_durable:
            self._disk.sync_directory(self._directory)
            self.is_durable = True
        self._is_synced = True

    def close(self, *, remove: bool) -> None:
        """Close the file; ``remove`` once nothing in it is needed any more.

        One that cannot be removed is harmless: what it holds is announced.
        """
        if self._file is None:
            return
        self._file.close()
        self._file = None
        if remove:
            try:
                self._disk.remove(self.name)
            except FileNotFoundError:
                pass  # gone with its directory: the topic was deleted
            except OSError as error:
                logger.warning("%s could not be removed: %s", self.name, error)

    def _open(self) -> None:
        if self._file is None:
            self._file = self._disk.open(self.name, write=True, create=True)
        if not self.line and self._end > _RESET_BYTES:
            self._file.truncate(_HEADER.size)
            self._end, self._crc, self._is_announced = _HEADER.size, 0, False

    def _write(self, *frames: tuple[int, bytes]) -> None:
        """Append frames with one write; the first one comes with the header."""
        if self._file is None:
            return
        crc, end = self._crc, self._end
        parts = [] if end else [_HEADER.pack(_MAGIC, VERSION, self._view)]
        for kind, data in frames:
            crc = _checksum(crc, kind, data)
            parts += [_FRAME.pack(kind, len(data), crc), data]
        written = b"".join(parts)
        self._is_synced = False
        try:
            self._file.pwrite(written, end)
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(end)  # it may be there as a whole
            raise
        self._end, self._crc = end + len(written), crc


def _checksum(before: int, kind: int, data: bytes) -> int:
    return crc32c(_CHECKED.pack(before, kind, len(data)) + data)
