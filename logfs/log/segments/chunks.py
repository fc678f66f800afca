"""A ``.log`` from start to end, in chunks that begin where a batch begins.

Every byte is read once. A batch that the end of a chunk splits is moved to the start of the next.
"""

from logfs.disk.vfs import File

_CHUNK_BYTES = 1024 * 1024


class Chunks:
    """The chunks of one file.

    Args:
        log: The file.
        stop: Where to end, in the file.

    Attributes:
        data: The bytes of the present chunk begin at 0.
        is_cut: It is shorter than expected: another process has made the file shorter meanwhile.
    """

    def __init__(self, log: File, stop: int) -> None:
        self._log = log
        self._stop = stop
        self.data = bytearray(max(0, min(_CHUNK_BYTES, stop)))
        self.is_cut = False
        self._start = self._size = 0

    def read(self, position: int, wanted: int = 0) -> int:
        """Take the chunk that begins at a file position.

        Args:
            position: Less than ``stop``.
            wanted: Bytes that it must have room for.

        Returns:
            Its size in bytes.
        """
        kept = self._start + self._size - position
        if position < self._start or kept < 0:
            kept = 0
        old = memoryview(self.data)[self._size - kept : self._size]
        if wanted > len(self.data):
            self.data = bytearray(-(-wanted // _CHUNK_BYTES) * _CHUNK_BYTES)
        with memoryview(self.data) as room:
            room[:kept] = old
            end = max(kept, min(len(room), self._stop - position))
            got = self._log.pread_into(room[kept:end], position + kept)
        self.is_cut = kept + got < end
        self._start, self._size = position, kept + got
        return self._size
