"""Dispatch of control requests, and the requests that change topics or delete records."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio

from logfs.control.requests import REPEATED, Report, Request
from logfs.errors import ControlError, NoSuchTopicError, ReadOnlyError, TopicExistsError
from logfs.fs.handover.control import ControlNotes
from logfs.fs.kernel.cache import KernelCache
from logfs.fs.operations.served import Operations
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.service.append_commands import AppendCommands
from logfs.fs.service.mirror_commands import MirrorCommands
from logfs.fs.service.query_commands import QueryCommands, find_partition
from logfs.fs.service.standby_commands import own_store
from logfs.fs.threads import run_in_thread
from logfs.fs.tree.nodes import FileNode, TopicNode
from logfs.log.partition import PartitionLog
from logfs.machine.host import Clock
from logfs.services import administration
from logfs.services.compaction.manual import (
    Compacted,
    check_compactable,
    compact_now,
    logs_of,
    preview_compaction,
    watched,
)
from logfs.services.compaction.tools import CleaningTools
from logfs.services.following.store import AnyStore
from logfs.services.packing.packer import Packed, check_packable, pack_now
from logfs.services.retention.trimming import (
    Trimmed,
    check_trimmable,
    offset_to_keep,
    parse_trim_address,
    preview_trim,
    trim,
)

_Commands = dict[str, Callable[[Request], Awaitable[object]]]


class ControlCommands:
    """Answers every request of ``logfs.control.requests.REQUESTS``. Event loop only.

    Args:
        store: The store.
        operations: The file system over it.
        kernel: The kernel's cache, from which deleted data is dropped.
        clock: The clocks.
        facts: The answer to ``status``.

    Attributes:
        metrics: The metrics of the mount.
        reload: Gives the mount to a successor, with new code.
    """

    reload: Callable[[], Awaitable[None]]

    def __init__(
        self,
        store: AnyStore,
        operations: Operations,
        kernel: KernelCache,
        clock: Clock,
        facts: Mapping[str, object],
    ) -> None:
        self._store = store
        self._operations = operations
        self._tree = operations.tree
        self._changes = operations.topic_changes
        self._kernel = kernel
        self._clock = clock
        queries = QueryCommands(store, operations, clock, facts)
        self.reload = _refuse_reload
        self._notes = ControlNotes(operations.journal)
        appends = AppendCommands(store, operations, clock, self._notes)
        copies = MirrorCommands(store, operations, clock, self._notes)
        self.metrics = queries.facts
        self._commands = self._own() | _others(queries, appends, copies)

    def _own(self) -> _Commands:
        return {
            "resumes": self._resumes,
            "reload": self._reload,
            "own_store": self._own_store,
            "create": self._create,
            "alter": self._alter,
            "delete": self._delete,
            "undelete": self._undelete,
            "rename": self._rename,
            "trim": self._trim,
            "preview_trim": self._preview_trim,
            "retention": self._retention,
            "compact": partial(self._rewrite, check_compactable, compact_now),
            "preview_compact": partial(self._rewrite, check_compactable, preview_compaction),
            "pack": partial(self._rewrite, check_packable, pack_now),
            "roll": self._roll,
        }

    async def run(self, request: Request) -> object:
        """Answer a request with a JSON value, or with bytes, the payload of the answer.

        Raises:
            ControlError: A field has a value that the request does not allow.
            LogfsError, OSError: The error that the request met.
        """
        access_log, failure = self._operations.access_log, None
        command = self._commands[request.name]
        try:
            if request.name in REPEATED:
                return await self._notes.answer(request, command)
            return await command(request)
        except Exception as error:
            failure = error
            raise
        finally:
            if access_log is not None:
                size = len(request.payload)
                access_log.note_command(request.peer, request.name, request.fields, size, failure)

    async def _resumes(self, _request: Request) -> object:
        return self._notes.journal.is_kept

    async def _reload(self, _request: Request) -> object:
        await self.reload()
        return None

    async def _own_store(self, _request: Request) -> object:
        return await run_in_thread(own_store, self._store, self._clock)

    async def _create(self, request: Request) -> object:
        topic = request["topic"]
        create = partial(
            administration.create_topic,
            self._store.writable,
            topic,
            request["partitions"],
            request["config"],
            self._clock.now_ms(),
        )
        warnings: list[str] = []
        with self._notes.note(request).forgiving(TopicExistsError, lambda: self._has(topic)):
            warnings = await self._changes.run(topic, create)
        root = self._tree.root
        root.mtime_ms = self._clock.now_ms()
        return warnings

    async def _alter(self, request: Request) -> object:
        topic = request["topic"]
        warnings = await self._changes.run(
            topic,
            administration.alter_topic,
            self._store.writable,
            topic,
            request["changes"],
            request["partitions"],
            self._clock.now_ms(),
        )
        node = self._topic(topic)
        node.mtime_ms = self._clock.now_ms()
        self._tree.note_config(node)
        return warnings

    async def _delete(self, request: Request) -> object:
        topic = request["topic"]
        with self._notes.note(request).forgiving(NoSuchTopicError, lambda: not self._has(topic)):
            at_once = bool(request["at_once"])
            await self._changes.delete_topic(self._topic(topic), at_once=at_once)
        await self._kernel.drop_name(self._tree.root.ino, topic)
        return None

    async def _undelete(self, request: Request) -> object:
        topic = request["topic"]
        with self._notes.note(request).forgiving(TopicExistsError, lambda: self._has(topic)):
            await self._changes.undelete_topic(topic)
        await self._kernel.drop_name(self._tree.root.ino, topic)
        return None

    async def _rename(self, request: Request) -> object:
        topic, new = request["topic"], request["new"]
        with self._notes.note(request).forgiving(NoSuchTopicError, lambda: self._has(new)):
            await self._changes.rename_topic(self._topic(topic), new)
        for name in (topic, new):
            await self._kernel.drop_name(self._tree.root.ino, name)
        return None

    async def _trim(self, request: Request) -> object:
        at_once, even_if_held = request["at_once"], bool(request["even_if_held"])
        now_ms = self._clock.now_ms()
        chosen = await self._chosen_to_trim(request, now_ms)
        done = [
            await partition.executor.sync(
                _trim, partition.log.writable, offset, now_ms, at_once, even_if_held
            )
            for partition, offset in chosen
        ]
        if at_once:
            partitions = [partition for partition, _ in chosen]
            await self._kernel.drop_bytes(self._cached_inodes(partitions))
        return [trimmed._asdict() for trimmed in done]

    async def _preview_trim(self, request: Request) -> object:
        at_once, even_if_held = request["at_once"], bool(request["even_if_held"])
        return [
            (
                await partition.executor.sync(
                    _preview_trim, partition.log.writable, offset, at_once, even_if_held
                )
            )._asdict()
            for partition, offset in await self._chosen_to_trim(request, self._clock.now_ms())
        ]

    async def _chosen_to_trim(
        self, request: Request, now_ms: int
    ) -> list[tuple[MountedPartition, int]]:
        """Return the partitions of an address, each with the offset to keep."""
        names = request["names"]
        address = parse_trim_address([str(name) for name in names], self._tree.time_zone)
        numbers = [address.partition]
        if address.partition is None:
            numbers = [*self._store.partitions(address.topic)]
        partitions = [self._tree.partition(address.topic, n) for n in numbers if n is not None]
        logs = [partition.log.writable for partition in partitions]
        for log in logs:
            check_trimmable(log)
        return [
            (
                partition,
                await partition.executor.read(offset_to_keep, log, address.keep, now_ms),
            )
            for partition, log in zip(partitions, logs, strict=True)
        ]

    async def _retention(self, _request: Request) -> object:
        if self._store.read_only:
            raise ReadOnlyError("the mount is read-only")
        done = await self._operations.tasks.retention.run_once()
        return [[*topic_partition, deletion._asdict()] for topic_partition, deletion in done]

    async def _rewrite(
        self,
        check: Callable[[PartitionLog], None],
        rewrite: Callable[[PartitionLog, int, CleaningTools], Compacted | Packed],
        request: Request,
    ) -> object:
        """Rewrite segments of logs one after the other, and report the progress."""
        tools, now_ms = self._operations.tasks.rewriting.tools, self._clock.now_ms()
        done = []
        for log in logs_of(self._store.writable, request["topic"], request["partition"], check):
            executor = self._tree.partition(*log.topic_partition).executor
            if request.fields.get("roll"):
                await executor.sync(log.roll, now_ms)
            told = watched(tools, log, _from_thread(request.report))
            done.append((await executor.sync(rewrite, log, now_ms, told))._asdict())
        return done

    async def _roll(self, request: Request) -> object:
        partition = await find_partition(self._operations, request)
        log = partition.log.writable
        await partition.executor.sync(log.roll, self._clock.now_ms())
        return log.snapshot.active.base_offset

    def _has(self, topic: str) -> bool:
        return topic in self._store.topics()

    def _topic(self, name: str) -> TopicNode:
        node = self._tree.find(self._tree.root, name.encode())
        if not isinstance(node, TopicNode):
            raise ControlError(f"{name!r} is no topic")
        return node

    def _cached_inodes(self, partitions: list[MountedPartition]) -> list[int]:
        """Return the inodes of partitions whose bytes the kernel may cache."""
        return [
            node.ino
            for node in self._operations.inodes.nodes()
            if isinstance(node, FileNode) and node.is_cached and node.partition in partitions
        ]


def _trim(
    log: PartitionLog, offset: int, now_ms: int, at_once: bool, even_if_held: bool
) -> Trimmed:
    return trim(log, offset, now_ms, at_once=at_once, even_if_held=even_if_held)


def _preview_trim(log: PartitionLog, offset: int, at_once: bool, even_if_held: bool) -> Trimmed:
    return preview_trim(log, offset, at_once=at_once, even_if_held=even_if_held)


def _from_thread(report: Report) -> Report:
    """Return a function that a thread calls to report on the event loop."""

    def report_from_thread(text: str) -> None:
        trio.from_thread.run_sync(report, text)

    return report_from_thread


async def _refuse_reload() -> None:
    """Refuse: only the daemon of a mount can start its successor."""
    raise ControlError("reload: this daemon serves no mount that can be given to another one")


def _others(queries: QueryCommands, appends: AppendCommands, copies: MirrorCommands) -> _Commands:
    return {
        "status": queries.status,
        "utc_offset": queries.utc_offset,
        "metrics": queries.metrics,
        "prometheus": queries.prometheus,
        "activity": queries.activity,
        "topics": queries.topics,
        "describe": queries.describe,
        "overview": queries.overview,
        "point": queries.point,
        "append": appends.append,
        "lines": appends.lines,
        "file": appends.file,
        "publish": appends.publish,
        "forget": appends.forget,
        "end": appends.end,
        "flush": appends.flush,
        "mirrors": copies.mirrors,
        "mirror": copies.mirror,
        "replica": copies.replica,
        "replicate": copies.replicate,
        "start": copies.start,
        "continue": copies.continue_,
        "cut": copies.cut,
        "advance": copies.advance,
        "promote": copies.promote,
        "mirror_state": copies.mirror_state,
        "notes": copies.notes,
    }
