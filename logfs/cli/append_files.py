"""Appending the lines of files and stdin to a partition, or to the partitions of a topic.

``Target`` is where they go: the daemon, the store that this process owns (``store_target``), or
files below a mount (``mount_target``).

The target reads regular files itself. Pipes, and file systems that only this process may wait for,
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
from pathlib import Path
from typing import Protocol

from logfs.cli.failures import AboutError
from logfs.cli.terminal.interrupts import Interrupts
from logfs.client import Daemon
from logfs.disk.lines import whole_lines
from logfs.disk.pipes import widen_pipe
from logfs.errors import RecordTooLargeError, UnknownNameError, UnparsableLineError
from logfs.log.lines.form import AppendedLines, LineForm, Lines
from logfs.machine.mountpoints import is_local
from logfs.records.compression import Buffer

STDIN = "-"


class Target(Protocol):
    """Where lines go.

    Attributes:
        chunk_bytes: How many of them at once, if they are read here.
    """

    chunk_bytes: int

    def can_read(self, descriptor: int) -> bool:
        """Tell whether it takes lines out of a regular file itself."""
        ...

    def append(self, lines: Buffer, *, unkeyed: int) -> Lines:
        """Append whole lines; see ``logfs.log.lines.append``."""
        ...

    def append_file(self, descriptor: int, position: int, *, unkeyed: int) -> Lines:
        """Append some lines of a regular file; see ``logfs.log.lines.pipelined``."""
        ...

    def flush(self) -> None:
        """Return once everything appended so far is durable."""
        ...


Step = Callable[[int], Lines]
"""Appends the next lines; takes the ``unkeyed`` of ``Target``."""


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


def appending_steps(name: str, target: Target, *, in_chunks: bool) -> Iterator[Step]:
    """Append the lines of a file step by step; each has to be taken before the next is asked for.

    Args:
        name: Of the file.
        target: Where they go.
        in_chunks: No step is larger than the target's ``chunk_bytes``, though that takes longer.

    Raises:
        OSError: The file cannot be read.
        UnparsableLineError: A line is longer than ``logfs.disk.lines.MAX_LINE_BYTES``.
    """
    with _open(name) as file:
        is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        if in_chunks or not is_regular or not target.can_read(file.fileno()):
            buffer = bytearray(target.chunk_bytes)
            for lines in whole_lines(file.readinto, buffer, partial(_has_more, file)):
                yield partial(_append, target, lines)
            return
        position, is_over = file.tell(), False

        def take(unkeyed: int) -> Lines:
            nonlocal position, is_over
            done = target.append_file(file.fileno(), position, unkeyed=unkeyed)
            position += done.accepted
            is_over = not done.accepted
            return done

        while not is_over:
            yield take
        # As if it had been read: it may be the stdin of others too.
        file.seek(min(position, file.seek(0, io.SEEK_END)))


def _append(target: Target, lines: Buffer, unkeyed: int) -> Lines:
    return target.append(lines, unkeyed=unkeyed)


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


def _has_more(file: io.FileIO) -> bool:
    """Tell whether a read would return at once; of a regular file it always does."""
    return bool(select.select([file], [], [], 0)[0])


AT_THE_END = 2**63 - 1
"""So many records never come: a flush that is due after them is due at the end."""


class DaemonTarget:
    """Partitions of the daemon's."""

    chunk_bytes = 4 << 20

    def __init__(self, daemon: Daemon, topic: str, partition: int | None, form: LineForm) -> None:
        self._daemon = daemon
        self._place = (topic, partition)
        self._form = form

    def append(self, lines: Buffer, *, unkeyed: int) -> Lines:
        """See ``Target``."""
        return self._daemon.append_lines(self._place, lines, self._form, unkeyed=unkeyed)

    def append_file(self, descriptor: int, position: int, *, unkeyed: int) -> Lines:
        """See ``Target``."""
        file = (descriptor, position)
        return self._daemon.append_file(self._place, file, self._form, unkeyed=unkeyed)

    def can_read(self, descriptor: int) -> bool:
        """See ``Target``; the daemon shall wait for no other program or machine."""
        return is_local(descriptor)

    def flush(self) -> None:
        """See ``Target``."""
        self._daemon.append_lines(self._place, b"", self._form, is_durable=True)


@dataclass(slots=True)
class Summary:
    """What has been appended.

    Attributes:
        records: How many.
        bytes: Their lines, newlines included.
        partitions: By number; offsets of other writers may lie in between.
        last_line: Up to where all lines are in the log, for people; empty if that is not known.
    """

    records: int = 0
    bytes: int = 0
    partitions: dict[int, AppendedLines] = field(default_factory=dict)
    last_line: str = ""

    def add(self, lines: Lines) -> None:
        """Count what became of the lines of a call."""
        self.records += lines.records
        self.bytes += lines.accepted
        for row in lines.appended:
            before = self.partitions.get(row.partition)
            if before is not None:
                row = row._replace(
                    records=before.records + row.records, base_offset=before.base_offset
                )
            self.partitions[row.partition] = row


Told = Callable[[Summary], None]


def append_files(
    files: Sequence[str],
    target: Target,
    summary: Summary,
    interrupts: Interrupts,
    told: Told,
    flush_every: int | None,
) -> None:
    """Append the lines of files.

    Args:
        files: Their names.
        target: Where lines go.
        summary: Says at any moment what is in the log.
        interrupts: Held back while lines are being appended.
        told: Called after each chunk.
        flush_every: Records after which a flush is due, and one at the end; None: none. With
            ``AT_THE_END`` there is only that one.

    Raises:
        AboutError: A line was refused; all before it are in the log.
        LogfsError: Lines could not be appended.
        KeyboardInterrupt: Whole lines are in the log, what was read after them is not.
        OSError: A file could not be read, or lines not be appended.
    """
    flushed, turn = 0, 0
    in_chunks = flush_every is not None and flush_every < AT_THE_END
    for name in files:
        label, line = label_of(name), 1
        for append in appending_steps(name, target, in_chunks=in_chunks):
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
                    target.flush()
                    flushed = summary.records
            told(summary)
    if flush_every is not None:
        with interrupts.held():
            target.flush()


def _refused(
    error: RecordTooLargeError | UnparsableLineError, name: str, line: int, done: int
) -> AboutError:
    """Return the error about a line that was refused, by its number in its file.

    Args:
        error: Says which line of its chunk it is.
        name: The file.
        line: Number of the chunk's first line.
        done: Lines of the chunk that are in the log.
    """
    text = str(error).removeprefix(f"line {done + 1}: ")
    error.args = (text,)
    return AboutError(f"{name}, line {line + done}", error)
