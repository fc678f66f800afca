"""The bytes of an unfinished line, in a plain file ``N.unfinished`` of the partition.

Every open file that has written the beginning of a line has one. The line becomes a record when
it is completed, when the file is closed, or when the partition is loaded after a crash. So that a
crash between the append and the end of this file cannot make two records of one line, the append
is announced here first: an announced batch that stands in the log has consumed the line.

    bytes   field            type
    0-3     magic            "LFUN"
    4-7     version          int32   1
    8-11    view             int32   0 text, 1 tsv, 2 jsonl
    12-15   zero
    16-23   length           int64   bytes of the line
    24-31   consumed offset  int64   base offset of the batch that holds the line; -1 none
    32-35   consumed CRC     uint32  CRC of that batch
    36-63   zero
    64-     the bytes

The order of the writes matters: bytes are stored before the length that makes them count, and the
bytes of the next line only once the batch that consumed the last one is in the log.
"""

import contextlib
import struct
from typing import NamedTuple

from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError, UnsupportedFormatError
from logfs.types import View

VERSION = 1
_MAGIC = b"LFUN"
_HEADER = struct.Struct(">4siii qqI28x")
_COUNTS = struct.Struct(">qqI")
_COUNTS_AT = 16
_MARK = struct.Struct(">qI")
_MARK_AT = 24
_NO_OFFSET = -1


class UnfinishedLine(NamedTuple):
    """What an ``.unfinished`` file holds."""

    view: View
    data: bytes
    consumed_offset: int | None
    consumed_crc: int


def decode_unfinished(name: str, data: bytes) -> UnfinishedLine:
    """Decode a whole file.

    Raises:
        CorruptRecordError: It is cut or does not decode.
        UnsupportedFormatError: A newer logfs wrote it.
    """
    if len(data) < _HEADER.size or data[:4] != _MAGIC:
        raise CorruptRecordError(f"{name}: not an unfinished line (its header does not decode)", 0)
    _, version, view, _, length, offset, crc = _HEADER.unpack_from(data)
    if version != VERSION:
        raise UnsupportedFormatError(f"{name}: version {version}, this logfs reads {VERSION}")
    if view not in tuple(View) or not 0 <= length <= len(data) - _HEADER.size:
        raise CorruptRecordError(f"{name}: view {view}, length {length} in {len(data)} bytes", 8)
    line = data[_HEADER.size : _HEADER.size + length]
    return UnfinishedLine(View(view), line, None if offset == _NO_OFFSET else offset, crc)


class UnfinishedFile:
    """The ``.unfinished`` file of one writer: made when first needed, one owner.

    Attributes:
        line: The bytes of the unfinished line so far.
    """

    def __init__(self, disk: Disk, directory: str, name: str, view: View) -> None:
        self._disk = disk
        self._directory = directory
        self._name = f"{directory}/{name}"
        self._view = view
        self._file: File | None = None
        self._is_synced = True
        self._is_name_synced = False
        self.line = b""

    def keep(self, data: bytes) -> None:
        """Add bytes to the line: they survive a kill of the process when this returns.

        Raises:
            OSError: They could not be stored; the line is as before.
        """
        self._is_synced = False
        if self._file is None:
            self._file = self._disk.open(self._name, write=True, create=True)
            self._file.pwrite(self._header(0), 0)
        self._file.pwrite(data, _HEADER.size + len(self.line))
        line = self.line + data
        self._file.pwrite(_COUNTS.pack(len(line), _NO_OFFSET, 0), _COUNTS_AT)
        self.line = line

    def adopt(self, line: bytes) -> None:
        """Go on with the file that an earlier writer left."""
        self._file = self._disk.open(self._name, write=True)
        self.line = line

    def announce(self, base_offset: int, crc: int) -> None:
        """Say that the line is part of a batch that is about to be appended."""
        if self._file is not None:
            self._file.pwrite(_MARK.pack(base_offset, crc), _MARK_AT)

    def consumed(self) -> None:
        """The announced batch is in the log: the line is a record, the next one is empty."""
        self.line = b""

    def sync(self) -> None:
        """Make the bytes kept so far durable."""
        if self._file is None or self._is_synced:
            return
        self._file.sync()
        if not self._is_name_synced:
            self._disk.sync_directory(self._directory)
            self._is_name_synced = True
        self._is_synced = True

    def close(self, *, remove: bool) -> None:
        """Close the file; ``remove`` once nothing in it is needed any more."""
        if self._file is None:
            return
        self._file.close()
        self._file = None
        if remove:
            # Gone with its directory if the topic was deleted.
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(self._name)

    def _header(self, length: int) -> bytes:
        return _HEADER.pack(_MAGIC, VERSION, self._view, 0, length, _NO_OFFSET, 0)
