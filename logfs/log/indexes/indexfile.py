"""One index file of a segment: appended to while the segment is active, read once it is sealed.

The file of an active segment is preallocated with a hole, like Kafka's, and written with pwrite,
never through a mapping: a store into a hole of a full disk raises SIGBUS. Its entries are kept in
memory as well. A sealed file is truncated to its entries. It is opened at the first look-up,
which reads the pages that it needs. Nothing is mapped, see ``paged``.

One thread changes an ``IndexFile``; any number may call ``entries`` at the same time.
"""

import contextlib
import threading
from enum import Enum

from logfs.disk.vfs import Disk, File, ReadableBuffer
from logfs.disk.waiting import held
from logfs.errors import CorruptIndexError
from logfs.log.indexes.index import Entries, IndexFormat
from logfs.log.indexes.paged import PAGE_BYTES, PagedEntries

PAGED_FROM_BYTES = PAGE_BYTES + 1
"""Smaller files are read whole, and need no descriptor then."""
_FIRST_BYTES = 512
_ANY_NUMBER = 2**31


class IndexMode(Enum):
    """The changes that are allowed to the file of an index."""

    ACTIVE = "active"
    """Appended to by this object."""
    SEALED = "sealed"
    """Finished: it is read page by page."""
    FOREIGN = "foreign"
    """Another process may be writing it: read once, as a whole."""


class IndexFile:
    """One index file; its owner sets ``name`` after a rename. Uses the disk only when it must."""

    def __init__(
        self,
        disk: Disk,
        name: str,
        form: IndexFormat,
        *,
        capacity_bytes: int | None = None,
        count: int | None = None,
        mode: IndexMode = IndexMode.ACTIVE,
    ) -> None:
        """Describe an index file, which need not exist; nothing is opened.

        Args:
            form: Size of its entries, and its header if it has one.
            capacity_bytes: ``segment.index.bytes``, rounded down to whole entries; while active the
                file has that size. None: it grows with its entries.
            count: Entries that are valid; the rest of the file is not looked at and, with 0, what
                is in the file now is thrown away by the first change. None: as many whole entries
                as the file holds, right only for one that was trimmed.
            mode: Only an ACTIVE index can be changed.
        """
        self.name = name
        self._disk = disk
        self._form = form
        self._capacity = None if capacity_bytes is None else capacity_bytes // form.entry_bytes
        self._count = count
        self._mode = mode
        self._file: File | None = None
        self._memory: memoryview | None = None
        self._stored: _Stored | None = None
        self._is_dirty = False
        self._loading = threading.Lock()

    @property
    def is_sealed(self) -> bool:
        """Whether the index takes no more entries."""
        return self._mode is not IndexMode.ACTIVE

    @property
    def count(self) -> int:
        """Entries of the index; FileNotFoundError if unknown, sealed and the file is gone."""
        if self._count is None:
            self._count = self._count_in_file()
        return self._count

    def is_full(self, reserve: int = 0) -> bool:
        """Tell whether no entry fits any more when ``reserve`` slots are to be kept free.

        Source: Kafka AbstractIndex.isFull; TimeIndex.isFull keeps one slot for the roll.
        """
        return self._capacity is not None and self.count + reserve >= self._capacity

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return _ANY_NUMBER if self._capacity is None else self._capacity - self.count

    def entries(self) -> Entries:
        """Return all entries, read-only; the file is opened, or read, at the first call.

        They stay usable after every later change of this index. An active index that has no file
        yet is empty.

        Raises:
            FileNotFoundError: There should be entries and the file is gone.
            CorruptIndexError: The header is cut off or wrong, or the file holds fewer entries than
                were given as valid.
            UnsupportedFormatError: The header has the version of another logfs.
        """
        stored, memory = self._stored, self._memory
        if stored is None and memory is None:
            stored, memory = self._load()
        if stored is not None:
            return stored.entries()
        if memory is None:
            return b""
        # The count is read second: a writer sets it last when it grows, first when it shrinks.
        return memory[: self.count * self._form.entry_bytes].toreadonly()

    def append(self, entries: ReadableBuffer) -> None:
        """Append one entry or several; the first makes, or extends, the file.

        Durable after ``sync``. Appending nothing does nothing.

        Raises:
            OSError: Nothing was appended; some bytes may be in the file after the last entry,
                which no reader uses and the next append overwrites.
            ValueError: Not whole entries, more than fit, or the index is sealed.
        """
        size = len(entries)
        if size == 0:
            return
        added, rest = divmod(size, self._form.entry_bytes)
        if self.is_sealed or rest or self.is_full(added - 1):
            raise ValueError(f"{size} bytes do not fit after the entries of {self!r}")
        memory = self._memory
        if memory is None:
            _, memory = self._load()
            memory = _room_for(0) if memory is None else memory
        start = self.count * self._form.entry_bytes
        self._writable().pwrite(entries, self._form.header_bytes + start)
        self._is_dirty = True
        if start + size > len(memory):
            memory = _room_for(start + size, memory[:start])
        memory[start : start + size] = entries  # views given out earlier end before this
        self._memory = memory
        self._count = self.count + added

    def truncate_entries(self, count: int) -> None:
        """Keep only the first ``count`` entries.

        0 starts a new file in place of any old one, even a damaged one: so an index is rebuilt.

        Raises:
            OSError: The entries are gone from the index, their bytes may still be in the file.
            ValueError: There are fewer entries, or the index is sealed.
        """
        if self.is_sealed or (count and count > self.count):
            raise ValueError(f"cannot keep {count} entries of {self!r}")
        size = count * self._form.entry_bytes
        kept = self.entries()[:size] if count else b""
        # New memory: slots after the end will be written again, and readers may have views of them.
        self._count, self._memory = count, _room_for(size, kept)
        if count == 0:
            self._close_file()  # to be opened as a new one
        file = self._writable()
        self._is_dirty = True
        file.truncate(self._form.header_bytes + size)  # bytes after that must read as zeros
        self._extend(file)

    def trim(self) -> None:
        """Truncate the file to its entries, as on roll and clean stop; create it if there is none.

        Source: Kafka AbstractIndex.trimToValidSize.
        """
        if self.is_sealed:
            return
        size = self._form.header_bytes + self.count * self._form.entry_bytes
        if self._file is None and self._has_size(size):
            return
        file = self._writable()
        self._is_dirty = True
        file.truncate(size)

    def seal(self) -> None:
        """Trim the file and take no more entries. See ``sync``."""
        if self.is_sealed:
            return
        self.trim()
        self._mode = IndexMode.SEALED
        self._memory = self._stored = None
        if not self._is_dirty:
            self._close_file()

    def sync(self) -> None:
        """Return once everything written through this object survives a power cut.

        Does nothing if nothing was written since the last good sync. ``Disk.sync_directory`` makes
        the name of a new file durable.

        Raises:
            OSError: Final, see ``vfs.File.sync``: the entries can only be rewritten.
        """
        if self._is_dirty:
            if self._file is None:
                self._file = self._disk.open(self.name, write=True)
            self._file.sync()
            self._is_dirty = False
        if self.is_sealed:
            self._close_file()

    def must_sync(self) -> None:
        """Have the next ``sync`` cover what another object has written to the file.

        The file stays open until then: it may be renamed or removed meanwhile.
        """
        if self._file is None:
            self._count = self.count  # before the file is extended
            with contextlib.suppress(FileNotFoundError):
                self._file = self._disk.open(self.name, write=True)
                self._extend(self._file)
        self._is_dirty = self._file is not None

    def release(self) -> None:
        """Forget what can be had again from the file; of an active index only the descriptor.

        Views given out stay valid. The index continues to work.
        """
        if self.is_sealed:
            self._memory = self._stored = None
        if not self._is_dirty:
            self._close_file()

    def reopen(self, name: str) -> None:
        """Take another file from now on; of a sealed index only."""
        if self.is_sealed:
            self.name, self._count = name, None
            self._memory = self._stored = None

    def close(self) -> None:
        """Give up memory and descriptor; writes and syncs nothing (see ``trim`` and ``sync``)."""
        self._memory = self._stored = None
        self._close_file()

    def __repr__(self) -> str:
        return (
            f"IndexFile({self.name!r}, {self._mode.value}, count={self._count}, "
            f"capacity={self._capacity})"
        )

    def _count_in_file(self) -> int:
        try:
            size = self._disk.stat(self.name).size
        except FileNotFoundError:
            if self.is_sealed:
                raise
            return 0
        return max(0, size - self._form.header_bytes) // self._form.entry_bytes

    def _has_size(self, size: int) -> bool:
        try:
            return self._disk.stat(self.name).size == size
        except FileNotFoundError:
            return False

    def _load(self) -> "tuple[_Stored | None, memoryview | None]":
        """Open the file of a large sealed index, or read the file; two readers may come at once."""
        # Another thread may wait for an object store meanwhile.
        with held(self._loading, self.name):
            if self._stored is None and self._memory is None:
                count = self.count
                if count or self.is_sealed:
                    self._open_or_read(count)
                else:
                    self._memory = _room_for(0)
            return self._stored, self._memory

    def _open_or_read(self, count: int) -> None:
        start = self._form.header_bytes
        size = count * self._form.entry_bytes
        file = self._disk.open(self.name)
        is_stored = self._mode is IndexMode.SEALED and size >= PAGED_FROM_BYTES
        try:
            self._form.check_header(file.pread(start, 0), self.name)
            stored = _Stored(file, start, size, self._form.entry_bytes, self.name)
            stored.check_length()
            if is_stored:
                self._stored = stored
            else:
                memory = _room_for(size)
                file.pread_into(memory[:size], start)
                self._memory = memory
        finally:
            if self._stored is None:
                file.close()

    def _writable(self) -> File:
        """Return the file open for writing, made and extended when it is opened."""
        if self._file is None:
            is_new = self.count == 0
            file = self._disk.open(self.name, write=True, create=True)
            try:
                if is_new:
                    file.truncate(0)
                    file.pwrite(self._form.header, 0)
                self._extend(file)
            except OSError:
                file.close()
                raise
            self._is_dirty = True
            self._file = file
        return self._file

    def _extend(self, file: File) -> None:
        """Give the file the size that Kafka expects of an active one; a hole costs no room."""
        if self._capacity is not None:
            size = self._capacity * self._form.entry_bytes
            if file.size() < size:
                file.truncate(size)

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _room_for(size: int, kept: bytes | bytearray | memoryview | None = None) -> memoryview:
    """Return writable memory for ``size`` bytes and as many again, beginning with those kept."""
    memory = memoryview(bytearray(max(_FIRST_BYTES, 2 * size)))
    if kept is not None:
        memory[: len(kept)] = kept
    return memory


class _Stored:
    """The entries of a sealed index in its open file, which is closed after the last use."""

    __slots__ = ("_entries", "_file", "_name", "_size", "_start")

    def __init__(self, file: File, start: int, size: int, stride: int, name: str) -> None:
        self._file = file
        self._start = start
        self._size = size
        self._name = name

        # No method of this object: then only the garbage collector would close the file.
        def read(length: int, position: int) -> bytes:
            return file.pread(length, start + position)

        self._entries = PagedEntries(read, size, stride, name)

    def entries(self) -> PagedEntries:
        """Return them; raise CorruptIndexError if another process has made the file shorter."""
        self.check_length()
        return self._entries

    def check_length(self) -> None:
        """See that the file is as long as it should be."""
        found = self._file.size() - self._start
        if found < self._size:
            raise CorruptIndexError(
                f"{self._name}: {found} bytes of entries after the header, expected {self._size}"
            )
