"""Appends through the control socket: records, lines, what was staged, ends of transactions.

They run in threads, one partition at a time for each client: the loop goes on meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TypeVar

import trio

from logfs import control
from logfs.errors import ControlError, NoSuchPartitionError, NoSuchTopicError
from logfs.fs.operations import Operations
from logfs.fs.partitions import MountedPartition
from logfs.fs.requests import Request
from logfs.log.publishing.publish import concerned, forget, publish
from logfs.log.publishing.staging import decode_staged
from logfs.log.store import LogStore
from logfs.log.writing.bulk import append_by_key, append_lines
from logfs.log.writing.feeding import append_file, append_file_by_key
from logfs.log.writing.lineform import LineForm, Lines
from logfs.machine.host import Clock
from logfs.types import View

T = TypeVar("T")


class AppendCommands:
    """Carries them out; see ``logfs.fs.commands``. Event loop only."""

    def __init__(self, store: LogStore, operations: Operations, clock: Clock) -> None:
        self._store = store
        self._operations = operations
        self._clock = clock

    async def append(self, request: Request) -> object:
        """Append batches as their client has encoded them."""
        partition = await find_partition(self._operations, request)
        producer, is_durable = request.producer(), request.get("is_durable", bool)
        log, now_ms = partition.log, self._clock.now_ms()
        with _arguments("append"):
            appended = await partition.executor.alone(
                log.append_encoded, request.payload, now_ms, producer
            )
        await self._finish(partition, is_durable=is_durable)
        return appended._asdict()

    async def lines(self, request: Request) -> object:
        """Append lines to a partition, or to those of a topic to which their keys belong."""
        form = _form(request)
        unkeyed, is_durable = request.get("unkeyed", int), request.get("is_durable", bool)
        data, now_ms = request.payload, self._clock.now_ms()
        if data and not data.endswith(b"\n"):
            raise ControlError("the last of the lines has no end")
        if request.arguments.get("partition") is None:
            partitions = await self._partitions(request.get("topic", str))
            logs = [partition.log for partition in partitions]
            call = partial(append_by_key, logs, data, form, unkeyed, now_ms)
            done = await _beside(partitions, call)
        else:
            partitions = [await find_partition(self._operations, request)]
            (partition,) = partitions
            done = await partition.executor.alone(append_lines, partition.log, data, form, now_ms)
        return await self._answer(partitions, done, is_durable=is_durable)

    async def file(self, request: Request) -> object:
        """Append lines of a file in the same way. Others may append between two pieces of it."""
        form, position, now_ms = _form(request), request.get("position", int), self._clock.now_ms()
        unkeyed = request.get("unkeyed", int)
        # In a thread: a file of this mount is described by the event loop.
        descriptor = await trio.to_thread.run_sync(request.file)
        if request.arguments.get("partition") is None:
            partitions = await self._partitions(request.get("topic", str))
            logs = [partition.log for partition in partitions]
            call = partial(append_file_by_key, logs, descriptor, position, form, unkeyed, now_ms)
        else:
            partitions = [await find_partition(self._operations, request)]
            call = partial(append_file, partitions[0].log, descriptor, position, form, now_ms)
        with _arguments("file"):
            done = await _beside(partitions, call)
        return await self._answer(partitions, done, is_durable=False)

    async def publish(self, request: Request) -> object:
        """Append what a job has staged."""
        query, batch = request.get("query", str), request.get("batch", int)
        staged, now_ms = decode_staged(request.payload), self._clock.now_ms()
        found = await trio.to_thread.run_sync(concerned, self._store, query, staged)
        partitions = []
        for topic_partition in found:
            with suppress(NoSuchTopicError, NoSuchPartitionError):  # that is for ``publish`` to say
                partitions.append(self._operations.tree.partition(*topic_partition))
        for partition in partitions:
            await self._operations.files.reload_if_offline(partition)
        is_single = request.get("is_single", bool)
        call = partial(publish, self._store, query, batch, staged, now_ms, is_single=is_single)
        was_first = await _beside(partitions, call)
        for partition in partitions:
            await self._finish(partition, is_durable=False)
        return was_first

    async def forget(self, request: Request) -> object:
        """Remove what is known of a query that will not come back."""
        await trio.to_thread.run_sync(forget, self._store, request.get("query", str))
        return None

    async def end(self, request: Request) -> object:
        """Write the marker that ends a transaction."""
        partition = await find_partition(self._operations, request)
        log = partition.log
        end = partial(
            log.end_transaction,
            request.get("producer_id", int),
            request.get("epoch", int),
            commit=request.get("commit", bool),
            coordinator_epoch=0,
            now_ms=self._clock.now_ms(),
        )
        with _arguments("end"):
            offset = await partition.executor.alone(end)
        await self._finish(partition, is_durable=request.get("is_durable", bool))
        return offset

    async def flush(self, request: Request) -> object:
        """Make what was appended to a partition durable."""
        partition = await find_partition(self._operations, request)
        await self._operations.files.fsyncs.flush(partition)
        return None

    async def _answer(
        self, partitions: Sequence[MountedPartition], done: Lines, *, is_durable: bool
    ) -> object:
        for partition in partitions:
            await self._finish(partition, is_durable=is_durable)
        refusal = None if done.refusal is None else control.encode_error(done.refusal)
        return {"appended": done.appended, "accepted": done.accepted, "refusal": refusal}

    async def _finish(self, partition: MountedPartition, *, is_durable: bool) -> None:
        log = partition.log
        if is_durable:
            await self._operations.files.fsyncs.flush(partition)
        if log.maintenance_due:
            self._operations.tasks.want_maintenance(partition)

    async def _partitions(self, topic: str) -> list[MountedPartition]:
        found = [self._operations.tree.partition(topic, n) for n in self._store.partitions(topic)]
        for partition in found:
            await self._operations.files.reload_if_offline(partition)
        return found


async def _beside(partitions: Sequence[MountedPartition], call: Callable[[], T]) -> T:
    """Run a change of partitions in a thread, beside other changes; it takes their locks itself."""
    with ExitStack() as stack:
        for partition in partitions:
            stack.enter_context(partition.executor.kept_off_loop())
        return await trio.to_thread.run_sync(call)


async def find_partition(operations: Operations, request: Request) -> MountedPartition:
    """Return the partition that a request names, loaded anew if that may help."""
    partition = operations.tree.partition(request.get("topic", str), request.get("partition", int))
    await operations.files.reload_if_offline(partition)
    return partition


@contextmanager
def _arguments(request: str) -> Iterator[None]:
    """Say that a number is out of range, or that there are no records, as the client's mistake."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise ControlError(f"{request}: {error}") from None


def _form(request: Request) -> LineForm:
    try:
        headers = tuple(
            (bytes.fromhex(name), None if value is None else bytes.fromhex(value))
            for name, value in request.get("headers", list)
        )
        delimiter = bytes.fromhex(request.get("key_delimiter", str))
        return LineForm(View(request.get("view", int)), delimiter, headers)
    except (ValueError, TypeError) as error:
        raise ControlError(f"lines: {error}") from None
