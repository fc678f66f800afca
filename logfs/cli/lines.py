"""What ``logfs append`` reads: files and stdin, one after the other.

Of a regular file the target takes what it wants where it is. What comes through a pipe, or from
a file system that only this process should wait for, is read here: what a pipe has to give comes at
once, however little it is, so that a slow writer's lines are not kept waiting.
"""

import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from logfs.disk.lines import whole_lines
from logfs.disk.pipes import widen_pipe
from logfs.errors import UnknownNameError
from logfs.log.writing.lineform import Lines
from logfs.records.compression import Buffer

STDIN = "-"


class Target(Protocol):
    """Where lines go.

    Attributes:
        chunk_bytes: How many of them at once, if they are read here.
    """

    chunk_bytes: int

    def can_read(self, descriptor: int) -> bool:
        """Tell whether it takes lines out of a regular file itself."""
        ...

    def append(self, lines: Buffer, *, unkeyed: int) -> Lines:
        """Append whole lines; see ``logfs.log.writing.bulk``."""
        ...

    def append_file(self, descriptor: int, position: int, *, unkeyed: int) -> Lines:
        """Append some lines of a regular file; see ``logfs.log.writing.feeding``."""
        ...

    def flush(self) -> None:
        """Return once everything appended so far is durable."""
        ...


Step = Callable[[int], Lines]
"""Appends the next lines; takes the ``unkeyed`` of ``Target``."""


def check_files(names: Sequence[str]) -> int | None:
    """Look at files before anything is done with the first of them.

    Returns:
        The bytes of all of them together; None if that cannot be known.

    Raises:
        OSError: One does not exist or cannot be read.
        UnknownNameError: One is a directory, or stdin is closed.
    """
    total: int | None = 0
    for name in names:
        with _open(name) as file:
            status = Path(f"/dev/fd/{file.fileno()}").stat()
        is_regular = stat.S_ISREG(status.st_mode) and name != STDIN
        total = total + status.st_size if total is not None and is_regular else None
    return total


def appending_steps(name: str, target: Target, *, in_chunks: bool) -> Iterator[Step]:
    """Append the lines of a file step by step; each has to be taken before the next is asked for.

    Args:
        name: Of the file.
        target: Where they go.
        in_chunks: No step is larger than the target's ``chunk_bytes``, though that takes longer.

    Raises:
        OSError: The file cannot be read.
        UnparsableLineError: A line is longer than ``logfs.disk.lines.MAX_LINE_BYTES``.
    """
    with _open(name) as file:
        is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        if in_chunks or not is_regular or not target.can_read(file.fileno()):
            buffer = bytearray(target.chunk_bytes)
            for lines in whole_lines(file.readinto, buffer, partial(_has_more, file)):
                yield partial(_append, target, lines)
            return
        position, is_over = file.tell(), False

        def take(unkeyed: int) -> Lines:
            nonlocal position, is_over
            done = target.append_file(file.fileno(), position, unkeyed=unkeyed)
            position += done.accepted
            is_over = not done.accepted
            return done

        while not is_over:
            yield take
        # As if it had been read: it may be the stdin of others too.
        file.seek(min(position, file.seek(0, io.SEEK_END)))


def _append(target: Target, lines: Buffer, unkeyed: int) -> Lines:
    return target.append(lines, unkeyed=unkeyed)


def label_of(name: str) -> str:
    """Return what to call a file."""
    return "stdin" if name == STDIN else name


def _open(name: str) -> io.FileIO:
    if name != STDIN:
        if Path(name).is_dir():
            raise UnknownNameError(f"{name}: a directory; expected a file with lines")
        return io.FileIO(name)
    if sys.__stdin__ is None:
        raise UnknownNameError("stdin is closed; give it something to read, or name a FILE")
    widen_pipe(0)
    return io.FileIO(0, closefd=False)


def _has_more(file: io.FileIO) -> bool:
    """Tell whether a read would return at once; of a regular file it always does."""
    return bool(select.select([file], [], [], 0)[0])
