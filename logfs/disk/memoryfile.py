"""Files in memory: sparse, and gone when no process has their descriptor any more.

Source: memfd_create(2).
"""

import mmap
import os


def create_memory_file(name: str, size: int) -> int:
    """Return the descriptor of a new file of zeros; only what is written needs memory."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    os.ftruncate(descriptor, size)
    return descriptor


def map_memory_file(descriptor: int, size: int) -> memoryview:
    """Return the first bytes of a file, for reading and writing; other processes see changes."""
    return memoryview(mmap.mmap(descriptor, size))


def free_memory(mapped: memoryview, start: int, length: int) -> None:
    """Replace pages of a mapped file by zeros, which need no memory.

    Args:
        mapped: Any part of what ``map_memory_file`` returned.
        start: Byte of the file; a multiple of the page size.
        length: In bytes.

    Raises:
        OSError: The memory could not be freed; the bytes are as before.

    Source: madvise(2), MADV_REMOVE.
    """
    mapped.obj.madvise(mmap.MADV_REMOVE, start, length)  # type: ignore[attr-defined]
