"""Whole lines out of files and stdin, some megabytes at a time.

A file's last line may lack its newline: it ends where the file ends. What a pipe has to give comes
at once, however little it is, so that a slow writer's lines are not kept waiting.
"""

import io
import select
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from logfs.disk.pipes import widen_pipe
from logfs.errors import RecordTooLargeError, UnknownNameError

STDIN = "-"
MAX_LINE_BYTES = 60 << 20
"""More does not go through a control socket at once; Kafka's own limit for requests is 100 MiB."""

_NEWLINE = b"\n"


class Chunk(NamedTuple):
    """Lines in a row of one file.

    Attributes:
        data: The lines, each with a newline; valid until the next chunk is asked for.
        name: What to call the file.
        is_first: They are the first of the file.
    """

    data: memoryview
    name: str
    is_first: bool


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


def read_lines(names: Sequence[str], chunk_bytes: int) -> Iterator[Chunk]:
    """Read the lines of files, one file after the other.

    Args:
        names: Of the files.
        chunk_bytes: Lines of so many bytes make a chunk, if no pipe keeps them waiting.

    Raises:
        OSError: A file cannot be read.
        RecordTooLargeError: A line is longer than ``MAX_LINE_BYTES``.
    """
    for name in names:
        with _open(name) as file:
            label, is_first = label_of(name), True
            for data in _whole_lines(file, label, chunk_bytes):
                yield Chunk(data, label, is_first)
                is_first = False


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


def _whole_lines(file: io.FileIO, label: str, chunk_bytes: int) -> Iterator[memoryview]:
    buffer = bytearray(chunk_bytes)
    view, have, searched = memoryview(buffer), 0, 0
    while count := file.readinto(view[have:-1]):  # one byte stays free for a newline
        have += count
        if have < len(buffer) - 1 and _has_more(file):
            continue
        stop = buffer.rfind(_NEWLINE, searched, have) + 1
        searched = have
        if stop:
            yield view[:stop]
            rest = have - stop
            view[:rest] = view[stop:have]
            have, searched = rest, rest
        elif have == len(buffer) - 1:
            if have >= MAX_LINE_BYTES:
                raise RecordTooLargeError(
                    f"{label}: a line of {have} bytes and more; expected at most {MAX_LINE_BYTES}",
                    have,
                    MAX_LINE_BYTES,
                )
            larger = bytearray(2 * len(buffer))
            larger[:have] = view[:have]
            buffer = larger
            view = memoryview(buffer)
    if have and buffer[have - 1 : have] != _NEWLINE:
        view[have : have + 1] = _NEWLINE
        have += 1
    if have:
        yield view[:have]


def _has_more(file: io.FileIO) -> bool:
    """Tell whether a read would return at once; of a regular file it always does."""
    return bool(select.select([file], [], [], 0)[0])
