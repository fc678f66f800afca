"""The memory that readers keep between two reads: at most so many bytes for all of them.

A reader keeps its window of the log, the records it decompressed and the record it is in, so that
the next read continues without a look-up. A process may have tens of thousands of files open, so
all of a mount's readers share one limit. When it is reached, the readers that have not read for the
longest time lose their buffers: their next read looks its position up again.

What a reader cannot lose while it is open is *reserved*, at most half of the limit.
"""

import errno
import threading
from collections import OrderedDict
from typing import Protocol

LIMIT_BYTES = 64 * 1024 * 1024
"""For 128 readers with a full window, or thousands that read a little."""


class BufferOwner(Protocol):
    """A reader that can continue without its buffers, which take ``buffer_bytes``."""

    @property
    def buffer_bytes(self) -> int:
        """How much memory its buffers take."""
        ...

    def drop_buffers(self) -> None:
        """Free them; the position stays. Called from any thread, but never during a read."""
        ...


class Buffers:
    """The buffers of all readers of a mount. Any thread."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[BufferOwner, int] = OrderedDict()  # longest without a read first
        self._bytes = 0
        self._reserved: dict[BufferOwner, int] = {}
        self._reserved_bytes = 0
        self._lock = threading.Lock()

    @property
    def kept_bytes(self) -> int:
        """How many bytes readers keep."""
        return self._bytes

    def reserve(self, owner: BufferOwner, size: int, name: str = "") -> None:
        """Take memory for as long as a reader is open; 0 gives it back.

        Args:
            owner: The reader.
            size: Bytes; those that it has reserved before are given back.
            name: The name of the file, for errors.

        Raises:
            OSError: ENOMEM: all readers together would have reserved too much.
        """
        with self._lock:
            reserved = self._reserved_bytes - self._reserved.get(owner, 0) + size
            if size and reserved > self._limit_bytes // 2:
                raise OSError(
                    errno.ENOMEM,
                    f"{name}: with this one, open files that merge partitions would keep {reserved}"
                    f" bytes of memory (at most {self._limit_bytes // 2}). Close some of them",
                )
            self._reserved_bytes = reserved
            self._reserved.pop(owner, None)
            if size:
                self._reserved[owner] = size
            self._make_room()

    def begin(self, owner: BufferOwner) -> None:
        """Leave the buffers of a reader alone, because it begins to read or is closed."""
        with self._lock:
            self._bytes -= self._kept.pop(owner, 0)

    def end(self, owner: BufferOwner) -> None:
        """Note what a reader keeps after a read; make room for it."""
        size = owner.buffer_bytes
        if not size:
            return
        with self._lock:
            self._kept[owner] = size
            self._bytes += size
            self._make_room()

    def _make_room(self) -> None:
        while self._kept and self._bytes + self._reserved_bytes > self._limit_bytes:
            other, freed = self._kept.popitem(last=False)
            self._bytes -= freed
            other.drop_buffers()
