"""Which files other users may have written."""

import os
import stat

from logfs.disk.vfs import File

_ROOT = 0


def may_be_foreign(file: File) -> bool:
    """Return whether users other than root and that of this process may write to an open file.

    False for a file without a descriptor, which is no file of this machine.
    """
    descriptor = file.fileno()
    if descriptor < 0:
        return False
    found = os.fstat(descriptor)
    others = stat.S_IWGRP | stat.S_IWOTH
    return found.st_uid not in (_ROOT, os.geteuid()) or bool(found.st_mode & others)
