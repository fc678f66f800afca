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
