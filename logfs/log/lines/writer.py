"""Lines in, records out: what one open file that writes does (one line is one record).

Complete lines are appended as they come, those of one call in as few batches as possible; the
bytes after the last newline wait in an ``UnfinishedFile``. A refused line leaves everything before
it appended and everything after it unaccepted, so a short count tells the writer where it is.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from logfs.disk.vfs import is_full
from logfs.errors import CorruptRecordError, LogfsError, RecordTooLargeError
from logfs.log import names
from logfs.log.lines.notes import Resumption
from logfs.log.partition import PartitionLog
from logfs.log.writing._end import NativeWriter, apply_in_order
from logfs.log.writing.unfinished import UnfinishedFile, UnfinishedLine, decode_unfinished
from logfs.records._encoding import encode_lines, unfinished_fits
from logfs.records.encoded import Encoded
from logfs.records.layout import crc_of
from logfs.types import View

logger = logging.getLogger(__name__)

_NEWLINE = b"\n"
_HEADERS_BYTES = 100
"""More than the headers of a batch and of the only record in it take."""

_NO_LINES = Encoded([], [], None)
NO_SLOT = 0
"""The slot of a write that nothing is noted of."""


class WriteNotes(Protocol):
    """The notes of one open file. The caller has the lock of the partition."""

    def begin(self, slot: int, data: bytes, log_end: int, unfinished: int) -> int:
        """Note that a write is about to be applied; returns how much of it is applied already.

        Args:
            slot: The place of the note, not ``NO_SLOT``.
            data: All bytes of the write.
            log_end: The log end offset.
            unfinished: Bytes of the unfinished line.
        """

    def applied(self, slot: int, data: bytes) -> int:
        """Return how many bytes of a write are applied."""

    def done(self, slot: int, accepted: int) -> None:
        """Note how many bytes of a write are applied, and that no more will be."""

    def keep(self, name: str) -> None:
        """Note the name of the file that the unfinished line is about to be in."""


class LineWriter:
    """One open file that appends lines to a partition. One user at a time.

    Args:
        log: The partition.
        view: The rendering the lines are written in.

    Attributes:
        log: The partition.
        native: Does the same in the thread, as far as it can.
        notes: Survive the process; None: nothing is noted.
    """

    def __init__(self, log: PartitionLog, view: View) -> None:
        self.log = log
        self._state = log.state
        self._view = view
        self._unfinished: UnfinishedFile | None = None
        self.native = NativeWriter(log.state.lock, view)
        self.notes: WriteNotes | None = None

    @property
    def unfinished(self) -> int:
        """Bytes of the unfinished line."""
        return 0 if self._unfinished is None else self._unfinished.line_bytes

    @property
    def has_file(self) -> bool:
        """Whether there is a file for an unfinished line, which ``close`` removes."""
        return self._unfinished is not None

    @property
    def is_all_records(self) -> bool:
        """Whether ``sync`` is a flush of the log, and nothing else."""
        return not self.unfinished

    def write(self, data: bytes, now_ms: int, slot: int = NO_SLOT) -> int:
        """Append the complete lines and keep the rest.

        When this returns, readers see the lines and a kill of the process loses nothing.

        Args:
            data: The bytes.
            now_ms: Timestamp of records whose lines give none.
            slot: The place of the note of this write.

        Returns:
            Bytes accepted: all of them, or those before a line that was refused or that the disk
            had no room for.

        Raises:
            RecordTooLargeError, UnparsableLineError: The first line is refused; nothing of this
                call was accepted.
            LogOfflineError, DeletedError, ReadOnlyError, OSError: Nothing was accepted.
        """
        with self._state.lock:
            if self._state.waiting_lines:
                self._state.adopt_waiting()
            if slot and self.notes is not None:
                return self._write_noted(self.notes, slot, data, now_ms)
            return self._write(data, now_ms)

    def sync(self) -> None:
        """Make everything written so far durable: the records and the unfinished line.

        Raises:
            LogOfflineError, DeletedError, OSError: See ``PartitionLog.flush``.
        """
        if self.log.is_deleted:
            self.log.check_writable()
        file = self._unfinished
        if file is not None and file.line_bytes:
            with self._state.offline_on_failure("fsync"):
                file.sync()
        self.log.flush()

    def close(self, now_ms: int) -> None:
        """End the file: its unfinished line becomes a record.

        A line that the view does not parse is set aside as a loss. If the disk is full, the line
        becomes a record as soon as there is room, before anything else is appended. If the disk
        fails, it becomes one when the partition is loaded the next time.
        """
        file, files = self._unfinished, self.log.line_files
        if file is None:
            return
        with self._state.lock:
            self.use(None)
            if not file.line_bytes:
                files.discard(file)
                return
            try:
                line = file.line()
                encoded = self._encode(line, _NEWLINE, 1, now_ms)
                if encoded.refusal is None:
                    write = _Write(self, file, encoded, b"", now_ms)
                    apply_in_order(write, continues=True, stop=1, size=1)
                else:
                    self.log.check_appendable()
                    set_aside(self.log, bytes(line), str(encoded.refusal), now_ms)
            except (OSError, LogfsError) as error:
                files.release(file)
                logger.warning("%s: an unfinished line of %d bytes waits: %s",
                               self.log.topic_partition, file.line_bytes, error)  # fmt: skip
                if is_full(error):
                    _wait_for_room(self.log, file.name.rpartition("/")[2], now_ms)
                return
            files.discard(file)

    def adopt(self, name: str, line: UnfinishedLine) -> None:
        """Take over the file of a writer that died.

        Raises:
            OSError: It cannot be written to; it waits.
        """
        file, files = self._new_file(name), self.log.line_files
        try:
            file.adopt(line)
        except OSError:
            files.note_void(file)
            files.release(file)
            raise
        self.use(file)

    def use(self, file: UnfinishedFile | None) -> None:
        """Continue with the file of an unfinished line, or without one. With the lock."""
        self._unfinished = file
        self.native.line = None if file is None else file.content

    def _write(self, data: bytes, now_ms: int) -> int:
        file, stop = self._unfinished, data.rfind(_NEWLINE) + 1
        encoded = _NO_LINES
        if stop:
            encoded = self._encode(b"" if file is None else file.line(), data, stop, now_ms)
            if not encoded.batches:
                if encoded.refusal is not None:
                    raise encoded.refusal
                return 0
            if self._state.config.has_quota:
                self._state.admit(sum(len(batch.data) for batch in encoded.batches))
        write = _Write(self, file, encoded, data[stop:] if stop else data, now_ms)
        return apply_in_order(write, continues=self.unfinished > 0, stop=stop, size=len(data))

    def _write_noted(self, notes: WriteNotes, slot: int, data: bytes, now_ms: int) -> int:
        """Apply what is not applied yet of a write.

        After a failure that takes the log offline the note stays: only the next loading of the log
        can tell what is in it.
        """
        state = self._state
        if state.offline is None:
            done = notes.begin(slot, data, state.snapshot.end.offset, self.unfinished)
        else:
            done = notes.applied(slot, data)
        try:
            if done < len(data):
                done += self._write(data[done:] if done else data, now_ms)
        except (OSError, LogfsError):
            if not done:
                if state.offline is None:
                    notes.done(slot, 0)
                raise
        if state.offline is None:
            notes.done(slot, done)
        return done

    def _new_file(self, name: str) -> UnfinishedFile:
        file = UnfinishedFile(self.log.disk, self.log.directory, name, self._view)
        self.log.line_files.add(file)
        return file

    def _encode(self, head: bytes | bytearray, body: bytes, stop: int, now_ms: int) -> Encoded:
        state = self._state
        return encode_lines(
            self._view, head, body, 0, stop, state.snapshot.end.offset, now_ms, state.options
        )

    def keep(self, data: bytes) -> None:
        """Add bytes to the unfinished line. With the lock.

        Raises:
            RecordTooLargeError: The line is too long.
            LogOfflineError, DeletedError, ReadOnlyError, OSError: See ``write``.
        """
        log, file = self.log, self._unfinished
        log.check_appendable()
        if log.config.has_quota:
            log.state.admit(len(data))
        options = log.encode_options()
        length = len(data) + self.unfinished
        if not unfinished_fits(self._view, length, options):
            raise RecordTooLargeError(
                f"{log.topic_partition}: a line of {length} bytes and more does not fit "
                f"max.message.bytes={options.max_batch_bytes}",
                length + _HEADERS_BYTES,
                options.max_batch_bytes,
            )
        if file is None:
            name = log.new_unfinished_name()
            if self.notes is not None:
                self.notes.keep(name)
            file = self._new_file(name)
            self.use(file)
        try:
            with log.state.offline_on_failure("write", but_not_full=True):
                file.keep(data)
        except OSError:
            log.line_files.note_void(file)
            raise


@dataclass(slots=True)
class _Write:
    """One write of a ``LineWriter``: the steps that ``apply_in_order`` calls."""

    writer: LineWriter
    file: UnfinishedFile | None
    encoded: Encoded
    rest: bytes
    now_ms: int

    def announce(self) -> None:
        log, first = self.writer.log, self.encoded.batches[0]
        log.check_appendable()
        with log.state.offline_on_failure("write", but_not_full=True):
            self._line.announce(first.base_offset, crc_of(first.data))
        log.line_files.announced(self._line)

    def append(self) -> int:
        return self.encoded.ends[self.writer.log.append(self.encoded.batches, self.now_ms) - 1]

    def cancel(self) -> None:
        log = self.writer.log
        if log.offline is None:
            log.line_files.cancel(self._line)

    def consume(self) -> None:
        line = self._line
        line.consumed()
        if line.is_durable:
            self.writer.log.line_files.outlive(line, self.encoded.batches[0].base_offset)
            self.writer.use(None)

    def keep(self) -> None:
        self.writer.keep(self.rest)

    @property
    def _line(self) -> UnfinishedFile:
        """The file of the unfinished line with which the first batch begins."""
        assert self.file is not None
        return self.file


def set_aside(log: PartitionLog, line: bytes, reason: str, now_ms: int) -> None:
    """Store a line that cannot become a record in a ``.cut`` file, and count it as a loss."""
    name = names.unused_cut_file(log.disk.exists, log.directory, log.log_end_offset, 0)
    log.disk.replace(f"{log.directory}/{name}", line)
    log.add_loss(
        "line", name, 0, len(line), f"unfinished line set aside in {name}: {reason}", now_ms
    )


def adopt_unfinished(
    log: PartitionLog,
    now_ms: int,
    files: Sequence[str],
    resumed: Resumption[LineWriter] | None = None,
) -> None:
    """Make records of the unfinished lines that a crash left in a partition directory.

    A line for which the disk has no room waits, and so do all later appends: the partition takes
    none until ``adopt_waiting`` has found room for the line. What cannot be done now for another
    reason is left for the next start.

    Args:
        log: The partition.
        now_ms: The clock.
        files: Their names in the directory, in the order of their records.
        resumed: The lines of open files that continue, which become no records; None: there are
            none.
    """
    writers: dict[str, LineWriter] = {}
    lines: list[tuple[str, UnfinishedLine]] = []
    try:
        for name, line in _find_unfinished(log, now_ms, files):
            view = None if resumed is None else resumed.view_of(name)
            if view is None:
                lines.append((name, line))
            elif (writer := _adopt(log, name, line, view, now_ms)) is not None:
                writers[name] = writer
    finally:
        if resumed is not None:
            resumed.settle(log, writers)
    # Only now, for an adopted line makes a batch that could be taken for an announced one.
    for name, line in lines:
        adopted = _adopt(log, name, line, line.view, now_ms)
        if adopted is not None:
            adopted.close(now_ms)


def _find_unfinished(
    log: PartitionLog, now_ms: int, files: Sequence[str]
) -> Iterator[tuple[str, UnfinishedLine]]:
    """Yield the lines that are no records, each with the name of its file."""
    for name in files:
        line = _read_unfinished(log, name, now_ms)
        if line is None:
            continue
        if line.announced is not None and _is_consumed(log, line.announced, line.is_proof):
            log.line_files.remove_when_durable(f"{log.directory}/{name}", line.announced[0])
        else:
            yield name, line


def _adopt(
    log: PartitionLog, name: str, line: UnfinishedLine, view: View, now_ms: int
) -> LineWriter | None:
    """Return a writer that continues with the file of a line; None if the line waits."""
    writer = LineWriter(log, view)
    try:
        writer.adopt(name, line)
    except OSError as error:
        logger.warning("%s/%s waits: %s", log.directory, name, error)
        if is_full(error):
            _wait_for_room(log, name, now_ms)
        return None
    return writer


def _wait_for_room(log: PartitionLog, name: str, now_ms: int) -> None:
    """Have the line of a file become a record before anything is appended."""
    log.state.waiting_lines.append(name)
    log.state.adopt_lines = lambda lines: adopt_unfinished(log, now_ms, lines)


def has_unfinished(log: PartitionLog) -> bool:
    """Tell whether a partition directory holds bytes of lines that are no records yet."""
    for name, is_directory in log.disk.list(log.directory):
        if not is_directory and names.parse_unfinished_file(name) is not None:
            path = f"{log.directory}/{name}"
            try:
                found = decode_unfinished(path, log.disk.read(path, None))
            except FileNotFoundError:  # became a record meanwhile
                continue
            except LogfsError:
                return True
            is_record = found.announced is not None and _is_consumed(
                log, found.announced, found.is_proof
            )
            if found.data and not is_record:
                return True
    return False


def _read_unfinished(log: PartitionLog, name: str, now_ms: int) -> UnfinishedLine | None:
    path = f"{log.directory}/{name}"
    try:
        data = log.disk.read(path, None)
    except FileNotFoundError:  # removed while it waited
        return None
    try:
        return decode_unfinished(path, data)
    except LogfsError as error:
        set_aside(log, data, str(error), now_ms)
        log.disk.remove(path)
        log.disk.sync_directory(log.directory)  # or it would be another loss after a power cut
        return None


def _is_consumed(log: PartitionLog, announced: tuple[int, int], is_proof: bool) -> bool:
    """Whether an announced batch was appended; without proof also if it may have been rewritten."""
    offset, crc = announced
    if not is_proof and _may_be_rewritten(log, offset):
        return True
    try:
        return offset < log.log_end_offset and log.batch_crc_at(offset) == crc
    except CorruptRecordError:
        return False


def _may_be_rewritten(log: PartitionLog, offset: int) -> bool:
    """Whether retention may have removed the batch at an offset, or compaction rewritten it."""
    snapshot = log.snapshot
    if offset < snapshot.start.offset:
        return True
    return (
        offset < snapshot.end.offset
        and snapshot.segments[snapshot.index_of_offset(offset)].has_gaps
    )
