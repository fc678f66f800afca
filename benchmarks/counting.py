"""A mount of logfs with the number of its requests by kind.

    python -m benchmarks.counting FILE DATA MOUNTPOINT

FILE contains eight-byte numbers in the order of ``KINDS``, which are always up to date. The
handlers of logfs run unchanged, each in a wrapper. Nothing is timed through this mount.
"""

import functools
import mmap
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from logfs.fs.kernel import hooks

hooks.load()  # before anything imports pyfuse3

from logfs.fs.operations.served import Operations  # noqa: E402
from logfs.fs.options import MountOptions  # noqa: E402
from logfs.fs.session.mount import run_mount  # noqa: E402

KINDS = ("lookup", "getattr", "open", "read", "flush", "release", "getxattr")
_NUMBERS = struct.Struct(f"={len(KINDS)}Q")

Handler = Callable[..., Awaitable[Any]]


def read_counts(path: Path) -> dict[str, int]:
    """Return how many requests of each kind there have been."""
    return dict(zip(KINDS, _NUMBERS.unpack(path.read_bytes()), strict=True))


class Counts:
    """The numbers, in a mapped file."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(_NUMBERS.size))
        with path.open("r+b") as file:
            self._memory = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")

    def counted(self, kind: str, handler: Handler) -> Handler:
        """Wrap a handler."""
        memory, place = self._memory, KINDS.index(kind)

        @functools.wraps(handler)
        async def count(*arguments: object) -> object:
            memory[place] += 1
            return await handler(*arguments)

        return count


def main(counts: str, data: str, point: str) -> int:
    """Mount and serve until a signal."""
    numbers = Counts(Path(counts))
    for kind in KINDS:
        setattr(Operations, kind, numbers.counted(kind, getattr(Operations, kind)))
    return run_mount(data, point, MountOptions())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
