"""Whole lines out of what is read, as many at a time as fit a buffer.

The last line may lack its newline: it ends where the file ends.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator

from logfs.errors import UnparsableLineError

MAX_LINE_BYTES = 60 << 20
"""More does not go through a control socket at once; Kafka's own limit for requests is 100 MiB."""

_NEWLINE = b"\n"


def lines_at(descriptor: int, position: int, buffer: bytearray) -> memoryview:
    """Read the lines that a regular file has from a position on, as many as fit a buffer.

    The position of the descriptor does not matter, and stays.

    Returns:
        They are in the buffer, or in a larger one if the first line is longer; none at the end.

    Raises:
        OSError: It cannot be read; the error names the file.
        UnparsableLineError: A line is longer than ``MAX_LINE_BYTES``.
    """

    def fill(room: memoryview) -> int:
        nonlocal position
        try:
            count = os.preadv(descriptor, (room,), position)
        except OSError as error:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            raise OSError(error.errno, error.strerror, name) from None
        position += count
        return count

    return next(whole_lines(fill, buffer, lambda: True), memoryview(b""))


def whole_lines(
    fill: Callable[[memoryview], int | None], buffer: bytearray, has_more: Callable[[], bool]
) -> Iterator[memoryview]:
    """Cut what is read after newlines.

    Args:
        fill: Reads into a buffer and returns how much; nothing only at the end.
        buffer: As many lines come at once as fit; more only if a line is longer.
        has_more: Tells whether ``fill`` would return at once; if not, what is there comes first.

    Yields:
        Lines, each with a newline; valid until the next are asked for.

    Raises:
        UnparsableLineError: A line is longer than ``MAX_LINE_BYTES``.
    """
    view, have, searched = memoryview(buffer), 0, 0
    while count := fill(view[have:-1]):  # one byte stays free for a newline
        have += count
        if have < len(buffer) - 1 and has_more():
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
                raise UnparsableLineError(
                    f"a line of {have} bytes and more; expected at most {MAX_LINE_BYTES}"
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


_PIPE_BYTES = 1 << 20
"""The size that every user may ask for, unless ``/proc/sys/fs/pipe-max-size`` says otherwise."""


def widen_pipe(descriptor: int) -> None:
    """Let a pipe hold 1 MiB; nothing if that may not be, or the descriptor is no pipe's."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
