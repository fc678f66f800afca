"""How much of a file is in the page cache. The kernel answers without reading the file.

    cachestat(2)   Linux 6.5 and later; the same number on every architecture
    mincore(2)     before; the file is mapped, but no page of it is read

Both answer only for files that the caller owns or may write.
"""

import ctypes
import functools
import mmap
import os
import struct

_CACHESTAT = 451
_RANGE = struct.Struct("@QQ")
"""From, length; all of the file if both are 0."""
_ANSWER = struct.Struct("@QQQQQ")
"""Pages: cached, dirty, being written back, evicted, recently evicted."""
PAGE_BYTES = mmap.PAGESIZE
_PIECE_BYTES = 1 << 30


def cached_bytes(descriptor: int) -> int | None:
    """Return how many bytes of an open file are in memory; None if the kernel does not say."""
    size = os.fstat(descriptor).st_size
    found = by_cachestat(descriptor)
    if found is None:
        found = by_mincore(descriptor, size)
    return None if found is None else min(found, size)


def cached_pages(descriptor: int, position: int, length: int) -> int | None:
    """Return how many pages of a range of a file are in memory; None if the kernel does not say.

    Args:
        position: The start of the range, below the end of the file.
        length: The length of the range, > 0; it may end after the file.
    """
    length = min(length, os.fstat(descriptor).st_size - position)
    if length <= 0:
        return 0
    found = by_cachestat(descriptor, position, length)
    if found is None:
        first = position // PAGE_BYTES * PAGE_BYTES
        return _pages_in_core(descriptor, first, position + length - first)
    return found // PAGE_BYTES


def by_cachestat(descriptor: int, position: int = 0, length: int = 0) -> int | None:
    """Return the cached bytes of a file or a range, in whole pages; None if they are unknown."""
    answer = ctypes.create_string_buffer(_ANSWER.size)
    if _libc().syscall(_CACHESTAT, descriptor, _RANGE.pack(position, length), answer, 0):
        return None
    return int(_ANSWER.unpack(answer.raw)[0]) * PAGE_BYTES


def by_mincore(descriptor: int, size: int) -> int | None:
    """Ask mincore(2) piece by piece; bytes of whole pages, None where it cannot be asked."""
    pages = 0
    for start in range(0, size, _PIECE_BYTES):
        found = _pages_in_core(descriptor, start, min(_PIECE_BYTES, size - start))
        if found is None:
            return None
        pages += found
    return pages * PAGE_BYTES


def _pages_in_core(descriptor: int, start: int, size: int) -> int | None:
    libc, count = _libc(), -(-size // PAGE_BYTES)
    flags = (mmap.PROT_READ, mmap.MAP_SHARED)
    address = libc.mmap(None, size, *flags, descriptor, start)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        pages = ctypes.create_string_buffer(count)
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages):
            return None
        return sum(byte & 1 for byte in pages.raw)
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_longlong,
    )
    return libc
