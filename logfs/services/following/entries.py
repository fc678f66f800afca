"""Index entries that grow in memory while others read them."""

from logfs.disk.vfs import Disk, File
from logfs.log.indexes.index import Entries

_FIRST_BYTES = 512


class GrowingEntries:
    """Entries of one index. One thread appends; any number may read."""

    def __init__(self, entries: Entries = b"") -> None:
        self._held = _hold(entries, 0)

    def __len__(self) -> int:
        return self._held[1]

    def append(self, entries: bytes) -> None:
        """Append whole entries."""
        room, size = self._held
        end = size + len(entries)
        if end > len(room):
            room, _ = _hold(room[:size], end)
        room[size:end] = entries
        self._held = room, end

    def entries(self) -> memoryview:
        """Return what is there now; the view keeps its contents."""
        room, size = self._held
        return room[:size].toreadonly()


def read_sparse(disk: Disk, name: str, entry_bytes: int) -> bytes:
    """Read the used entries of an index file that may be preallocated: a hint, not more.

    The file is read, never mapped, and only as far as it is used: its end is found by bisection,
    for unused entries are zero. A file that is gone is empty.
    """
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return b""
    data = file.pread(_used_entries(file, entry_bytes) * entry_bytes, 0)
    return data[: len(data) - len(data) % entry_bytes]


def read_last(disk: Disk, name: str, entry_bytes: int) -> bytes:
    """Read the last used entry of such a file; empty if there is none."""
    try:
        file = disk.open(name)
    except FileNotFoundError:
        return b""
    count = _used_entries(file, entry_bytes)
    data = file.pread(entry_bytes, (count - 1) * entry_bytes) if count else b""
    return data if len(data) == entry_bytes else b""


def _used_entries(file: File, entry_bytes: int) -> int:
    low, high, zeros = 0, file.size() // entry_bytes, bytes(entry_bytes)
    if high and file.pread(entry_bytes, (high - 1) * entry_bytes) != zeros:
        return high
    while low < high:
        middle = (low + high) >> 1
        if file.pread(entry_bytes, middle * entry_bytes) == zeros:
            high = middle
        else:
            low = middle + 1
    return low


def _hold(entries: Entries, size: int) -> tuple[memoryview, int]:
    """Return writable memory with some entries and as much room again, and their size."""
    room = memoryview(bytearray(max(_FIRST_BYTES, 2 * max(size, len(entries)))))
    room[: len(entries)] = bytes(entries)
    return room, len(entries)
