"""Files on their way to a store, of which a killed process leaves nothing on the disk.

All files of a range share one temporary file without a name, in ``TMPDIR``. So their number is not
limited by the number of open files, and the kernel frees the space when the process ends, however
it ends.
"""

import io
import os
import tempfile
from collections.abc import Iterator
from typing import IO

from logfs.disk.vfs import ReadableBuffer

_COPIED_BYTES = 16 << 20


class Spool:
    """One temporary file that takes any number of files, written at the same time."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="logfs-export-")  # noqa: SIM115 - by ``close``

    def create(self) -> "SpooledFile":
        """Return a new file, to be written from its start to its end."""
        return SpooledFile(self)

    def append(self, data: ReadableBuffer) -> tuple[int, int]:
        """Write some bytes; return where they begin and end."""
        begin = self._file.seek(0, os.SEEK_END)
        return begin, begin + self._file.write(data)

    def read(self, begin: int, size: int) -> bytes:
        """Return bytes that were written."""
        self._file.seek(begin)
        return self._file.read(size)

    def close(self) -> None:
        """Free the space of all files."""
        self._file.close()


class SpooledFile(io.RawIOBase):
    """A file of a spool: the places where its parts are.

    Attributes:
        size: Bytes that were written.
    """

    def __init__(self, spool: Spool) -> None:
        super().__init__()
        self._spool = spool
        self._extents: list[tuple[int, int]] = []
        self.size = 0

    def writable(self) -> bool:
        """See ``io.RawIOBase``."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self.size

    def write(self, data: ReadableBuffer, /) -> int:  # type: ignore[override]
        """Write all of some bytes."""
        begin, end = self._spool.append(data)
        self.size += end - begin
        if self._extents and self._extents[-1][1] == begin:
            self._extents[-1] = (self._extents[-1][0], end)
        else:
            self._extents.append((begin, end))
        return end - begin

    def parts(self) -> Iterator[bytes]:
        """Yield the contents, in parts of up to 16 MiB; also after ``close``."""
        for begin, end in self._extents:
            for start in range(begin, end, _COPIED_BYTES):
                yield self._spool.read(start, min(_COPIED_BYTES, end - start))
