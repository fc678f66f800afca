"""Appending the lines of files and stdin to a partition, or to the partitions of a topic.

The daemon reads regular files itself. Pipes, and file systems that only this process may wait for,
are read here. A pipe is read without waiting to fill a chunk, so that lines of a slow program are
appended at once.
"""

import io
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from logfs.cli.failures import AboutError
from logfs.cli.terminal.interrupts import Interrupts
from logfs.disk.lines import whole_lines, widen_pipe
from logfs.errors import RecordTooLargeError, UnknownNameError, UnparsableLineError
from logfs.library.writer import Writer
from logfs.log.lines.form import AppendedLines, Lines, LineTarget
from logfs.records.compression import Buffer

STDIN = "-"


class LineAppender:
    """Appends lines to a target."""

    chunk_bytes = 4 << 20
    """How many bytes of lines are best appended at once."""

    def __init__(self, writer: Writer, target: LineTarget) -> None:
        self._writer, self._target = writer, target

    def can_read(self, descriptor: int) -> bool:
        """Return whether ``append_file`` can read a regular file."""
        return self._writer.can_read(descriptor)

    def append(self, lines: Buffer, *, unkeyed: int) -> Lines:
        """Append whole lines; see ``logfs.log.lines.append``."""
        return self._writer.append_lines(self._target._replace(unkeyed=unkeyed), lines)

    def append_file(self, descriptor: int, position: int, *, unkeyed: int) -> Lines:
        """Append some lines of a regular file; see ``logfs.log.lines.pipelined``."""
        target = self._target._replace(unkeyed=unkeyed)
        return self._writer.append_file(target, (descriptor, position))

    def flush(self) -> None:
        """Make all earlier appends durable."""
        self._writer.append_lines(self._target, b"", is_durable=True)


Step = Callable[[int], Lines]
"""Appends the next lines; its argument is the ``unkeyed`` of ``LineAppender``."""


def check_files(names: Sequence[str]) -> int | None:
    """Check that all files can be read; return the size of all together, None if it is unknown.

    Raises:
        OSError: One does not exist or cannot be read.
        UnknownNameError: One is a directory, or stdin is closed.
    """
    total: int | None = 0
    for name in names:
        with _open(name) as file:
            status = os.stat(f"/dev/fd/{file.fileno()}")
        is_regular = stat.S_ISREG(status.st_mode) and name != STDIN
        total = total + status.st_size if total is not None and is_regular else None
    return total


def appending_steps(name: str, appender: LineAppender, *, in_chunks: bool) -> Iterator[Step]:
    """Yield steps that append the lines of a file. Run each before asking for the next.

    Args:
        in_chunks: Limit each step to ``chunk_bytes``, which takes longer.

    Raises:
        UnparsableLineError: A line is longer than ``logfs.disk.lines.MAX_LINE_BYTES``.
    """
    with _open(name) as file:
        is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        if in_chunks or not is_regular or not appender.can_read(file.fileno()):
            buffer = bytearray(appender.chunk_bytes)
            for lines in whole_lines(file.readinto, buffer, partial(_has_more, file)):
                yield partial(_append, appender, lines)
            return
        position, is_over = file.tell(), False

        def take(unkeyed: int) -> Lines:
            nonlocal position, is_over
            done = appender.append_file(file.fileno(), position, unkeyed=unkeyed)
            position += done.accepted
            is_over = not done.accepted
            return done

        while not is_over:
            yield take
        # As a read would do: other programs may have the same stdin.
        file.seek(min(position, file.seek(0, io.SEEK_END)))


def _append(appender: LineAppender, lines: Buffer, unkeyed: int) -> Lines:
    return appender.append(lines, unkeyed=unkeyed)


def label_of(name: str) -> str:
    """Return the name of a file for messages."""
    return "stdin" if name == STDIN else name


def _open(name: str) -> io.FileIO:
    if name != STDIN:
        if os.path.isdir(name):
            raise UnknownNameError(f"{name}: a directory; expected a file with lines")
        return io.FileIO(name)
    if sys.__stdin__ is None:
        raise UnknownNameError("stdin is closed; give it something to read, or name a FILE")
    widen_pipe(0)
    return io.FileIO(0, closefd=False)


def _has_more(file: io.FileIO) -> bool:
    """Return whether a read would return at once; always so for a regular file."""
    return bool(select.select([file], [], [], 0)[0])


AT_THE_END = 2**63 - 1
"""More records than a log can have: a flush after so many records is one at the end."""


@dataclass(slots=True)
class Summary:
    """The records that have been appended.

    Attributes:
        bytes: The size of their lines, newlines included.
        partitions: Rows by partition; other writers' records may have offsets between.
        last_line: The last line in the log, for people; empty if it is unknown.
    """

    records: int = 0
    bytes: int = 0
    partitions: dict[int, AppendedLines] = field(default_factory=dict)
    last_line: str = ""

    def add(self, lines: Lines) -> None:
        """Add the result of a call."""
        self.records += lines.records
        self.bytes += lines.accepted
        for row in lines.appended:
            before = self.partitions.get(row.partition)
            if before is not None:
                row = row._replace(
                    records=before.records + row.records, base_offset=before.base_offset
                )
            self.partitions[row.partition] = row


def append_files(
    files: Sequence[str],
    appender: LineAppender,
    summary: Summary,
    interrupts: Interrupts,
    report: Callable[[Summary], None],
    flush_every: int | None,
) -> None:
    """Append the lines of files.

    Args:
        summary: Gets what is in the log, at any moment.
        interrupts: Delays Ctrl-C while lines are appended.
        report: Called with the summary after each chunk.
        flush_every: Flush after so many records, and at the end; None: no flush. With
            ``AT_THE_END``, flush at the end alone.

    Raises:
        AboutError: A line was refused; all before it are in the log.
        LogfsError: Lines could not be appended.
        KeyboardInterrupt: Whole lines are in the log; lines read after them are not.
        OSError: A file could not be read, or lines not be appended.
    """
    flushed, turn = 0, 0
    in_chunks = flush_every is not None and flush_every < AT_THE_END
    for name in files:
        label, line = label_of(name), 1
        for append in appending_steps(name, appender, in_chunks=in_chunks):
            with interrupts.held():
                done = append(turn)
                turn += 1
                summary.add(done)
                if done.accepted:
                    summary.last_line = f"line {line + done.records - 1} of {label}"
                if isinstance(done.refusal, RecordTooLargeError | UnparsableLineError):
                    raise _refused(done.refusal, label, line, done.records)
                if done.refusal is not None:
                    raise done.refusal
                line += done.records
                if flush_every is not None and summary.records - flushed >= flush_every:
                    appender.flush()
                    flushed = summary.records
            report(summary)
    if flush_every is not None:
        with interrupts.held():
            appender.flush()


def _refused(
    error: RecordTooLargeError | UnparsableLineError, name: str, line: int, done: int
) -> AboutError:
    """Return the error of a refused line, with its number in its file.

    Args:
        error: Its text names the line of the chunk.
        line: Number of the chunk's first line.
        done: Lines of the chunk that are in the log.
    """
    text = str(error).removeprefix(f"line {done + 1}: ")
    error.args = (text,)
    return AboutError(f"{name}, line {line + done}", error)
