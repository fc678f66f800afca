"""Addresses of sockets: a path in one holds 108 bytes, the path of a data directory may have more.

So a socket is bound and connected to below ``/proc/self/fd``, through a descriptor of its
directory, which is short for any name of the directory.
"""

import contextlib
import os
import stat
from collections.abc import Iterator

from logfs.disk.beneath import check_kind


@contextlib.contextmanager
def short_path(directory: str, name: str) -> Iterator[str]:
    """Give a path of a name in a directory that fits into an address, until the block ends.

    Raises:
        OSError: The directory cannot be opened, or the name is a symbolic link (ELOOP).
    """
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                check_kind(found, f"{directory}/{name}")
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
