"""A file whose contents are a part of an object, and what opens such files.

    files = RemoteFiles(store, crc32c, time.monotonic, memory_bytes)
    OverlayDisk(local, catalog, files.open)

Reading ahead. The first read of a place fetches one block. A reader that continues from there is
sequential: what is fetched ahead of it grows with what it has read, up to eight requests of 8 MiB,
and continues into the object that follows. A read elsewhere begins again. Several readers may use
one
file: each read belongs to the reader that is expected nearest to it.

A first sequential reading fills memory alone. Random reads, indexes and repeated sequential reading
also fill the cache: one scan of everything does not evict what is used often.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

from logfs.disk.remote.blocks import (
    BLOCK_BYTES,
    LONGEST_SPAN,
    BlockCache,
    Blocks,
    ObjectBlocks,
    Span,
)
from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import RemotePart
from logfs.disk.remote.readonlyfile import ReadOnlyFile
from logfs.disk.vfs import File

MEMORY_BYTES = 256 << 20
AHEAD_BYTES = 8 * LONGEST_SPAN * BLOCK_BYTES
"""The most that is read ahead of one reader."""
_FIRST_AHEAD_BYTES = 2 * BLOCK_BYTES
_GROWTH = 4
"""The factor by which read-ahead grows with every span that is read to its end."""
_READERS = 16
"""The most readers of one file whose places are known."""
_NEAR_BYTES = 2 * BLOCK_BYTES
"""A read within this distance of where a reader is expected is of this reader."""
_SEQUENTIAL_BYTES = 256 << 10
"""The bytes that a reader has read at one place before it is sequential."""
_REMEMBERED = 10_000
"""How many objects are known to have been read sequentially."""


class RemoteFiles:
    """Opens parts of objects as files. Any thread.

    Args:
        store: The store.
        checksum: CRC-32C.
        clock: Seconds, monotonic.
        memory_bytes: The most that the blocks of all files take in memory.
        cache: Keeps blocks between runs.

    Attributes:
        blocks: The blocks in memory.
    """

    def __init__(
        self,
        store: ObjectStore,
        checksum: Callable[[memoryview], int],
        clock: Callable[[], float],
        memory_bytes: int = MEMORY_BYTES,
        cache: BlockCache | None = None,
    ) -> None:
        self.blocks = Blocks(store, checksum, clock, memory_bytes, cache)
        self._cache = cache
        self._scanned: OrderedDict[str, None] = OrderedDict()

    def open(self, name: str, part: RemotePart) -> File:
        """Return the file of a part of an object. Sends no request; see ``overlay.OpenPart``."""
        if self._cache is not None and not part.start and part.size == part.object_size:
            local = self._cache.whole(
                part.key, part.size, part.inode, lambda: RemoteFile(self, name, part)
            )
            if local is not None:
                return local
        return RemoteFile(self, name, part)

    def was_scanned(self, key: str) -> bool:
        """Return whether an object was read sequentially."""
        return key in self._scanned

    def note_scan(self, key: str) -> bool:
        """Note that an object is read sequentially; returns whether it was before."""
        was_before = self.was_scanned(key)
        self._scanned[key] = None
        self._scanned.move_to_end(key)
        if len(self._scanned) > _REMEMBERED:
            self._scanned.popitem(last=False)
        return was_before


class _Reader:
    """A place in a file from which some program may continue.

    Attributes:
        expected: Byte of the object where the next read begins if it does.
        run_bytes: Bytes that were read one after the other.
        ahead_bytes: How far is read ahead; 0: not sequential so far.
        next_block: First block that was not read ahead; those of the following object come after
            those of the object.
        span: The span that was read last.
        is_repeated: Whether the object was read sequentially before.
    """

    __slots__ = ("ahead_bytes", "expected", "is_repeated", "next_block", "run_bytes", "span")

    def __init__(self, expected: int, ahead_bytes: int) -> None:
        self.expected = expected
        self.run_bytes = 0
        self.ahead_bytes = ahead_bytes
        self.next_block = 0
        self.span: Span | None = None
        self.is_repeated = False


class RemoteFile(ReadOnlyFile):
    """An open file of a store; ``vfs.File`` describes the methods. It is read-only."""

    __slots__ = ("_blocks", "_files", "_guard", "_part", "_readers", "_source")

    def __init__(self, files: RemoteFiles, name: str, part: RemotePart) -> None:
        super().__init__(name)
        self._files = files
        self._blocks = files.blocks
        self._part = part
        self._source = files.blocks.object(part.key, part.object_size, part.checks)
        self._readers: list[_Reader] = []
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"RemoteFile({self._name!r}, {self._blocks.address(self._part.key)!r})"

    def size(self) -> int:
        """See ``vfs.File``."""
        return self._part.size

    def inode(self) -> int:
        """See ``vfs.File``."""
        return self._part.inode

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``. Waits for the store, if need be.

        Raises:
            StoreReadError: See ``Blocks.read``; with the errno of the store's error.
        """
        size = self._size_at(position, len(buffer))
        done = 0
        while done < size:
            start = self._part.start + position + done
            reader = self._reader_at(start)
            block = start // BLOCK_BYTES
            span = self._source.spans.get(block)
            if span is None or not span.is_done:
                if not self._source.is_whole:
                    self._source.keeps = not reader.ahead_bytes or reader.is_repeated
                missing = -(-(start + size - done) // BLOCK_BYTES) - block
                span = self._blocks.read(self._source, block, missing)
            done += self._copy(reader, span, start, buffer[done:size])
        return done

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``; answers from memory alone."""
        size = self._size_at(position, len(buffer))
        done = 0
        while done < size:
            start = self._part.start + position + done
            span = self._blocks.find(self._source, start // BLOCK_BYTES)
            if span is None:
                return done or None
            done += self._copy(self._reader_at(start), span, start, buffer[done:size])
        return done

    def close(self) -> None:
        """See ``vfs.File``. What was read ahead makes room first."""
        with self._guard:
            readers, self._readers = self._readers, []
        if any(reader.ahead_bytes for reader in readers):
            for span in set(self._source.spans.values()):
                self._blocks.note_read(span)

    def _size_at(self, position: int, size: int) -> int:
        return max(min(size, self._part.size - position), 0)

    def _reader_at(self, start: int) -> _Reader:
        """Return the reader whose next read begins at a byte of the object, or a new one."""
        with self._guard:
            readers = self._readers
            for number in range(len(readers) - 1, -1, -1):
                reader = readers[number]
                if abs(start - reader.expected) <= _NEAR_BYTES:
                    if number != len(readers) - 1:
                        readers.append(readers.pop(number))
                    if start != reader.expected:
                        reader.run_bytes = 0
                        if not start and reader.ahead_bytes:  # another program, in an open file
                            reader.is_repeated = self._files.note_scan(self._source.key)
                    return reader
            reader = _Reader(start, 0 if start else self._source.arriving_bytes)
            if reader.ahead_bytes:
                reader.is_repeated = self._files.note_scan(self._source.key)
            readers.append(reader)
            if len(readers) > _READERS:
                del readers[0]
            return reader

    def _copy(self, reader: _Reader, span: Span, start: int, buffer: memoryview) -> int:
        """Copy bytes of a span, and read ahead of the reader."""
        data = span.bytes_from(start)[: len(buffer)]
        length = len(data)
        buffer[:length] = data
        with self._guard:
            self._go_on(reader, span, start + length, length)
        return length

    def _go_on(self, reader: _Reader, span: Span, expected: int, length: int) -> None:
        """Note what a reader has read, and read ahead of it."""
        reader.expected = expected
        reader.run_bytes += length
        before, reader.span = reader.span, span
        if not reader.ahead_bytes:
            if reader.run_bytes < _SEQUENTIAL_BYTES:
                return
            reader.ahead_bytes = _FIRST_AHEAD_BYTES
            reader.is_repeated = self._files.note_scan(self._source.key)
        elif before is not None and before is not span:
            self._blocks.note_read(before)
            reader.ahead_bytes = min(_GROWTH * reader.ahead_bytes, AHEAD_BYTES)
        count = min(max(reader.ahead_bytes // BLOCK_BYTES // 2, 2), LONGEST_SPAN)
        reader.next_block = max(reader.next_block, -(-expected // BLOCK_BYTES))
        # Whole requests only, however small the reads are.
        last = -(-(expected + reader.ahead_bytes) // BLOCK_BYTES)
        while True:
            source, block = self._place_of(reader.next_block)
            wanted = 0 if source is None else min(count, source.block_count - block)
            if source is None or wanted <= 0 or reader.next_block + wanted > last:
                return
            if source is not self._source:
                source.arriving_bytes = reader.ahead_bytes
                source.keeps = source.keeps or self._files.was_scanned(source.key)
            if not self._blocks.read_ahead(source, block, wanted):
                return
            reader.next_block += wanted

    def _place_of(self, block: int) -> tuple[ObjectBlocks | None, int]:
        """Return the object of a block and its number there, on into the following object."""
        if block < self._source.block_count:
            return self._source, block
        if self._part.following is None:
            return None, 0
        return self._blocks.object(*self._part.following), block - self._source.block_count
