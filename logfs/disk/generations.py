"""The generation of an inode: a new number for each file that gets the inode."""

import fcntl
import struct

from logfs.disk.vfs import File

_GET_VERSION = 0x80087601
"""FS_IOC_GETVERSION."""
_WORD = struct.Struct("=q")


def generation_of(file: File) -> int | None:
    """Return the generation of the inode of a file; None if its file system has none.

    Source: ioctl_iflags(2), Linux fs/ext4/ioctl.c, fs/xfs/xfs_ioctl.c.
    """
    descriptor = file.fileno()
    if descriptor < 0:
        return None
    try:
        found = fcntl.ioctl(descriptor, _GET_VERSION, bytes(_WORD.size))
    except OSError:
        return None
    return int.from_bytes(found[:4], "little") or None
