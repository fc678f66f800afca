"""A file whose unreadable bytes are zeros, so that what follows them can be read."""

import errno
from bisect import bisect_left
from collections.abc import Mapping

from logfs.disk.remote.readonlyfile import ReadOnlyFile
from logfs.disk.vfs import File
from logfs.records.layout import LENGTH_AT

PIECE_BYTES = 4096
"""The unit in which bytes are given up: no device and no file system has smaller blocks of data."""


class GaplessFile(ReadOnlyFile):
    """Another file, of which every byte can be read.

    Args:
        file: The other file.
        start: Its position that is position 0 here.
    """

    def __init__(self, name: str, file: File, start: int = 0) -> None:
        super().__init__(name)
        self._file = file
        self._start = start
        self._given_up: set[int] = set()  # where pieces of the other file begin
        self._offsets: list[tuple[int, bytes]] = []  # positions here, and base offsets

    def after(self, position: int) -> "GaplessFile":
        """Return the rest of the same file as another one, which begins at a position."""
        rest = GaplessFile(self._name, self._file, self._start + position)
        rest._given_up = self._given_up
        return rest

    def with_base_offsets(self, offsets: Mapping[int, int]) -> "GaplessFile":
        """Return the same file with other base offsets of batches, which no checksum covers."""
        other, items = self.after(0), sorted(offsets.items())
        other._offsets = [(at, n.to_bytes(LENGTH_AT, "big", signed=True)) for at, n in items]
        return other

    def unreadable_in(self, position: int, size: int) -> int:
        """Return how many bytes of a range could not be read."""
        begin = self._start + position
        places = range(begin // PIECE_BYTES * PIECE_BYTES, begin + size, PIECE_BYTES)
        return PIECE_BYTES * sum(place in self._given_up for place in places)

    def size(self) -> int:
        """See ``vfs.File``."""
        return max(self._file.size() - self._start, 0)

    def inode(self) -> int:
        """See ``vfs.File``."""
        return self._file.inode()

    def next_data(self, position: int) -> int:
        """See ``vfs.File``."""
        return self._file.next_data(self._start + position) - self._start

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``; it cannot tell."""
        return None

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``; bytes that the device cannot read (EIO) are zeros."""
        count = self._read_into(buffer, position)
        stop, found = position + count, self._offsets
        first = bisect_left(found, (position - LENGTH_AT + 1,))
        for at, offset in found[first : bisect_left(found, (stop,))]:
            begin, end = max(at, position), min(at + LENGTH_AT, stop)
            buffer[begin - position : end - position] = offset[begin - at : end - at]
        return count

    def _read_into(self, buffer: memoryview, position: int) -> int:
        begin = self._start + position
        try:
            return self._file.pread_into(buffer, begin)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        stop = min(begin + len(buffer), self._file.size())
        at = begin
        while at < stop:
            end = min((at // PIECE_BYTES + 1) * PIECE_BYTES, stop)
            piece = buffer[at - begin : end - begin]
            try:
                if self._file.pread_into(piece, at) < len(piece):
                    return at - begin
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                piece[:] = bytes(len(piece))
                self._given_up.add(at // PIECE_BYTES * PIECE_BYTES)
            at = end
        return max(stop - begin, 0)

    def close(self) -> None:
        """See ``vfs.File``."""
        self._file.close()
