"""Addresses of sockets: a path in one holds 108 bytes, the path of a data directory may have more.

So a socket is bound and connected to below ``/proc/self/fd``, through a descriptor of its
directory, which is short whatever the directory is called.
"""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def short_path(directory: str, name: str) -> Iterator[str]:
    """Give a path of a name in a directory that fits into an address, until the block ends.

    Raises:
        OSError: The directory cannot be opened.
    """
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
