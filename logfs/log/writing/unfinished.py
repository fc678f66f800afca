"""The bytes of an unfinished line, in a plain file ``logfs.N.unfinished`` of the partition.

Every open file that has written the beginning of a line has one. The line becomes a record when
it is completed, when the file is closed, or when the partition is loaded after a crash. So that a
crash between the append and the end of this file cannot make two records of one line, the append
is announced here first. After a crash a line is a record if, and only if, the batch that it
announced is in the log. That this is proof is due to three rules:

    before a batch is rewritten or removed (compaction, retention, trim, truncation), the files
    whose lines are in it are removed, durably (``LineFiles.settle``)
    an announcement is cut off again if its batch was not appended; until that is done nothing else
    is appended at that offset (``LineFiles.void``)
    when fsync(2) returns for a record, the announcement of its line is durable as well, or the
    file is gone durably (``LineFiles.sync``)

    header, 16 bytes
    bytes  field    type
    0-3    magic    "LFUN"
    4-7    version  int32   2; 1 if it was written without these rules
    8-11   view     int32   0 text, 1 tsv, 2 jsonl
    12-15  zero

    frames, one after the other
    0-3    kind     int32   1 bytes of the line; 2 announcement; 3 (version 1) the announced batch
                            was not appended, the line continues
    4-7    length   int32   of the data
    8-11   CRC      uint32  CRC-32C of the frame before's CRC (0: none), bytes 0-7 and the data
    12-    data             2: base offset int64, CRC uint32 of the batch; 3: none

Bytes of a line directly after an announcement begin the next line. Frames are only appended, so
nothing that was synced is written again, and a torn one ends the file. It is cut back to its header
between two lines when it has grown. A file that was synced for its line holds that line only, and
stays until the record of the line is durable: a power cut may take the record, but not what was
synced before.
"""

import contextlib
import struct
from collections.abc import Iterator
from typing import NamedTuple

from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError, UnsupportedFormatError
from logfs.log.writing._end import LineFile
from logfs.records.checksum import crc32c
from logfs.types import View

VERSION = 2
_WITHOUT_RULES = 1
_MAGIC = b"LFUN"
_HEADER = struct.Struct(">4sii4x")
_FRAME = struct.Struct(">iiI")
_CHECKED = struct.Struct(">Iii")
_MARK = struct.Struct(">qI")
_BYTES, _ANNOUNCED = 1, 2
_RESET_BYTES = 64 * 1024
_PIECE_BYTES = 1024 * 1024


class UnfinishedLine(NamedTuple):
    """What an ``.unfinished`` file holds.

    Attributes:
        view: The rendering the line is written in.
        announced: Base offset and CRC of the batch that holds the line, if it was appended.
        end: The end of the valid frames, without a last one that is an announcement.
        crc: The CRC of the last of these.
        begin: The start of the first frame of the line.
        begin_crc: The CRC of the frame before that.
        is_proof: The batch in the log says whether the line is a record; see the rules above.
    """

    view: View
    data: bytes
    announced: tuple[int, int] | None
    end: int
    crc: int
    begin: int
    begin_crc: int
    is_proof: bool = True


def decode_unfinished(name: str, data: bytes) -> UnfinishedLine:
    """Decode a whole file. One that is cut in its header, or all zero, holds nothing.

    Raises:
        CorruptRecordError: The header does not decode.
        UnsupportedFormatError: A newer logfs wrote it.
    """
    if len(data) < _HEADER.size or not any(data[: _HEADER.size]):
        return UnfinishedLine(View.TEXT, b"", None, 0, 0, 0, 0)
    magic, version, view = _HEADER.unpack_from(data)
    if magic != _MAGIC or view not in tuple(View):
        raise CorruptRecordError(f"{name}: not an unfinished line (its header does not decode)", 0)
    if version not in (_WITHOUT_RULES, VERSION):
        raise UnsupportedFormatError(f"{name}: version {version}, this logfs reads {VERSION}")
    line, announced = bytearray(), None
    position, crc = _HEADER.size, 0
    before = begin = position, crc
    for kind, content, found in _frames(data, crc, position):
        before = position, crc
        position, crc = position + _FRAME.size + len(content), found
        if kind == _BYTES:
            if announced:
                line.clear()
                begin = before
            line += content
        announced = _MARK.unpack(content) if kind == _ANNOUNCED else None
    end = before if announced else (position, crc)
    return UnfinishedLine(View(view), bytes(line), announced, *end, *begin, version == VERSION)


class UnfinishedFile:
    """The ``.unfinished`` file of one writer: made when first needed.

    One owner, which holds the lock of the partition, except for ``sync`` and
    ``sync_announcement``.

    Attributes:
        name: The name of the file below the data directory.
        content: The bytes of the line; a native thread may add to them, with the lock.
    """

    def __init__(self, disk: Disk, directory: str, name: str, view: View) -> None:
        self._disk = disk
        self._directory = directory
        self.name = f"{directory}/{name}"
        self._view = view
        self.content = LineFile()
        self._begin()

    def _begin(self) -> None:
        """Be a file that has not been made yet."""
        self._file: File | None = None
        self.content.begin()
        self._has_durable_name = False

    @property
    def line_bytes(self) -> int:
        """Length of the unfinished line so far."""
        return self.content.line_bytes

    @property
    def is_durable(self) -> bool:
        """Whether an fsync has promised some bytes of the line."""
        return self.content.is_durable

    @property
    def first_announced(self) -> int | None:
        """Lowest offset of a batch that is announced in it; None: nothing is.

        A power cut may leave the file as it was before that announcement.
        """
        return self.content.first_announced

    @property
    def is_void(self) -> bool:
        """Whether its last bytes say what did not happen, and could not be cut off."""
        return self.content.is_void

    @property
    def has_unsynced_announcement(self) -> bool:
        """Whether a power cut may leave a line in it and not the announcement of its record."""
        return self.content.has_unsynced_announcement

    def keep(self, data: bytes) -> None:
        """Add bytes to the line: they survive a kill of the process when this returns.

        Raises:
            OSError: They could not be stored; the line is as before.
        """
        self._open()
        self.cut_void()
        content = self.content
        begin, crc = content.end or _HEADER.size, content.crc
        self._write(_BYTES, data)
        content.kept(data, begin, crc)

    def line(self) -> bytes | bytearray:
        """Return the bytes of the unfinished line so far.

        Raises:
            CorruptRecordError: The file does not hold what was written to it.
        """
        line = self.content.line_in_memory()
        return self._read_line(self._file or self._disk.open(self.name)) if line is None else line

    def adopt(self, line: UnfinishedLine) -> None:
        """Continue with the file that an earlier writer left; its announcement, if any, is void.

        Raises:
            OSError: The announcement could not be cut off.
        """
        self._use(self._disk.open(self.name, write=True))
        self.content.adopt(line.end, line.crc, line.data, line.begin, line.begin_crc)
        self.content.is_durable = self._has_durable_name = True
        if not line.is_proof and self._file is not None:
            self._file.pwrite(_HEADER.pack(_MAGIC, VERSION, self._view), 0)
        # Frames after a damaged one would be valid again if the same announcement replaced it.
        if line.announced is not None or (self._file and self._file.size() > line.end):
            self.content.is_void = True
            self.cut_void()

    def announce(self, base_offset: int, crc: int) -> None:
        """Say that the line is part of a batch that is about to be appended.

        Durable if the line may be: else a power cut could keep both the line and its record.
        """
        self.cut_void()
        before = self.content.end, self.content.crc
        self._write(_ANNOUNCED, _MARK.pack(base_offset, crc))
        self.content.announced(base_offset, *before)
        if self.is_durable:
            self.sync()

    def cancel(self) -> None:
        """The announced batch was not appended: cut the announcement off again.

        Raises:
            OSError: It is still there, and ``is_void``.
        """
        if self.content.cancelled():
            self.content.is_void = True
        self.cut_void()

    def cut_void(self) -> None:
        """Cut off what did not happen, if anything is left of that.

        Raises:
            OSError: It is still there.
        """
        if not self.is_void:
            return
        if self._file is None:
            self._use(self._disk.open(self.name, write=True))
        if self._file is not None:
            self._file.truncate(self.content.end)
        self.content.changed()
        if self.is_durable:
            self.sync()
        self.content.is_void = False

    def consumed(self) -> None:
        """The announced batch is in the log: the line is a record, the next one is empty."""
        self.content.consumed()

    def sync(self) -> None:
        """Make the bytes kept so far durable."""
        self.sync_announcement()
        if self._file is not None and not self._has_durable_name:
            self._disk.sync_directory(self._directory)
            self._has_durable_name = True
        self.content.is_durable = True

    def sync_announcement(self) -> None:
        """Keep a power cut from leaving a line without the announcement of its record.

        That needs no durable name: without a name there is no line either.
        """
        content = self.content
        changes, file = content.changes, self._file  # in this order, beside ``remove``
        if file is not None and changes > content.synced_changes:
            file.sync()
            content.synced_changes = max(content.synced_changes, changes)

    def supersede(self) -> None:
        """Make the line durable as the last one of the file, without its announcements.

        It is promised no more than before.
        """
        self.sync_announcement()
        self.content.first_announced = None

    def close(self) -> None:
        """Let go of the file; it stays."""
        # Not closed explicitly: a flush in another thread may be about to sync it.
        self.content.descriptor = -1
        self._file = None

    def remove(self) -> None:
        """Remove the file: nothing in it is needed any more. The next line makes a new one.

        Raises:
            OSError: It is still there.
        """
        if self._file is not None:
            with contextlib.suppress(FileNotFoundError):  # gone with its topic, which was deleted
                self._disk.remove(self.name)
        self.content.consumed()
        self._begin()

    def _read_line(self, file: File) -> bytearray:
        """Read the frames of the line again, a piece of the file at a time."""
        line, position, crc = bytearray(), self.content.line_begin, self.content.line_crc
        while len(line) < self.line_bytes:
            piece = file.pread(_PIECE_BYTES, position)
            if len(piece) >= _FRAME.size:
                _, length, _ = _FRAME.unpack_from(piece)
                if len(piece) < _FRAME.size + length:
                    piece = file.pread(_FRAME.size + length, position)
            done = 0
            for kind, content, found in _frames(piece, crc):
                if kind != _BYTES:
                    break
                line += content
                done, crc = done + _FRAME.size + len(content), found
            if not done:
                raise CorruptRecordError(
                    f"{self.name}: the unfinished line of {self.line_bytes} bytes is damaged at "
                    f"byte {position} of the file",
                    position,
                )
            position += done
        return line

    def _use(self, file: File) -> None:
        self._file = file
        self.content.descriptor = file.fileno()

    def _open(self) -> None:
        if self._file is None:
            self._use(self._disk.open(self.name, write=True, create=True))
        content = self.content
        if self._file is not None and not content.line_bytes and content.end > _RESET_BYTES:
            self._file.truncate(_HEADER.size)
            content.cut_back(_HEADER.size, 0)

    def _write(self, kind: int, data: bytes) -> None:
        """Append a frame with one write; the first one comes with the header."""
        if self._file is None:
            return
        content = self.content
        frame, crc = content.frame(kind, data)
        if not content.end:
            frame = _HEADER.pack(_MAGIC, VERSION, self._view) + frame
        try:
            self._file.pwrite(frame, content.end)
        except OSError:
            content.is_void = True  # it may be there as a whole
            with contextlib.suppress(OSError):
                self.cut_void()
            raise
        content.wrote(len(frame), crc)


def _frames(data: bytes, crc: int, position: int = 0) -> Iterator[tuple[int, bytes, int]]:
    """Yield kind, content and checksum of frames, up to one that is cut or damaged."""
    while position + _FRAME.size <= len(data):
        kind, length, found = _FRAME.unpack_from(data, position)
        begin = position + _FRAME.size
        content = data[begin : begin + max(length, 0)]
        if len(content) != length or found != _checksum(crc, kind, content):
            break
        yield kind, content, found
        position, crc = begin + length, found


def _checksum(before: int, kind: int, data: bytes) -> int:
    return crc32c(_CHECKED.pack(before, kind, len(data)) + data)
