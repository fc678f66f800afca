"""One index file of a segment: appended to while the segment is active, mapped once it is sealed.

The file of an active segment is preallocated with a hole, as Kafka does it, and written with
pwrite, never through a mapping: a store into a hole of a full disk is a SIGBUS. Its entries are
kept in memory as well. A sealed file is cut to its entries, can no longer shrink, and is mapped at
the first lookup.

One thread changes an ``IndexFile``; any number may call ``entries`` at the same time.
"""

import threading
from enum import Enum

from logfs.disk.vfs import Disk, File, ReadableBuffer
from logfs.errors import CorruptIndexError
from logfs.log.indexes.index import IndexFormat

MAP_FROM_BYTES = 4097
"""Smaller files are read: a mapping takes a page, too, and until Python 3.13 a descriptor."""
_FIRST_BYTES = 512


class IndexMode(Enum):
    """What may happen to the file of an index."""

    ACTIVE = "active"
    """Appended to by this object."""
    SEALED = "sealed"
    """Nobody changes it any more: it may be mapped."""
    FOREIGN = "foreign"
    """Somebody else may be writing it: read once, never mapped."""


class IndexFile:
    """One index file. Touches the disk only when it must.

    Attributes:
        name: Where the file lies; its owner sets it after a rename.
    """

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
            disk: Where it lies.
            name: Its name on the disk.
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
        self._is_dirty = False
        self._loading = threading.Lock()

    @property
    def is_sealed(self) -> bool:
        """Whether nothing can be appended any more."""
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

    def entries(self) -> memoryview:
        """Return all entries, read-only, loaded or mapped at the first call.

        The view keeps its contents whatever happens to this index later. An active index that has
        no file yet is empty.

        Raises:
            FileNotFoundError: There should be entries and the file is gone.
            CorruptIndexError: The header is cut off or wrong, or the file holds fewer entries than
                were given as valid.
            UnsupportedFormatError: The header has the version of another logfs.
        """
        memory = self._memory
        if memory is None:
            memory = self._load()
        # The count is read second: a writer sets it last when it grows, first when it shrinks.
        return memory[: self.count * self._form.entry_bytes].toreadonly()

    def append(self, entries: ReadableBuffer) -> None:
        """Append one entry or several; the first makes, or extends, the file.

        Durable after ``sync``. Appending nothing does nothing.

        Raises:
            OSError: Nothing was appended; some bytes may be in the file behind the last entry,
                where nobody looks and the next append writes.
            ValueError: Not whole entries, more than fit, or the index is sealed.
        """
        size = len(entries)
        if size == 0:
            return
        added, rest = divmod(size, self._form.entry_bytes)
        if self.is_sealed or rest or self.is_full(added - 1):
            raise ValueError(f"{size} bytes do not fit behind the entries of {self!r}")
        memory = self._memory
        if memory is None:
            memory = self._load()
        start = self.count * self._form.entry_bytes
        self._writable().pwrite(entries, self._form.header_bytes + start)
        self._is_dirty = True
        if start + size > len(memory):
            memory = _room_for(start + size, memory[:start])
        memory[start : start + size] = entries  # views given out before end in front of it
        self._memory = memory
        self._count = self.count + added

    def truncate_entries(self, count: int) -> None:
        """Keep only the first ``count`` entries.

        0 begins the file anew, whatever it held and however damaged: so an index is rebuilt.

        Raises:
            OSError: The entries are gone from the index, their bytes may still be in the file.
            ValueError: There are fewer entries, or the index is sealed.
        """
        if self.is_sealed or (count and count > self.count):
            raise ValueError(f"cannot keep {count} entries of {self!r}")
        size = count * self._form.entry_bytes
        kept = self.entries()[:size] if count else memoryview(b"")
        # New memory: slots behind the cut will be written again, and views of them may be about.
        self._count, self._memory = count, _room_for(size, kept)
        if count == 0:
            self._close_file()  # to be opened as a new one
        file = self._writable()
        self._is_dirty = True
        file.truncate(self._form.header_bytes + size)  # what lies behind must read as zeros
        self._extend(file)

    def trim(self) -> None:
        """Cut the file to its entries, as on roll and clean stop; makes it if there is none.

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
        """Trim the file and take no more entries; from now on it is mapped. See ``sync``."""
        if self.is_sealed:
            return
        self.trim()
        self._mode = IndexMode.SEALED
        self._memory = None
        if not self._is_dirty:
            self._close_file()

    def sync(self) -> None:
        """Return once everything written through this object survives a power cut.

        Does nothing if nothing was written since the last good sync. The name of a new file is the
        affair of ``Disk.sync_directory``.

        Raises:
            OSError: Final, see ``vfs.File.sync``: the entries can only be written anew.
        """
        if self._is_dirty:
            if self._file is None:
                self._file = self._disk.open(self.name, write=True)
            self._file.sync()
            self._is_dirty = False
        if self.is_sealed:
            self._close_file()

    def release(self) -> None:
        """Forget what can be had again from the file; of an active index only the descriptor.

        Views given out stay valid. The index goes on working.
        """
        if self.is_sealed:
            self._memory = None
        if not self._is_dirty:
            self._close_file()

    def reopen(self, name: str) -> None:
        """Take another file from now on; of a sealed index only."""
        if self.is_sealed:
            self.name, self._memory, self._count = name, None, None

    def close(self) -> None:
        """Give up memory and descriptor; writes and syncs nothing (see ``trim`` and ``sync``)."""
        self._memory = None
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

    def _load(self) -> memoryview:
        """Fill the memory from the file, or map it; two readers may come at once."""
        with self._loading:
            if self._memory is None:
                count = self.count
                self._memory = self._read(count) if count or self.is_sealed else _room_for(0)
            return self._memory

    def _read(self, count: int) -> memoryview:
        start = self._form.header_bytes
        size = count * self._form.entry_bytes
        file = self._disk.open(self.name)
        try:
            self._form.check_header(file.pread(start, 0), self.name)
            if self._mode is IndexMode.SEALED and size >= MAP_FROM_BYTES:
                memory = file.map()[start : start + size]
                found = len(memory)
            else:
                memory = _room_for(size)
                found = file.pread_into(memory[:size], start)
        finally:
            file.close()
        if found < size:
            raise CorruptIndexError(
                f"{self.name}: {found} bytes of entries behind the header, expected {size}"
            )
        return memory

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


def _room_for(size: int, kept: memoryview | None = None) -> memoryview:
    """Return writable memory for ``size`` bytes and as many again, beginning with those kept."""
    memory = memoryview(bytearray(max(_FIRST_BYTES, 2 * size)))
    if kept is not None:
        memory[: len(kept)] = kept
    return memory
