"""Open files of the log copied to a stream; a large one by several threads, each renders a piece.

Rendering costs more than reading a plain file does, but threads share it: while they work on a
piece each, none of them needs the interpreter.
"""

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from queue import SimpleQueue
from typing import BinaryIO, NamedTuple, Protocol

from logfs.errors import CorruptRecordError, LogfsError
from logfs.log.reading.files import FixedFile, GrowingFile
from logfs.log.reading.resolve import Resolved, fixed_now

PIECE_BYTES = 4 << 20
"""At most. The more, the less often threads wait for each other; but what is rendered should be in
a cache still when it is written."""

_BUFFER_BYTES = 1 << 20
_WORKERS = 2
_AHEAD = _WORKERS + 1


class OpenFile(Protocol):
    """One open file of the log."""

    def read_into(self, out: memoryview, offset: int) -> int:
        """Read bytes from an offset; 0 at the end."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def copy_resolved(resolved: Resolved, out: BinaryIO) -> None:
    """Copy what an address was resolved to, up to its end as it is now.

    Raises:
        LogfsError: It cannot be read; what is before a corrupt record has been copied.
        OSError: The disk failed, or nobody reads the stream.
    """
    fixed = fixed_now(resolved)
    if fixed is not None and fixed.size >= 2 * PIECE_BYTES and (os.cpu_count() or 1) > 1:
        _copy_pieces(fixed, out)
    elif resolved.grows:
        start, limit = resolved.start, resolved.limit
        copy_file(GrowingFile(resolved.log, resolved.view, start, limit, resolved.level), out)
    else:
        copy_file(FixedFile(resolved), out)


def copy_file(file: OpenFile, out: BinaryIO) -> None:
    """Copy an open file from its start to its end, and close it."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    offset = 0
    try:
        while count := file.read_into(buffer, offset):
            out.write(buffer[:count])
            offset += count
    finally:
        file.close()


class _Piece(NamedTuple):
    """Rendered bytes, and what kept more from being rendered."""

    data: memoryview
    error: CorruptRecordError | None


def _copy_pieces(resolved: Resolved, out: BinaryIO) -> None:
    files, buffers = SimpleQueue[FixedFile](), SimpleQueue[memoryview]()
    for _ in range(_WORKERS):
        files.put(FixedFile(resolved))

    def render(offset: int, buffer: memoryview) -> _Piece:
        file = files.get()
        try:
            return _render(file, offset, buffer)
        finally:
            files.put(file)

    pieces: deque[Future[_Piece]] = deque()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for offset, stop in pairwise(_borders(FixedFile(resolved))):
            if len(pieces) == _AHEAD:
                buffers.put(_write(pieces.popleft(), out))
            buffer = memoryview(bytearray(PIECE_BYTES)) if buffers.empty() else buffers.get()
            pieces.append(pool.submit(render, offset, buffer[: stop - offset]))
        while pieces:
            _write(pieces.popleft(), out)
    while not files.empty():
        files.get().close()


def _borders(file: FixedFile) -> Iterator[int]:
    """Give where the pieces begin and end: where a batch does, or two threads would read it."""
    border = 0
    while border < file.size():
        yield border
        begin, border = border, border + PIECE_BYTES
        if border < file.size():
            with suppress(OSError, LogfsError):  # who reads there says so, after what is before
                begin_near = file.begin_near(border)
                border = begin_near if begin_near > begin else border
    yield file.size()


def _write(future: "Future[_Piece]", out: BinaryIO) -> memoryview:
    """Write a piece as soon as it is there; returns its buffer."""
    piece = future.result()
    out.write(piece.data)
    if piece.error is not None:
        raise piece.error
    return memoryview(piece.data.obj)


def _render(file: FixedFile, offset: int, buffer: memoryview) -> _Piece:
    done = 0
    try:
        while done < len(buffer) and (count := file.read_into(buffer[done:], offset + done)):
            done += count
    except CorruptRecordError as error:
        return _Piece(buffer[:done], error)
    return _Piece(buffer[:done], None)
