"""Looking on while a store works on its disk, and at what it leaves."""

import hashlib
import itertools
from collections.abc import Callable

from logfs.log import names
from logfs.log.host import Host
from tests.fakes import FakeDisk

READING = {"open", "list", "stat", "size", "pread", "pread_nowait", "map", "free"}
"""The operations of a disk that change nothing; ``open`` may make a file."""


def new_host() -> Host:
    """A machine whose random numbers may be asked for by several threads."""
    ids = itertools.count(1)
    return Host("boot", lambda: hashlib.md5(b"%d" % next(ids), usedforsecurity=False).digest())


def opened_by(disk: FakeDisk, do: Callable[[], object]) -> set[str]:
    """The segment files that are opened meanwhile."""
    opened = set()

    def see(operation: str, name: str, _size: int) -> None:
        if operation == "open" and names.parse_segment_file(name.rpartition("/")[2]):
            opened.add(name)

    disk.before = see
    do()
    disk.before = None
    return opened


def directories(disk: FakeDisk) -> list[str]:
    return [name for name, is_directory in disk.list("") if is_directory]
