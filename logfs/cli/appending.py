"""What ``logfs append`` does: lines from files to a partition, or to the partitions of a topic.

They go to the store, which this process has opened under its lock, or to the daemon that owns it;
``Target`` is the difference.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from logfs.cli.failures import AboutError
from logfs.cli.lines import Target, appending_steps, label_of
from logfs.cli.terminal.interrupts import Interrupts
from logfs.client import Daemon
from logfs.errors import RecordTooLargeError, UnparsableLineError
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.log.writing.bulk import AppendedLines, LineForm, Lines, append_by_key, append_lines
from logfs.log.writing.feeding import append_file, append_file_by_key
from logfs.machine.host import system_clock
from logfs.machine.mountpoints import is_local
from logfs.records.compression import Buffer

FLUSH_AHEAD_BYTES = 64 << 20
"""So much is left to be flushed at the end, while everything before it was on its way already."""

AT_THE_END = 2**63 - 1
"""So many records never come: a flush that is due after them is due at the end."""

FLUSH_RARELY_BYTES = 16 << 30
"""A segment that was sealed stays open until a flush; so much is left without one."""


class StoreTarget:
    """Partitions of a store that this process owns.

    If they are to be durable at the end, they are flushed meanwhile, beside the appends, so that
    the end does not take long.
    """

    chunk_bytes = 4 << 20

    def __init__(
        self,
        store: LogStore,
        topic: str,
        partition: int | None,
        form: LineForm,
        *,
        is_durable: bool,
    ) -> None:
        self._form = form
        self._flush_ahead_bytes = FLUSH_AHEAD_BYTES if is_durable else FLUSH_RARELY_BYTES
        self._is_spread = partition is None
        self._now_ms = system_clock().now_ms
        if partition is None:
            self._logs = [store.partition(topic, number) for number in store.partitions(topic)]
        else:
            self._logs = [store.partition(topic, partition)]
        self._unflushed = 0
        self._pool = ThreadPoolExecutor(1)
        self._flushing: Future[None] | None = None

    def append(self, lines: Buffer, *, unkeyed: int) -> Lines:
        """See ``Target``."""
        if self._is_spread:
            done = append_by_key(self._logs, lines, self._form, unkeyed, self._now_ms())
        else:
            done = append_lines(self._logs[0], lines, self._form, self._now_ms())
        return self._flushed_meanwhile(done)

    def append_file(self, descriptor: int, position: int, *, unkeyed: int) -> Lines:
        """See ``Target``."""
        file, now_ms = (descriptor, position, self._form), self._now_ms()
        if self._is_spread:
            return self._flushed_meanwhile(append_file_by_key(self._logs, *file, unkeyed, now_ms))
        return self._flushed_meanwhile(append_file(self._logs[0], *file, now_ms))

    def can_read(self, descriptor: int) -> bool:
        """See ``Target``; it is this process that waits for the file."""
        return True

    def _flushed_meanwhile(self, done: Lines) -> Lines:
        self._unflushed += done.accepted
        if self._unflushed >= self._flush_ahead_bytes and (
            self._flushing is None or self._flushing.done()
        ):
            self._unflushed = 0
            self._flushing = self._pool.submit(_flush, self._logs)
        return done

    def flush(self) -> None:
        """See ``Target``."""
        _flush(self._logs)

    def close(self) -> None:
        """Wait for what is being flushed; its errors are met again when the store is closed."""
        self._pool.shutdown()


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
        KeyboardInterrupt: Whole lines are in the log, what was read behind them is not.
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
    if isinstance(error, RecordTooLargeError):
        text += f"; 'logfs topic alter --config max.message.bytes={error.size_bytes}' lets it in"
    error.args = (text,)
    return AboutError(f"{name}, line {line + done}", error)


def _flush(logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        log.flush()
