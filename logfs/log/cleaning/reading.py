"""Going through a ``.log`` for compaction: whole batches, a piece at a time."""

from collections.abc import Callable

from logfs.disk.vfs import File
from logfs.errors import CorruptRecordError

_BATCH_LENGTH = slice(8, 12)
_LOG_OVERHEAD_BYTES = 12


def read_pieces(
    log: File,
    name: str,
    size_bytes: int,
    piece_bytes: int,
    take: Callable[[bytearray, int], int | None],
) -> int:
    """Hand a log over piece by piece.

    Args:
        log: The file.
        name: Its name, for messages.
        size_bytes: How many of its bytes are batches.
        piece_bytes: How many to read at once; more only for a batch that is larger.
        take: Called with a buffer that begins with a batch and how many of its bytes are meant;
            returns how many it has used up, whole batches, or None if it wants no more.

    Returns:
        How many bytes were used up.

    Raises:
        CorruptRecordError: A batch is cut, or ``take`` found it damaged; with file and position.
    """
    buffer, position = bytearray(min(piece_bytes, max(size_bytes, 1))), 0
    while position < size_bytes:
        size = min(len(buffer), size_bytes - position)
        if log.pread_into(memoryview(buffer)[:size], position) < size:
            raise CorruptRecordError(f"{name}: it ends before byte {position + size}", position)
        try:
            used = take(buffer, size)
        except CorruptRecordError as error:
            at = position + (error.position or 0)
            raise CorruptRecordError(f"{name} at byte {at}: {error}", at, name) from error
        if used is None:
            break
        position += used
        if used:
            continue
        wanted = int.from_bytes(buffer[_BATCH_LENGTH], "big") + _LOG_OVERHEAD_BYTES
        if wanted <= size or wanted > size_bytes - position:
            raise CorruptRecordError(
                f"{name} at byte {position}: a batch of {wanted} bytes is cut", position, name
            )
        buffer = bytearray(wanted)
    return position
