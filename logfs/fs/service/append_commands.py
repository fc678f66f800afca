"""Requests that append: records, lines, staged files, transaction markers.

Appends run in threads, so the event loop continues meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TypeVar

from logfs.control.requests import Request, encode_lines, line_form
from logfs.errors import ControlError, NoSuchPartitionError, NoSuchTopicError
from logfs.fs.handover.control import ControlNote, ControlNotes
from logfs.fs.operations.served import Operations
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.service.query_commands import find_partition
from logfs.fs.threads import run_in_thread
from logfs.log.lines.append import append_by_key, append_lines
from logfs.log.lines.form import Lines
from logfs.log.lines.pipelined import append_file, append_file_by_key
from logfs.log.partition import PartitionLog
from logfs.log.publishing.publish import concerned, forget, publish
from logfs.log.publishing.staging import PublishOptions, decode_staged
from logfs.log.writing.producerbatches import Appended, decode_batches
from logfs.machine.host import Clock
from logfs.records.compression import Buffer
from logfs.services.following.store import AnyStore

T = TypeVar("T")


class AppendCommands:
    """Answers the requests that append; one method each. Event loop only."""

    def __init__(
        self, store: AnyStore, operations: Operations, clock: Clock, notes: ControlNotes
    ) -> None:
        self._notes = notes
        self._store = store
        self._operations = operations
        self._clock = clock

    async def append(self, request: Request) -> object:
        """Append encoded batches."""
        partition = await find_partition(self._operations, request)
        producer, is_durable = request["producer"], request["is_durable"]
        log, now_ms = partition.log.writable, self._clock.now_ms()
        with _arguments("append"):
            append = partial(log.appender.append_encoded, request.payload, now_ms, producer)
            if producer is None:  # else its sequence numbers tell
                note = self._notes.note(request)
                append = partial(_append_once, log, request.payload, now_ms, note)
            appended = await partition.executor.change_in_thread(append)
        self._note(request, [partition], len(request.payload))
        await self._finish(partition, is_durable=is_durable)
        return appended._asdict()

    async def lines(self, request: Request) -> object:
        """Append lines to a partition, or distribute them over a topic by their keys."""
        form, now_ms, note = line_form(request), self._clock.now_ms(), self._notes.note(request)
        data = request.payload
        if data and not data.endswith(b"\n"):
            raise ControlError("lines: the last line does not end with a newline")
        partitions, logs = await self._line_logs(request, note)
        if request["partition"] is None:
            call = partial(append_by_key, logs, data, form, request["unkeyed"], now_ms, note)
            done = await _beside(partitions, call)
        else:
            done = await partitions[0].executor.change_in_thread(
                append_lines, logs[0], data, form, now_ms, note
            )
        self._note(request, partitions, len(data))
        return await self._answer(partitions, done, is_durable=request["is_durable"])

    async def file(self, request: Request) -> object:
        """Append lines of a file in the same way, in pieces; others may append between."""
        form, now_ms, note = line_form(request), self._clock.now_ms(), self._notes.note(request)
        # In a thread: fstat of a file in this mount waits for the event loop.
        file = await run_in_thread(request.file), request["position"]
        partitions, logs = await self._line_logs(request, note)
        call = partial(append_file, logs[0], *file, form, now_ms, note)
        if request["partition"] is None:
            call = partial(append_file_by_key, logs, *file, form, request["unkeyed"], now_ms, note)
        with _arguments("file"):
            done = await _beside(partitions, call)
        self._note(request, partitions, done.accepted)
        return await self._answer(partitions, done, is_durable=False)

    async def publish(self, request: Request) -> object:
        """Append the staged files of a job."""
        query, batch = request["query"], request["batch"]
        staged, now_ms = decode_staged(request.payload), self._clock.now_ms()
        found = await run_in_thread(concerned, self._store.writable, query, staged)
        partitions = []
        for topic_partition in found:
            with suppress(NoSuchTopicError, NoSuchPartitionError):  # ``publish`` raises it again
                partitions.append(self._operations.tree.partition(*topic_partition))
        for partition in partitions:
            await self._operations.files.reload_if_offline(partition)
        options = PublishOptions(request["is_single"], not request["leaves_out"])
        call = partial(publish, self._store.writable, query, batch, staged, now_ms, options)
        was_first = await _beside(partitions, call)
        self._note(request, partitions, sum(file.size_bytes for file in staged))
        for partition in partitions:
            await self._finish(partition, is_durable=False)
        return was_first

    async def forget(self, request: Request) -> object:
        """Remove the ledger of a query."""
        await run_in_thread(forget, self._store.writable, request["query"])
        return None

    async def end(self, request: Request) -> object:
        """Append the marker that ends a transaction."""
        partition = await find_partition(self._operations, request)
        log = partition.log.writable
        end = partial(
            _end_once,
            log,
            self._notes.note(request),
            request["producer_id"],
            request["epoch"],
            commit=request["commit"],
            now_ms=self._clock.now_ms(),
        )
        with _arguments("end"):
            offset = await partition.executor.change_in_thread(end)
        await self._finish(partition, is_durable=request["is_durable"])
        return offset

    async def flush(self, request: Request) -> object:
        """Make all earlier appends to a partition durable."""
        partition = await find_partition(self._operations, request)
        await self._operations.files.fsyncs.flush(partition)
        return None

    def _note(self, request: Request, partitions: Sequence[MountedPartition], size: int) -> None:
        """Note an append for ``logfs top``; one to several partitions with equal shares."""
        for partition in partitions:
            self._operations.files.watching.note_client(
                request.peer, partition.topic_partition, size // len(partitions)
            )

    async def _answer(
        self, partitions: Sequence[MountedPartition], done: Lines, *, is_durable: bool
    ) -> object:
        for partition in partitions:
            await self._finish(partition, is_durable=is_durable)
        return encode_lines(done)

    async def _finish(self, partition: MountedPartition, *, is_durable: bool) -> None:
        log, files = partition.log.writable, self._operations.files
        mark = log.throttle_mark
        if is_durable:
            await files.fsyncs.flush(partition)
        if log.maintenance_due:
            self._operations.tasks.want_maintenance(partition)
        await files.throttling.wait(log, mark)

    async def _line_logs(
        self, request: Request, note: ControlNote
    ) -> tuple[list[MountedPartition], list[PartitionLog]]:
        """Return the partition of a request, or all of its topic, and where its lines may go."""
        if request["partition"] is not None:
            partition = await find_partition(self._operations, request)
            return [partition], [partition.log.writable]
        topic = request["topic"]
        found = [self._operations.tree.partition(topic, n) for n in self._store.partitions(topic)]
        for partition in found:
            await self._operations.files.reload_if_offline(partition)
        logs = [partition.log.writable for partition in found]
        return found, logs[: note.partitions(len(logs))]


def _append_once(log: PartitionLog, payload: Buffer, now_ms: int, note: ControlNote) -> Appended:
    """Append the batches that are not in the log yet."""
    with log.exclusive():
        log.state.adopt_waiting()
        done, first = note.applied(log)
        rest = decode_batches(payload)[done:] if done else []
        if done and not rest:
            return Appended(first, first + done - 1)
        note.begin_append(log, done)
        if done:
            appended = log.append_records(rest, now_ms)
        else:
            appended = log.appender.append_encoded(payload, now_ms)
        note.end_append(log)
        return Appended(first if done else appended.base_offset, appended.last_offset)


def _end_once(
    log: PartitionLog, note: ControlNote, producer_id: int, epoch: int, *, commit: bool, now_ms: int
) -> int:
    """Write a marker, unless it is in the log; returns its offset."""
    with log.exclusive():
        log.state.adopt_waiting()
        done, first = note.applied(log)
        if done:
            return first
        note.begin_append(log, 0)
        offset = log.appender.end_transaction(
            producer_id, epoch, commit=commit, coordinator_epoch=0, now_ms=now_ms
        )
        note.end_append(log)
        return offset


async def _beside(partitions: Sequence[MountedPartition], call: Callable[[], T]) -> T:
    """Run a change of partitions in a thread; it takes the locks of the partitions itself."""
    with ExitStack() as stack:
        for partition in partitions:
            stack.enter_context(partition.executor.kept_off_loop())
        return await run_in_thread(call)


@contextmanager
def _arguments(request: str) -> Iterator[None]:
    """Turn the errors of invalid arguments into a ControlError."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise ControlError(f"{request}: {error}") from None
