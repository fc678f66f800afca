"""A file below a mount of logfs that is appended to, as any program would."""

import os


class AppendedFile:
    """A file that exists, open to append. One thread at a time."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def write(self, data: memoryview) -> int:
        """Append bytes with one system call, and return how many were taken."""
        return os.write(self._descriptor, data)

    def sync(self) -> None:
        """Return when what was appended before is durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; reports what could only be refused now."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def sync_file(path: str) -> None:
    """Return when what was appended to a file before, by anybody, is durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
