"""Lines of a regular file into the log: some are read and made batches while others are written.

Reading and encoding run in a thread of their own, ahead of the caller, who writes. Nothing is
copied in between, and a piece is about as large as a batch: what was read is still in the cache of
the processor when it is encoded. Only a write takes the lock of the partition, so a file on a slow
disk keeps nobody waiting; what others append meanwhile stands between two pieces.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from logfs.disk.lines import lines_at
from logfs.errors import LogfsError
from logfs.log.partition import PartitionLog
from logfs.log.writing.bulk import EncodedWriter, LineForm, Lines, append_by_key
from logfs.records.compression import Buffer
from logfs.records.encoded import Encoded

STEP_BYTES = 32 << 20
"""About so much of a file is appended at once, then the caller can tell how far it is."""

SPREAD_BYTES = 16 << 20
"""The same where keys decide on the partition: all is looked at before any of it is written."""

_AHEAD = 2
_MIN_PIECE_BYTES = 1 << 16
_MAX_PIECE_BYTES = 4 << 20


def append_file(
    log: PartitionLog, descriptor: int, position: int, form: LineForm, now_ms: int
) -> Lines:
    """Append some of the lines that a regular file has from a position on.

    Args:
        log: The partition.
        descriptor: Of the file; its own position does not matter.
        position: Where a line begins.
        form: What the lines are.
        now_ms: Timestamp of records whose lines give none.

    Returns:
        What became of them; the next begin ``accepted`` bytes further. Nothing accepted and nothing
        refused: the file has no more.

    Raises:
        LogOfflineError, DeletedError, ReadOnlyError, OSError: Nothing was appended.
    """
    limit = log.encode_options().max_batch_bytes
    # Records are longer than lines: usual ones make one batch, and not a second one of the rest.
    size = max(_MIN_PIECE_BYTES, min(_MAX_PIECE_BYTES, limit * 7 // 8))
    return append_pieces(
        log, islice(lines_at(descriptor, position, size), STEP_BYTES // size), form, now_ms
    )


def append_file_by_key(
    logs: Sequence[PartitionLog],
    descriptor: int,
    position: int,
    form: LineForm,
    unkeyed: int,
    now_ms: int,
) -> Lines:
    """Do the same with all partitions of a topic; see ``append_by_key``."""
    lines = next(lines_at(descriptor, position, SPREAD_BYTES), memoryview(b""))
    return append_by_key(logs, lines, form, unkeyed, now_ms)


def append_pieces(
    log: PartitionLog, pieces: Iterator[Buffer], form: LineForm, now_ms: int
) -> Lines:
    """Append complete lines that come piece by piece; see ``append_lines``.

    Args:
        log: The partition.
        pieces: They are asked for in another thread; each is valid until the next is asked for.
        form: What they are.
        now_ms: Timestamp of records whose lines give none.
    """
    writer = EncodedWriter(log, form, now_ms)
    ahead = _Ahead(writer, pieces, log.log_end_offset)
    pool = ThreadPoolExecutor(1)
    try:
        coming: list[Future[Encoded | None]] = [pool.submit(ahead.next) for _ in range(_AHEAD)]
        while writer.refusal is None and (encoded := coming.pop(0).result()) is not None:
            coming.append(pool.submit(ahead.next))
            ahead.shift = log.log_end_offset - writer.records
            writer.write(encoded)
    except (OSError, LogfsError) as error:
        writer.refuse(error)
    finally:
        pool.shutdown(cancel_futures=True)  # it reads what the caller may close once this ends
    return writer.lines()


class _Ahead:
    """Makes batches of pieces before it is known for certain which offsets they will have.

    Attributes:
        shift: The offset of a record is this and how many of these lines are before it, if nobody
            else appends. Whoever writes keeps it right.
    """

    def __init__(self, writer: EncodedWriter, pieces: Iterator[Buffer], shift: int) -> None:
        self._writer = writer
        self._pieces = pieces
        self._records = 0
        self._is_over = False
        self.shift = shift

    def next(self) -> Encoded | None:
        """Encode the next piece; None if there is none, or a line before it was refused."""
        piece = None if self._is_over else next(self._pieces, None)
        if piece is None:
            return None
        encoded = self._writer.encode(piece, self.shift + self._records)
        self._is_over = encoded.refusal is not None
        if encoded.batches:
            first, last = encoded.batches[0], encoded.batches[-1]
            self._records += last.last_offset - first.base_offset + 1
        return encoded
