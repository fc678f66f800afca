"""Many whole lines at once, for whoever has them as bytes and no open file: ``logfs append``.

A line is a record, as in ``lines``; here no line is ever unfinished, keys may stand in front of a
delimiter, every record may get headers, and the lines of a topic can be spread over its partitions
by their keys, as Kafka's default partitioner does it.
"""

from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from logfs.errors import LogfsError
from logfs.log.partition import PartitionLog
from logfs.records._native import encode_lines, spread_lines
from logfs.records.compression import Buffer, Compression
from logfs.records.encoded import Encoded, EncodeOptions
from logfs.records.record import Header
from logfs.types import View

PIECE_BYTES = 4 << 20
"""What becomes batches at once, ahead of being written: four of them by default, and some more."""
_NEAR_BYTES = 1 << 16


class LineForm(NamedTuple):
    """What the lines are, and what every record of them gets.

    Attributes:
        view: The rendering they are written in.
        key_delimiter: In text, what stands between key and value; empty: text has no keys.
        headers: They go behind those of the line.
    """

    view: View = View.TEXT
    key_delimiter: bytes = b""
    headers: tuple[Header, ...] = ()

    def options(self, log: PartitionLog) -> EncodeOptions:
        """Return how the lines become batches of a partition."""
        return replace(log.encode_options(), key_delimiter=self.key_delimiter, headers=self.headers)


class AppendedLines(NamedTuple):
    """Lines of a call that are in a partition now.

    Attributes:
        partition: Its number.
        records: How many; at least one.
        base_offset: Of the first of them.
        last_offset: Of the last, inclusive.
    """

    partition: int
    records: int
    base_offset: int
    last_offset: int


class Lines(NamedTuple):
    """What became of the lines of a call.

    Attributes:
        appended: A row of each partition that got some.
        accepted: Bytes up to where all lines are in the log. 0 after a failure while lines were
            spread over partitions: it is not known then which of them are missing.
        refusal: Why the others are not; None if all are.
    """

    appended: list[AppendedLines]
    accepted: int
    refusal: Exception | None

    @property
    def records(self) -> int:
        """Records that are in the log."""
        return sum(row.records for row in self.appended)


def append_lines(
    log: PartitionLog,
    data: Buffer,
    form: LineForm,
    now_ms: int,
    ahead: ThreadPoolExecutor | None = None,
) -> Lines:
    """Append complete lines to a partition, up to the first one that is refused.

    Readers see them when this returns, and a kill of the process loses nothing.

    Args:
        log: The partition.
        data: The lines; the last byte is a LF, or there is none.
        form: What they are.
        now_ms: Timestamp of records whose lines give none.
        ahead: Where lines become batches while those before them are written.

    Returns:
        What became of them; a refusal names its line by its number in ``data``, from 1.

    Raises:
        LogOfflineError, DeletedError, ReadOnlyError, OSError: Nothing was appended.
    """
    with log.exclusive():
        base_offset, accepted = log.log_end_offset, 0
        refusal: Exception | None = None
        with closing(_encoded_pieces(log, data, form, now_ms, ahead)) as pieces:
            for encoded in pieces:
                done, refusal = 0, encoded.refusal
                while done < len(encoded.batches):
                    try:
                        # Fewer than all: the disk filled up; the rest says so.
                        done += log.append(encoded.batches[done:], now_ms)
                    except (OSError, LogfsError) as error:
                        if log.log_end_offset == base_offset:
                            raise
                        refusal = error
                        break
                    accepted = encoded.ends[done - 1]
                if refusal is not None:
                    break
        records = log.log_end_offset - base_offset
    number = log.topic_partition.partition
    row = AppendedLines(number, records, base_offset, base_offset + records - 1)
    return Lines([row] if records else [], accepted, refusal)


def _encoded_pieces(
    log: PartitionLog,
    data: Buffer,
    form: LineForm,
    now_ms: int,
    ahead: ThreadPoolExecutor | None,
) -> Generator[Encoded]:
    """Encode lines for where the log ends; with ``ahead`` piece by piece, one before it is wanted.

    Ends count in ``data``, and so does the number of a line that is refused.
    """
    base_offset, options = log.log_end_offset, form.options(log)

    def encode(start: int, stop: int, offset: int) -> Encoded:
        return encode_lines(form.view, b"", data, start, stop, offset, now_ms, options)

    size = memoryview(data).nbytes
    if ahead is None:
        yield encode(0, size, base_offset)
        return
    offset, pieces = base_offset, _pieces(data, size)
    coming: Future[Encoded] | None = ahead.submit(encode, *pieces[0], offset)
    try:
        for number in range(1, len(pieces) + 1):
            if coming is None:
                return
            encoded, coming = coming.result(), None
            first, offset = (
                offset,
                encoded.batches[-1].last_offset + 1 if encoded.batches else offset,
            )
            if encoded.refusal is not None:
                _renumber(encoded.refusal, offset - first, offset - base_offset)
            elif number < len(pieces):
                coming = ahead.submit(encode, *pieces[number], offset)
            yield encoded
    finally:
        if coming is not None:
            wait([coming])  # it reads what the caller may change once this ends


def _pieces(data: Buffer, size: int) -> list[tuple[int, int]]:
    """Cut lines into pieces of about ``PIECE_BYTES``, at newlines."""
    view, pieces, start = memoryview(data), [], 0
    while start + PIECE_BYTES < size:
        end = start + PIECE_BYTES
        newline = bytes(view[max(start, end - _NEAR_BYTES) : end]).rfind(b"\n")
        if newline < 0:
            break
        stop = max(start, end - _NEAR_BYTES) + newline + 1
        pieces.append((start, stop))
        start = stop
    return [*pieces, (start, size)]


def _renumber(refusal: LogfsError, in_piece: int, in_data: int) -> None:
    """Let a refusal name its line by its number in all the data."""
    text = str(refusal).removeprefix(f"line {in_piece + 1}: ")
    refusal.args = (f"line {in_data + 1}: {text}",)


def append_by_key(
    logs: Sequence[PartitionLog], data: Buffer, form: LineForm, unkeyed: int, now_ms: int
) -> Lines:
    """Append complete lines to the partitions to which their keys belong.

    Args:
        logs: All partitions of a topic, by number.
        data: See ``append_lines``, as for the others.
        form: What the lines are.
        unkeyed: Lines without a key go, as long as this number stays the same, to the same one.
        now_ms: Timestamp of records whose lines give none.

    Raises:
        LogOfflineError, DeletedError, ReadOnlyError, OSError: Nothing was appended.

    Source: Kafka BuiltInPartitioner.
    """
    size = memoryview(data).nbytes
    options = replace(form.options(logs[0]), compression=Compression.NONE)
    # A trial, so that nothing behind a line that is refused gets in.
    tried = encode_lines(form.view, b"", data, 0, size, 0, now_ms, options)
    stop = tried.ends[-1] if tried.ends else 0
    place = unkeyed % len(logs)
    parts = spread_lines(form.view, form.key_delimiter, data, 0, stop, len(logs), place)
    rows: list[AppendedLines] = []
    for log, part in zip(logs, parts, strict=True):
        if not part:
            continue
        try:
            lines = append_lines(log, part, form, now_ms)
        except (OSError, LogfsError) as error:
            if not rows:
                raise
            return Lines(rows, 0, error)
        rows += lines.appended
        if lines.refusal is not None:
            return Lines(rows, 0, lines.refusal)
    return Lines(rows, stop, tried.refusal)
