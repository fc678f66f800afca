"""A read-only file whose contents are in an object chunk by chunk, each compressed by itself.

The chunks that were read last stay in memory, decompressed: a sequential reader decompresses each
chunk once. What is read of the object is read ahead and kept by the file of the object.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from logfs.disk.remote.overlay import RemotePart
from logfs.disk.remote.readonlyfile import ReadOnlyFile
from logfs.disk.vfs import File
from logfs.errors import CorruptRecordError

_KEPT_BYTES = 16 << 20
"""The most bytes of decompressed chunks of one open file; one chunk is kept in any case."""


class ChunkedPart(NamedTuple):
    """Where the chunks of one file are.

    Attributes:
        part: The object, as a whole.
        size: Bytes of the file.
        chunk_bytes: Bytes of the file in each chunk; the last one may be shorter.
        ends: The end of each chunk in the object; they follow each other.
        decode: Decompresses a chunk; it raises ValueError or ``LogfsError`` if that fails.
    """

    part: RemotePart
    size: int
    chunk_bytes: int
    ends: tuple[int, ...]
    decode: Callable[[bytes], memoryview]

    @property
    def mtime_ms(self) -> int:
        """Modification time of the file, epoch milliseconds."""
        return self.part.mtime_ms

    @property
    def inode(self) -> int:
        """Which file it is."""
        return self.part.inode


class ChunkedFile(ReadOnlyFile):
    """An open file of chunks; ``vfs.File`` describes the methods.

    Args:
        file: The object.
        name: For errors.
        place: The place of the chunks.
    """

    __slots__ = ("_chunks", "_file", "_guard", "_place")

    def __init__(self, file: File, name: str, place: ChunkedPart) -> None:
        super().__init__(name)
        self._file = file
        self._place = place
        self._chunks: OrderedDict[int, memoryview] = OrderedDict()
        self._guard = threading.Lock()

    def size(self) -> int:
        """See ``vfs.File``."""
        return self._place.size

    def inode(self) -> int:
        """See ``vfs.File``."""
        return self._place.inode

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``. Waits for the store, if need be.

        Raises:
            CorruptRecordError: The chunk at the position does not decompress to its size. A read
                that begins before it ends there.
            OSError: The store failed.
        """
        return self._read(buffer, position, may_fetch=True)

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``; answers from the chunks in memory alone."""
        return self._read(buffer, position, may_fetch=False) or (
            None if position < self._place.size and len(buffer) else 0
        )

    def close(self) -> None:
        """See ``vfs.File``."""
        self._file.close()

    def _read(self, buffer: memoryview, position: int, *, may_fetch: bool) -> int:
        place, done = self._place, 0
        size = max(min(len(buffer), place.size - position), 0)
        while done < size:
            number, start = divmod(position + done, place.chunk_bytes)
            with self._guard:
                chunk = self._chunks.get(number)
            if chunk is None:
                if not may_fetch:
                    return done
                try:
                    chunk = self._fetch(number)
                except CorruptRecordError:
                    if done:
                        return done  # what is before the damage can be used
                    raise
            piece = chunk[start : start + size - done]
            buffer[done : done + len(piece)] = piece
            done += len(piece)
        return done

    def _fetch(self, number: int) -> memoryview:
        place = self._place
        start = place.ends[number - 1] if number else 0
        packed = self._file.pread(place.ends[number] - start, start)
        expected = min(place.chunk_bytes, place.size - number * place.chunk_bytes)
        try:
            chunk = place.decode(packed)
        except Exception as error:  # noqa: BLE001 - the bytes are not trusted
            raise self._corrupt(number, str(error)) from None
        if len(chunk) != expected:
            raise self._corrupt(number, f"{len(chunk)} bytes; expected {expected}")
        with self._guard:
            self._chunks[number] = chunk
            while len(self._chunks) * place.chunk_bytes > _KEPT_BYTES and len(self._chunks) > 1:
                self._chunks.popitem(last=False)
        return chunk

    def _corrupt(self, number: int, what: str) -> CorruptRecordError:
        place = self._place
        start = number * place.chunk_bytes
        size = min(place.chunk_bytes, place.size - start)
        text = f"{place.part.key}: chunk {number} does not decompress: {what}"
        return CorruptRecordError(text, start, size_bytes=size)
