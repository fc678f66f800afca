"""Blocks set aside for what is going to be written: fallocate(2), which leaves the length alone.

Without them ext4 looks for every single block of a write whether there will be room for it, which
takes a third of the time of a large one.
"""

import ctypes
import functools

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


def set_aside(descriptor: int, position: int, length: int) -> bool:
    """Set blocks aside; False if there is no room, or if the file system cannot."""
    failed: int = _libc().fallocate(descriptor, _KEEP_SIZE, position, length)
    return not failed


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
    return libc
