"""Appending many whole lines at once, without an open file: ``logfs append``.

A line is a record, as in ``lines``; here no line is ever unfinished, keys may be before a
delimiter, every record may get headers, and the lines of a topic can be spread over its partitions
by their keys, as Kafka's default partitioner does it.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from logfs.errors import LogfsError, RecordTooLargeError, UnparsableLineError
from logfs.log.lines.form import AppendedLines, LineForm, Lines
from logfs.log.lines.notes import AppendNotes
from logfs.log.partition import PartitionLog
from logfs.records._encoding import encode_lines, partition_lines
from logfs.records.compression import Buffer, Compression
from logfs.records.encoded import Encoded, EncodedBatch

_NUMBER = re.compile(r"^(line|record) \d+: ")


def append_lines(
    log: PartitionLog,
    data: Buffer,
    form: LineForm,
    now_ms: int,
    notes: AppendNotes | None = None,
) -> Lines:
    """Append complete lines to a partition, up to the first one that is refused.

    Readers see them when this returns, and a kill of the process loses nothing.

    Args:
        data: The lines; the last byte is a LF, or there is none.
        now_ms: Timestamp of records whose lines give none.
        notes: The notes of the request; the lines that it has appended already are not appended
            again.

    Returns:
        What became of them; a refusal names its line by its number in ``data``, from 1.

    Raises:
        LogOfflineError, DeletedError, ReadOnlyError, OSError: Nothing was appended.
    """
    writing = EncodedWriter(log, form, now_ms, notes)
    with log.exclusive():
        rest = writing.skip(data)
        writing.write(writing.encode(rest, log.log_end_offset))
    return writing.lines()


class EncodedWriter:
    """Writes lines that have become batches, piece by piece, and knows what became of them all.

    Attributes:
        refusal: Why the next ones are not; nothing may be written any more then.
    """

    def __init__(
        self, log: PartitionLog, form: LineForm, now_ms: int, notes: AppendNotes | None = None
    ) -> None:
        self._log = log
        self._notes = notes
        self._form = form
        self._now_ms = now_ms
        self._options = form.options(log.encode_options())
        self._offsets: tuple[int, int] | None = None
        self._accepted = 0
        self.records = 0
        self.refusal: Exception | None = None
        if notes is not None:
            self.records, first = notes.applied(log)
            self._offsets = (first, first + self.records - 1) if self.records else None

    def skip(self, data: Buffer) -> Buffer:
        """Return the lines after those that were appended before."""
        if not self.records:
            return data
        whole = bytes(data)
        for _ in range(self.records):
            self._accepted = whole.index(b"\n", self._accepted) + 1
        return whole[self._accepted :]

    def note_skipped(self, size_bytes: int) -> None:
        """Note how long the lines are that were appended before."""
        self._accepted = size_bytes

    def encode(self, data: Buffer, base_offset: int) -> Encoded:
        """Make batches of a piece; any thread."""
        size = memoryview(data).nbytes
        return encode_lines(
            self._form.view, b"", data, 0, size, base_offset, self._now_ms, self._options
        )

    def write(self, encoded: Encoded) -> None:
        """Append the batches of the next piece; what goes wrong is kept for ``lines``."""
        done, ends, before = 0, encoded.ends, self._accepted
        try:
            while done < len(encoded.batches):
                # Fewer than all: the disk filled up; the rest says so.
                done += self._append(encoded.batches[done:])
                self._accepted = before + ends[done - 1]
        except (OSError, LogfsError) as error:
            self.refuse(error)
            return
        if encoded.refusal is not None:
            self.refuse(encoded.refusal)

    def refuse(self, error: Exception) -> None:
        """Note why no more lines get in."""
        if _is_about_a_line(error):
            text = _NUMBER.sub("", str(error))
            error.args = (f"line {self.records + 1}: {text}",)
        self.refusal = error

    def lines(self) -> Lines:
        """Return what became of all pieces.

        Raises:
            LogOfflineError, DeletedError, ReadOnlyError, OSError: Nothing was appended.
        """
        if self._offsets is None:
            if self.refusal is not None and not _is_about_a_line(self.refusal):
                raise self.refusal
            return Lines([], self._accepted, self.refusal)
        row = AppendedLines(self._log.topic_partition.partition, self.records, *self._offsets)
        return Lines([row], self._accepted, self.refusal)

    def _append(self, batches: Sequence[EncodedBatch]) -> int:
        """Append batches where the log ends; returns how many were, at least one."""
        log, notes = self._log, self._notes
        with log.exclusive():
            log.state.adopt_waiting()
            if log.config.has_quota:
                log.state.admit(sum(len(batch.data) for batch in batches))
            if notes is not None:
                notes.begin_append(log, self.records)
            base_offset = log.log_end_offset
            options = self._form.options(log.encode_options())
            if batches[0].base_offset == base_offset and options == self._options:
                done = log.append(batches, self._now_ms)
            else:  # others have appended, or the topic was altered, since they were made
                log.appender.append_encoded(batches[0].data, self._now_ms)
                done = 1
            if notes is not None:
                notes.end_append(log)
            last_offset = log.log_end_offset - 1
        self.records += last_offset - base_offset + 1
        first = base_offset if self._offsets is None else self._offsets[0]
        self._offsets = (first, last_offset)
        return done


def _is_about_a_line(error: Exception) -> bool:
    return isinstance(error, RecordTooLargeError | UnparsableLineError)


def append_by_key(
    logs: Sequence[PartitionLog],
    data: Buffer,
    form: LineForm,
    unkeyed: int,
    now_ms: int,
    notes: AppendNotes | None = None,
) -> Lines:
    """Append complete lines to the partitions to which their keys belong.

    Args:
        logs: All partitions of a topic, by number.
        unkeyed: Lines without a key go, as long as this number stays the same, to the same one.
        now_ms: Timestamp of records whose lines give none.

    Raises:
        LogOfflineError, DeletedError, ReadOnlyError, OSError: Nothing was appended.

    Source: Kafka BuiltInPartitioner.
    """
    size = memoryview(data).nbytes
    options = replace(form.options(logs[0].encode_options()), compression=Compression.NONE)
    # A trial, so that no line after a refused one is appended.
    tried = encode_lines(form.view, b"", data, 0, size, 0, now_ms, options)
    stop = tried.ends[-1] if tried.ends else 0
    place = unkeyed % len(logs)
    parts = partition_lines(form.view, form.key_delimiter, data, 0, stop, len(logs), place)
    rows: list[AppendedLines] = []
    for log, part in zip(logs, parts, strict=True):
        if not part:
            continue
        try:
            lines = append_lines(log, part, form, now_ms, notes)
        except (OSError, LogfsError) as error:
            if not rows:
                raise
            return Lines(rows, 0, error)
        rows += lines.appended
        if lines.refusal is not None:
            return Lines(rows, 0, lines.refusal)
    return Lines(rows, stop, tried.refusal)
