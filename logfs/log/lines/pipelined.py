"""Lines of a regular file into the log: a piece is read and encoded while another one is written.

Two threads take turns, and what one has read it encodes and writes itself: a piece is about as
large as a batch, so it stays in the cache of one processor. Had one thread encoded what the other
one writes, each would wait for the cache of the other, which costs more than the rest together.

Only a write takes the lock of the partition, so a file on a slow disk delays no other writer; what
others append meanwhile is between two pieces.
"""

from collections.abc import Callable, Sequence
from threading import Lock

from logfs.disk.lines import lines_at
from logfs.errors import LogfsError
from logfs.log.lines.append import EncodedWriter, append_by_key
from logfs.log.lines.form import LineForm, Lines
from logfs.log.lines.notes import AppendNotes
from logfs.log.partition import PartitionLog
from logfs.records.compression import Buffer
from logfs.records.encoded import Encoded

STEP_BYTES = 64 << 20
"""About so much of a file is appended at once, then the caller can tell how far it is."""

SPREAD_BYTES = 16 << 20
"""The same where keys decide on the partition: all is looked at before any of it is written."""

_MIN_PIECE_BYTES = 1 << 16
_MAX_PIECE_BYTES = 4 << 20


def append_file(
    log: PartitionLog,
    descriptor: int,
    position: int,
    form: LineForm,
    now_ms: int,
    notes: AppendNotes | None = None,
) -> Lines:
    """Append some of the lines that a regular file has from a position on.

    Args:
        position: The position at which a line begins.
        now_ms: Timestamp of records whose lines give none.

    Returns:
        What became of them; the next start ``accepted`` bytes further. Nothing accepted and nothing
        refused: the file has no more.

    Raises:
        LogOfflineError, DeletedError, ReadOnlyError, OSError: Nothing was appended.
    """
    limit = log.encode_options().max_batch_bytes
    # Records are longer than lines: usual ones make one batch, and not a second one of the rest.
    size = max(_MIN_PIECE_BYTES, min(_MAX_PIECE_BYTES, limit * 7 // 8))
    end = position + _step_bytes(log, STEP_BYTES, size)
    writer = EncodedWriter(log, form, now_ms, notes)
    skipped = _lines_bytes(descriptor, position, writer.records)
    writer.note_skipped(skipped)
    position += skipped

    def read(buffer: bytearray) -> Buffer:
        nonlocal position
        lines = lines_at(descriptor, position, buffer) if position < end else memoryview(b"")
        position += len(lines)
        return lines

    return append_pieces(log, read, size, writer)


def append_file_by_key(  # noqa: PLR0913, PLR0917 - as ``append_lines``
    logs: Sequence[PartitionLog],
    descriptor: int,
    position: int,
    form: LineForm,
    unkeyed: int,
    now_ms: int,
    notes: AppendNotes | None = None,
) -> Lines:
    """Do the same with all partitions of a topic; see ``append_by_key``."""
    step = _step_bytes(logs[0], SPREAD_BYTES, _MAX_PIECE_BYTES)
    lines = lines_at(descriptor, position, bytearray(step))
    return append_by_key(logs, lines, form, unkeyed, now_ms, notes)


def _step_bytes(log: PartitionLog, usual: int, least: int) -> int:
    """Return how much is appended at once: where the topic has a rate, what a second allows."""
    rate = log.config.logfs_quota_producer_byte_rate
    return min(usual, max(rate, least)) if rate > 0 else usual


def append_pieces(
    log: PartitionLog,
    read: Callable[[bytearray], Buffer],
    size_bytes: int,
    writer: EncodedWriter,
) -> Lines:
    """Append complete lines that come piece by piece; see ``append_lines``.

    Args:
        read: Returns the next lines, none at the end; may put them into a buffer. Called in
            different threads, one at a time.
        size_bytes: The size of the buffer.
    """
    relay = _Relay(log, read, size_bytes, writer)
    from concurrent.futures import ThreadPoolExecutor  # rarely needed, and slow to import

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(relay.run)
        relay.run()
    other.result()
    return relay.writer.lines()


def _lines_bytes(descriptor: int, position: int, lines: int) -> int:
    """Return how long the first lines are of those that begin at a position of a file."""
    buffer, start = bytearray(_MAX_PIECE_BYTES if lines else 0), position
    while lines:
        piece = bytes(lines_at(descriptor, position, buffer))
        if not piece:
            break  # the file is another one by now
        found, at = min(lines, piece.count(b"\n")), 0
        for _ in range(found):
            at = piece.index(b"\n", at) + 1
        lines, position = lines - found, position + at
    return position - start


class _Relay:
    """Two threads in turn: one reads and encodes a piece while the other writes one."""

    def __init__(
        self,
        log: PartitionLog,
        read: Callable[[bytearray], Buffer],
        size_bytes: int,
        writer: EncodedWriter,
    ) -> None:
        self.writer = writer
        self._log = log
        self._read = read
        self._size_bytes = size_bytes
        self._encoding, self._writing = Lock(), Lock()
        self._is_over = False
        self._records = writer.records
        # The offset of a record is this and how many of these lines are before it, unless others
        # append before it is written.
        self._shift = log.log_end_offset - writer.records

    def run(self) -> None:
        """Take turns until there is nothing more, or something was refused."""
        buffer = bytearray(self._size_bytes)
        try:
            while True:
                with self._encoding:
                    encoded = self._encode_next(buffer)
                    if encoded is None:
                        return
                    self._writing.acquire()  # before the other thread encodes what comes after it
                try:
                    self._write(encoded)
                finally:
                    self._writing.release()
        finally:
            self._is_over = True

    def _encode_next(self, buffer: bytearray) -> Encoded | None:
        if self._is_over or self.writer.refusal is not None:
            return None
        try:
            lines = self._read(buffer)
        except (OSError, LogfsError) as error:
            with self._writing:
                if self.writer.refusal is None:
                    self.writer.refuse(error)
            return None
        if not memoryview(lines).nbytes:
            return None
        encoded = self.writer.encode(lines, self._shift + self._records)
        if encoded.batches:
            first, last = encoded.batches[0], encoded.batches[-1]
            self._records += last.last_offset - first.base_offset + 1
        self._is_over = encoded.refusal is not None
        return encoded

    def _write(self, encoded: Encoded) -> None:
        if self.writer.refusal is None:  # else lines before these are not in the log
            self._shift = self._log.log_end_offset - self.writer.records
            self.writer.write(encoded)
