"""The entries of an index that stay in its file and are read as they are needed, a page at a time.

A sealed index is not mapped: another process or a failing disk can take bytes away below a mapping
at any time, and to touch them would kill this process (SIGBUS). A read answers with fewer bytes,
or with an error. A bisection reads one entry of each page that it tries, and then one page: ten
reads find an entry among the 262,144 of a segment of 1 GiB.

Pure: the bytes come from a function.
"""

from collections.abc import Callable
from typing import Any

from logfs.errors import CorruptIndexError

PAGE_BYTES = 4096
"""Most that is read at once for one entry."""
_KEPT_FIRSTS = 64
"""First entries of pages that are kept: those that each bisection begins with."""

Read = Callable[[int, int], bytes]
"""Returns so many bytes (first argument) from a position in the entries on (second argument)."""


class PagedEntries:
    """Whole entries of one size, from a function that reads a range of bytes. Any thread."""

    __slots__ = ("_firsts", "_last", "_name", "_page_bytes", "_read", "_size", "_stride")

    def __init__(self, read: Read, size: int, stride: int, name: str) -> None:
        self._read = read
        self._size = size
        self._stride = stride
        self._name = name
        self._page_bytes = PAGE_BYTES // stride * stride
        self._firsts: dict[int, bytes] = {}
        self._last: tuple[int, bytes] = (-1, b"")

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        """Return a part of the entries, without a step; raise CorruptIndexError for a cut file."""
        start, stop, _ = part.indices(self._size)
        return self._read_all(stop - start, start) if start < stop else b""

    def __bytes__(self) -> bytes:
        return self[:]

    def place(self, number: int) -> tuple[bytes, int]:
        """Return bytes that hold an entry, and its position in them.

        Raises:
            CorruptIndexError: The file has become shorter.
            IndexError: There is no such entry.
        """
        position = number * self._stride
        if not 0 <= position < self._size:
            raise IndexError(f"{self._name}: entry {number} of {self._size // self._stride}")
        page, within = divmod(position, self._page_bytes)
        return self._page(page), within

    def count_up_to(
        self, unpack_from: Callable[[Any, int], tuple[int]], field: int, target: int
    ) -> int:
        """See ``index.count_up_to``; raise CorruptIndexError if the file was cut."""
        low, high = 0, -(-self._size // self._page_bytes)
        while low < high:
            middle = (low + high) >> 1
            if unpack_from(self._first(middle), field)[0] <= target:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return 0
        page, stride = self._page(low - 1), self._stride
        begin, end = 1, len(page) // stride
        while begin < end:
            middle = (begin + end) >> 1
            if unpack_from(page, middle * stride + field)[0] <= target:
                begin = middle + 1
            else:
                end = middle
        return (low - 1) * (self._page_bytes // stride) + begin

    def _first(self, page: int) -> bytes:
        """Return the first entry of a page."""
        found = self._firsts.get(page)
        if found is None:
            number, data = self._last
            start = page * self._page_bytes
            found = data if number == page else self._read_all(self._stride, start)
            if len(self._firsts) < _KEPT_FIRSTS:
                self._firsts[page] = found[: self._stride]
        return found

    def _page(self, page: int) -> bytes:
        number, data = self._last
        if number != page:
            start = page * self._page_bytes
            data = self._read_all(min(self._page_bytes, self._size - start), start)
            self._last = page, data
        return data

    def _read_all(self, size: int, position: int) -> bytes:
        data = self._read(size, position)
        if len(data) < size:
            raise CorruptIndexError(
                f"{self._name}: {position + len(data)} bytes of entries, expected {self._size}"
            )
        return data
