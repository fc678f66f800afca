"""``logfs cat``: copy an address to a stream, through a mount or from the files.

Two threads render pieces of a large file. Rendering costs more than reading a plain file, and no
thread needs the interpreter meanwhile.
"""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, tzinfo
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from logfs.errors import CorruptRecordError, LogfsError, NoSuchPartitionError
from logfs.library.addresses import ReadableFile, empty_range, find, no_directory, no_file
from logfs.library.directory import no_topic
from logfs.library.places import Place, served_at
from logfs.library.zones import zone_of
from logfs.log.reading.address import (
    Suffix,
    names_topic_range,
    parse_partition_name,
    parse_topic_range,
)
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.resolve import Resolved, fixed_now
from logfs.types import IsolationLevel

if TYPE_CHECKING:
    from concurrent.futures import Future

PIECE_BYTES = 4 << 20
"""The largest piece. Threads wait less with large pieces; small ones stay in the processor's cache
until they are written."""

_BUFFER_BYTES = 1 << 20
_WORKERS = 2
_AHEAD = _WORKERS + 1


def copy_resolved(resolved: Resolved, out: BinaryIO) -> None:
    """Copy a resolved address, up to its present end.

    Raises:
        LogfsError: It cannot be read. Data before a corrupt record has been copied.
        OSError: The disk failed, or the reader of the stream ended.
    """
    fixed = fixed_now(resolved)
    if fixed is not None and fixed.size >= 2 * PIECE_BYTES and (os.cpu_count() or 1) > 1:
        _copy_pieces(fixed, out)
    elif resolved.grows:
        start, limit = resolved.start, resolved.limit
        copy_file(GrowingFile(resolved.log, resolved.view, start, limit, resolved.level), out)
    else:
        copy_file(FixedFile(resolved), out)


def copy_file(file: ReadableFile, out: BinaryIO) -> None:
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
    """Rendered bytes, and the error after them."""

    data: memoryview
    error: CorruptRecordError | None


def _copy_pieces(resolved: Resolved, out: BinaryIO) -> None:
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and of use for much data

    files = [FixedFile(resolved) for _ in range(_WORKERS)]
    buffers, pieces = deque[memoryview](), deque["Future[_Piece]"]()
    number, was_start = 0, True
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in files]
        for (offset, is_start), (stop, _) in pairwise(_borders(FixedFile(resolved))):
            # Large batches all go to one thread: only one of them is in memory.
            number = (number + (is_start and was_start)) % _WORKERS
            was_start = is_start
            if len(pieces) == _AHEAD:
                buffers.append(_write(pieces.popleft(), out))
            buffer = buffers.popleft() if buffers else memoryview(bytearray(PIECE_BYTES))
            part = buffer[: stop - offset]
            pieces.append(threads[number].submit(_render, files[number], offset, part))
        while pieces:
            _write(pieces.popleft(), out)
    for file in files:
        file.close()


def _borders(file: FixedFile) -> Iterator[tuple[int, bool]]:
    """Yield the borders of the pieces, each with whether a batch begins there, if it is known.

    Otherwise the batch is larger than a piece.
    """
    border, is_start = 0, True
    while border < file.size():
        yield border, is_start
        begin, border = border, border + PIECE_BYTES
        if border < file.size():
            is_start = False
            with suppress(OSError, LogfsError):  # the thread of that piece meets the error again
                begin_near = file.begin_near(border)
                is_start = begin_near > begin
                border = begin_near if is_start else border
    yield file.size(), True


def _write(future: "Future[_Piece]", out: BinaryIO) -> memoryview:
    """Wait for a piece, write it, and return its buffer."""
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


_DATA_ATTRIBUTE = "user.logfs.data"
_LEVEL_ATTRIBUTE = "user.logfs.isolation_level"
_END_ATTRIBUTE = "user.logfs.log_end_offset"


def copy(place: Place, out: BinaryIO, level: IsolationLevel | None = None) -> str | None:
    """Copy an address to a stream, up to its present end.

    Args:
        level: The level to show; None: that of the mount if a daemon serves it, else all records.

    Returns:
        Why the range of the address cannot contain a record; None if it can, see ``why_empty``.

    Raises:
        LogfsError: It is not a file, does not exist or cannot be read. Data before a corrupt record
            has been copied.
        OSError: The disk or the mount failed. BrokenPipeError: the reader of the stream ended.
    """
    zone = zone_of(place)
    point = place.root if place.is_mount else served_at(place.root)
    if point is not None and level is not None:
        point, place = _beside(point, place, level)
    level = level or IsolationLevel.READ_UNCOMMITTED
    if point is not None:
        _copy_from_mount(point, place, out)
        return _why_empty_in_mount(point, place, zone)
    found = find(place, level, zone)
    if found.resolved is not None:
        copy_resolved(found.resolved, out)
    elif found.file is not None:
        copy_file(found.file, out)
    else:
        out.write(found.text)
    return found.why_empty


def _beside(point: str, place: Place, level: IsolationLevel) -> tuple[str | None, Place]:
    """Return the data directory instead of a mount that shows another isolation level."""
    if os.getxattr(point, _LEVEL_ATTRIBUTE).decode() == level:
        return point, place
    data = os.getxattr(point, _DATA_ATTRIBUTE).decode()
    return None, Place(data, place.address, is_mount=False)


def _copy_from_mount(point: str, place: Place, out: BinaryIO) -> None:
    path = os.path.join(point, *place.address)
    try:
        if os.path.isdir(path):
            raise no_file(place)
        with open(path, "rb", buffering=0) as file:
            buffer = memoryview(bytearray(_BUFFER_BYTES))
            while count := file.readinto(buffer):
                out.write(buffer[:count])
                if path.endswith(Suffix.FOLLOW):
                    out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise (_meaning(point, place.address) or error) from error


def _exists(path: str) -> bool:
    """Return whether there is such a file; unlike ``os.path.exists`` an error is not "no"."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _meaning(point: str, address: tuple[str, ...]) -> LogfsError | None:
    """Return why a mount refuses an address, which says more than its errno."""
    topic, name, *more = *address, "", ""
    try:
        if names_topic_range(topic):
            topic = parse_topic_range(topic, UTC).topic
            return None if _exists(f"{point}/{topic}") else no_topic(topic)
        if not _exists(f"{point}/{topic}"):
            return no_topic(topic)
        number = parse_partition_name(name, UTC).partition  # the zone of dates does not matter here
        if not _exists(f"{point}/{topic}/{number}"):
            return NoSuchPartitionError(f"topic {topic} has no partition {number}")
    except LogfsError as error:
        return error
    except OSError:  # the mount is dead: its own error says so
        return None
    return no_directory(topic, name) if any(more) else None


def _why_empty_in_mount(point: str, place: Place, zone: tzinfo) -> str | None:
    topic, name, *more = *place.address, "", ""
    if "@" not in name or any(more):
        return None
    address = parse_partition_name(name, zone)
    with suppress(OSError):  # the topic was deleted meanwhile
        end = int(os.getxattr(f"{point}/{topic}/{address.partition}", _END_ATTRIBUTE))
        return empty_range(address, end)
    return None
