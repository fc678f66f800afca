"""Requests of ``logfs mirror``, which has its own process: what it fetched, and where it is.

A request that a client repeats after the daemon was restarted may have been carried out before. For
all but ``replicate`` that makes no difference. ``replicate`` says where the log has to end; if it
was carried out, the log ends after the batches that it brings.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from logfs.control.requests import Request
from logfs.errors import ControlError
from logfs.fs.handover.control import ControlNotes
from logfs.fs.operations.served import Operations
from logfs.fs.service.query_commands import find_partition
from logfs.fs.threads import run_in_thread
from logfs.fs.tree.nodes import TopicNode
from logfs.log.mirrorfile import source_of
from logfs.log.partition import PartitionLog
from logfs.log.writing.replication import Replicated
from logfs.machine.host import Clock
from logfs.records._reading import batch_run
from logfs.records.compression import Buffer
from logfs.services.clusters import mirrors
from logfs.services.following.store import AnyStore

T = TypeVar("T")

_ALL = 1 << 62


class MirrorCommands:
    """Answers the requests of a mirror; one method each. Event loop only."""

    def __init__(
        self, store: AnyStore, operations: Operations, clock: Clock, notes: ControlNotes
    ) -> None:
        self._store = store
        self._operations = operations
        self._clock = clock
        self._notes = notes

    async def mirror(self, request: Request) -> object:
        """Make a mirror, or look it up."""
        source = source_of(dict(request["source"]), "source")
        topic = request["topic"]
        ends = await self._operations.topic_changes.run(
            topic,
            mirrors.open_mirror,
            self._store.writable,
            topic,
            request["partitions"],
            request["config"],
            source,
            self._clock.now_ms(),
        )
        tree = self._operations.tree
        tree.root.mtime_ms = self._clock.now_ms()
        node = tree.find(tree.root, topic.encode())
        if isinstance(node, TopicNode):
            tree.note_config(node)
        return ends

    async def mirrors(self, _request: Request) -> object:
        """Return every mirror and its source."""
        found = await run_in_thread(mirrors.sources, self._store.writable)
        return {topic: source._asdict() for topic, source in found.items()}

    async def replica(self, request: Request) -> object:
        """Return where a partition begins and ends; and where a leader epoch ends in it."""
        partition = await find_partition(self._operations, request)
        log, epoch = partition.log.writable, request["epoch"]
        end_of_epoch = None if epoch is None else log.end_offset_for_epoch(epoch)
        return {"end": mirrors.end_of(log), "epoch": end_of_epoch}

    async def replicate(self, request: Request) -> object:
        """Append batches as they are."""
        note = self._notes.note(request)
        call = partial(
            _replicate_once,
            expected=request["expected"],
            batches=request.payload,
            now_ms=self._clock.now_ms(),
            was_begun=note.was_begun,
        )
        if not note.was_begun:
            note.begin()
        return await self._change(request, call)

    async def start(self, request: Request) -> object:
        """Let an empty partition begin at an offset."""
        offset, now_ms = request["offset"], self._clock.now_ms()

        def start(log: PartitionLog) -> None:
            if mirrors.check_mirror(log).log_end_offset != offset:
                log.replication.start_at(offset, now_ms)

        return await self._change(request, start)

    async def continue_(self, request: Request) -> object:
        """Continue at an offset, after records that the source has lost."""
        offset, why, now_ms = request["offset"], request["why"], self._clock.now_ms()
        return await self._change(request, lambda log: mirrors.skip_to(log, offset, why, now_ms))

    async def cut(self, request: Request) -> object:
        """Remove what the source has lost."""
        offset, why, now_ms = request["offset"], request["why"], self._clock.now_ms()
        return await self._change(request, lambda log: mirrors.cut(log, offset, why, now_ms))

    async def advance(self, request: Request) -> object:
        """Delete the records before an offset."""
        offset, now_ms = request["offset"], self._clock.now_ms()
        return await self._change(request, lambda log: mirrors.advance(log, offset, now_ms))

    async def promote(self, request: Request) -> object:
        """Make a mirror an ordinary topic."""
        await self._operations.topic_changes.run(
            request["topic"], mirrors.promote, self._store.writable, request["topic"]
        )
        return None

    async def mirror_state(self, request: Request) -> object:
        """Note whether a mirror continues, and why not."""
        await self._operations.topic_changes.run(
            request["topic"],
            mirrors.note_state,
            self._store.writable,
            request["topic"],
            request["state"],
            request["reason"],
        )
        return None

    async def notes(self, request: Request) -> object:
        """Take what ``.meta`` and the metrics show of mirrors."""
        mirrors.show(self._store.writable, _facts(request["facts"]), self._clock.now_ms())
        return None

    async def _change(self, request: Request, call: Callable[[PartitionLog], T]) -> T:
        partition = await find_partition(self._operations, request)
        done = await partition.executor.change_in_thread(call, partition.log.writable)
        if partition.log.maintenance_due:
            self._operations.tasks.want_maintenance(partition)
        return done


def _replicate_once(
    log: PartitionLog, *, expected: int, batches: Buffer, now_ms: int, was_begun: bool
) -> Replicated:
    with log.exclusive():
        if was_begun and log.log_end_offset > expected:
            size, last, _ = batch_run(batches, 0, memoryview(batches).nbytes, _ALL)
            if log.log_end_offset <= last + 1:
                return Replicated(expected, log.log_end_offset - 1, size)
        return mirrors.replicate(log, expected, batches, now_ms)


def _facts(rows: Mapping[str, object]) -> dict[str, dict[str, object]]:
    if not all(isinstance(row, dict) for row in rows.values()):
        raise ControlError("facts: expected an object for each partition")
    return {name: dict(row) for name, row in rows.items() if isinstance(row, dict)}
