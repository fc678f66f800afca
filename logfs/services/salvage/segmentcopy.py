"""The ``.log`` of a segment that a salvage writes."""

from bisect import bisect_left

from logfs.disk.vfs import Disk, File
from logfs.log.names import FileKind, format_segment_file
from logfs.records.layout import LENGTH_AT


class SegmentCopy:
    """A segment of the copy; its file is made with its first batch. None: nothing is written."""

    def __init__(self, target: Disk | None, directory: str) -> None:
        self._target = target
        self._directory = directory
        self._file: File | None = None
        # Position in the source and in the copy, where a run of bytes begins.
        self._moves: list[tuple[int, int]] = []
        self.size_bytes = 0

    def write(self, data: bytes | memoryview, base_offset: int, position: int) -> None:
        """Append batches, which begin at a position of the source."""
        if self._target is not None and self._file is None:
            name = f"{self._directory}/{format_segment_file(base_offset, FileKind.LOG)}"
            self._file = self._target.open(name, write=True, create=True)
        self._moves.append((position, self.size_bytes))
        if self._file is not None:
            self._file.pwrite(data, self.size_bytes)
        self.size_bytes += len(data)

    def set_base_offset(self, position: int, base_offset: int) -> bool:
        """Replace the base offset of a batch, named by its position in the source.

        No checksum covers it. Returns False if the batch is not in the copy.
        """
        before = bisect_left(self._moves, (position + 1,)) - 1
        if before < 0:
            return False
        begin, moved = self._moves[before]
        if moved + position - begin >= self.size_bytes:
            return False
        if self._file is not None:
            self._file.pwrite(base_offset.to_bytes(LENGTH_AT, "big"), moved + position - begin)
        return True

    def close(self) -> bool:
        """Make it durable; returns whether there is anything in it."""
        if self._file is not None:
            self._file.sync()
            self._file.close()
        return self.size_bytes > 0
