"""The ``.log`` of a segment that a salvage writes."""

from logfs.disk.vfs import Disk, File
from logfs.log.names import FileKind, format_segment_file


class SegmentCopy:
    """A segment of the copy; its file is made with its first batch. None: nothing is written."""

    def __init__(self, target: Disk | None, directory: str) -> None:
        self._target = target
        self._directory = directory
        self._file: File | None = None
        self._name = ""
        self.size_bytes = 0

    def write(self, data: bytes | memoryview, base_offset: int) -> None:
        """Append batches; the segment has the base offset of the first call."""
        if self._target is not None and self._file is None:
            self._name = f"{self._directory}/{format_segment_file(base_offset, FileKind.LOG)}"
            self._file = self._target.open(self._name, write=True, create=True)
        if self._file is not None:
            self._file.pwrite(data, self.size_bytes)
        self.size_bytes += len(data)

    def close(self) -> bool:
        """Make it durable; returns whether there is anything in it."""
        if self._file is not None:
            self._file.sync()
            self._file.close()
        return self.size_bytes > 0

    def discard(self) -> None:
        """Remove it, instead of ``close``."""
        if self._target is not None and self._file is not None:
            self._file.close()
            self._target.remove(self._name)
