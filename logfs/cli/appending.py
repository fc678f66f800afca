"""What ``logfs append`` does: lines from files to a partition, or to the partitions of a topic.

They go to the store, which this process has opened under its lock (``storing``), or to the daemon
that owns it; ``Target`` is the difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from logfs.cli.failures import AboutError
from logfs.cli.lines import Target, appending_steps, label_of
from logfs.cli.terminal.interrupts import Interrupts
from logfs.client import Daemon
from logfs.errors import RecordTooLargeError, UnparsableLineError
from logfs.log.writing.lineform import AppendedLines, LineForm, Lines
from logfs.machine.mountpoints import is_local
from logfs.records.compression import Buffer

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
