"""What can be asked of the daemon through its control socket.

    status                                     pid, version, data directory, mount point, options,
                                               since when, whether the stop before was clean,
                                               how sealed files are read
    utc_offset    local                        the offset of the daemon's time zone from UTC at a
                                               local date and time, in seconds
    metrics                                    the metrics that are not of single topics, by name
    prometheus                                 all metrics; the payload is Prometheus text
    topics                                     numbers of partitions by topic
    describe      topic                        TopicFacts
    create        topic partitions config      warnings
    alter         topic changes partitions     warnings
    delete        topic
    undelete      topic
    trim          names at_once                Trimmed of each partition
    retention                                  what was deleted of each partition
    compact       topic partition roll         Compacted of each partition
    roll          topic partition              the base offset of the active segment
    overview      topic first since_ms         TopicOverview, of partitions from ``first`` on
    point         topic partition              Point, what it holds up to there being durable
    append        topic partition producer     Appended; the payload is batches of records, as
                  is_durable                   ``encode_records`` makes them
    lines         topic partition view         appended, accepted, refusal, as in ``Lines``; the
                  key_delimiter headers        payload is lines; partition null: by their keys
                  unkeyed is_durable
    file          topic partition view         the same, of the lines that stand at ``position`` of
                  key_delimiter headers        the file that comes with the request: some of them,
                  unkeyed position             none only at its end
    publish       query batch is_single        whether it was not over before; the payload is what
                                               ``encode_staged`` makes of the staged files
    forget        query                        its ledger is gone
    end           topic partition producer_id  the offset of the marker
                  epoch commit
    flush         topic partition              what was appended before is durable

Arguments and answers are JSON; ``partitions`` may be null, ``names`` are those of an address,
``producer`` is null or the fields of a ``ProducerBatch``; ``key_delimiter`` and ``headers`` are in
hexadecimal digits.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from logfs.errors import ControlError, ReadOnlyError
from logfs.fs.appending import AppendCommands, find_partition
from logfs.fs.kernelcache import KernelCache
from logfs.fs.looking import LookingCommands
from logfs.fs.metrics.facts import Facts, Where
from logfs.fs.nodes import FileNode, TopicNode
from logfs.fs.operations import Operations
from logfs.fs.partitions import MountedPartition
from logfs.fs.requests import Request, Say
from logfs.log import administration
from logfs.log.compaction.manual import compact_now, logs_of, watched
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.log.trimming import (
    Trimmed,
    check_trimmable,
    offset_to_keep,
    parse_trim_address,
    trim,
)
from logfs.machine.host import Clock, utc_offset_s


class Commands:
    """Carries them out. Event loop only.

    Args:
        store: The store.
        operations: The file system over it, whose executors and caches are those of everybody.
        kernel: What it keeps is dropped when it is no longer so.
        clock: The clocks.
        facts: What ``status`` answers.

    Attributes:
        metrics: Those of the mount.
    """

    def __init__(
        self,
        store: LogStore,
        operations: Operations,
        kernel: KernelCache,
        clock: Clock,
        facts: Mapping[str, object],
    ) -> None:
        self._store = store
        self._operations = operations
        self._tree = operations.tree
        self._changes = operations.changes
        self._kernel = kernel
        self._clock = clock
        self._facts = facts
        where = Where(str(facts.get("data", "")), str(facts.get("mountpoint", "")))
        self.metrics = Facts(store, operations, clock, where)
        looking = LookingCommands(store, operations, clock)
        appends = AppendCommands(store, operations, clock)
        self._commands: dict[str, Callable[[Request], Awaitable[object]]] = {
            "status": self._status,
            "utc_offset": self._utc_offset,
            "metrics": self._metrics,
            "prometheus": self._prometheus,
            "topics": self._topics,
            "describe": self._describe,
            "create": self._create,
            "alter": self._alter,
            "delete": self._delete,
            "undelete": self._undelete,
            "trim": self._trim,
            "retention": self._retention,
            "compact": self._compact,
            "roll": self._roll,
            "point": looking.point,
            "overview": looking.overview,
            "append": appends.append,
            "lines": appends.lines,
            "file": appends.file,
            "publish": appends.publish,
            "forget": appends.forget,
            "end": appends.end,
            "flush": appends.flush,
        }

    async def run(
        self,
        header: Mapping[str, Any],
        payload: bytes | bytearray,
        say: Say,
        descriptor: int | None = None,
    ) -> object:
        """Carry out a request; returns what JSON can say of it, or bytes: a payload.

        Raises:
            ControlError: There is no such request, or its arguments are not what it takes.
            LogfsError, OSError: What the request met.
        """
        name = header.get("request")
        command = self._commands.get(name) if isinstance(name, str) else None
        if command is None:
            raise ControlError(
                f"{name!r} is no request that this daemon knows: it may be of another version; "
                f"expected one of {', '.join(self._commands)}"
            )
        return await command(Request(header, payload, say, descriptor))

    async def _status(self, _request: Request) -> object:
        return {**self._facts, "sealed_files": self._operations.passthrough.describe()}

    async def _utc_offset(self, request: Request) -> object:
        try:
            return utc_offset_s(self._tree.time_zone, request.get("local", str))
        except ValueError as error:
            raise ControlError(f"expected a local date and time: {error}") from None

    async def _metrics(self, _request: Request) -> object:
        return await trio.to_thread.run_sync(self.metrics.summary)

    async def _prometheus(self, _request: Request) -> object:
        return await trio.to_thread.run_sync(self._render)

    def _render(self) -> bytes:
        from logfs.fs.metrics.exposition import Exposition  # only for those who ask

        return Exposition(self.metrics).render()[0]

    async def _topics(self, _request: Request) -> object:
        return administration.topic_sizes(self._store)

    async def _describe(self, request: Request) -> object:
        topic = request.get("topic", str)
        facts = await self._changes.run(administration.describe_topic, self._store, topic)
        return facts._asdict()

    async def _create(self, request: Request) -> object:
        topic = request.get("topic", str)
        warnings = await self._changes.run(
            administration.create_topic,
            self._store,
            topic,
            request.get_optional("partitions", int),
            request.settings("config"),
            self._clock.now_ms(),
        )
        root = self._tree.root
        root.mtime_ms = self._clock.now_ms()
        return warnings

    async def _alter(self, request: Request) -> object:
        topic = request.get("topic", str)
        warnings = await self._changes.run(
            administration.alter_topic,
            self._store,
            topic,
            request.changed_settings("changes"),
            request.get_optional("partitions", int),
            self._clock.now_ms(),
        )
        node = self._topic(topic)
        node.mtime_ms = self._clock.now_ms()
        self._tree.note_config(node)
        return warnings

    async def _delete(self, request: Request) -> object:
        topic = request.get("topic", str)
        await self._changes.delete_topic(self._topic(topic))
        await self._kernel.drop_name(self._tree.root.ino, topic)
        return None

    async def _undelete(self, request: Request) -> object:
        topic = request.get("topic", str)
        await self._changes.undelete_topic(topic)
        await self._kernel.drop_name(self._tree.root.ino, topic)
        return None

    async def _trim(self, request: Request) -> object:
        names = request.get("names", list)
        at_once = request.get("at_once", bool)
        address = parse_trim_address([str(name) for name in names], self._tree.time_zone)
        numbers = [address.partition]
        if address.partition is None:
            numbers = [*self._store.partitions(address.topic)]
        partitions = [self._tree.partition(address.topic, n) for n in numbers if n is not None]
        now_ms = self._clock.now_ms()
        for partition in partitions:
            check_trimmable(partition.log)
        offsets = [
            await partition.executor.read(offset_to_keep, partition.log, address.keep, now_ms)
            for partition in partitions
        ]
        done = [
            await partition.executor.sync(_trim, partition.log, offset, now_ms, at_once)
            for partition, offset in zip(partitions, offsets, strict=True)
        ]
        if at_once:
            await self._kernel.drop_bytes(self._cached_inodes(partitions))
        return [trimmed._asdict() for trimmed in done]

    async def _retention(self, _request: Request) -> object:
        if self._store.read_only:
            raise ReadOnlyError("the mount is read-only")
        done = await self._operations.tasks.retention.look()
        return [[*topic_partition, deletion._asdict()] for topic_partition, deletion in done]

    async def _compact(self, request: Request) -> object:
        topic, number = request.get("topic", str), request.get_optional("partition", int)
        roll = request.get("roll", bool)
        tools, now_ms = self._operations.tasks.compaction.tools, self._clock.now_ms()
        done = []
        for log in logs_of(self._store, topic, number):
            executor = self._tree.partition(*log.topic_partition).executor
            if roll:
                await executor.sync(log.roll, now_ms)
            told = watched(tools, log, _from_thread(request.say))
            done.append(await executor.sync(compact_now, log, now_ms, told))
        return [compacted._asdict() for compacted in done]

    async def _roll(self, request: Request) -> object:
        partition = await find_partition(self._operations, request)
        log = partition.log
        await partition.executor.sync(log.roll, self._clock.now_ms())
        return log.snapshot.active.base_offset

    def _topic(self, name: str) -> TopicNode:
        node = self._tree.find(self._tree.root, name.encode())
        if not isinstance(node, TopicNode):
            raise ControlError(f"{name!r} is no topic")
        return node

    def _cached_inodes(self, partitions: list[MountedPartition]) -> list[int]:
        """Return the inodes of partitions whose bytes the kernel may keep."""
        return [
            node.ino
            for node in self._operations.inodes.nodes()
            if isinstance(node, FileNode) and node.is_cached and node.partition in partitions
        ]


def _trim(log: PartitionLog, offset: int, now_ms: int, at_once: bool) -> Trimmed:
    return trim(log, offset, now_ms, at_once=at_once)


def _from_thread(say: Say) -> Say:
    """Return what a thread calls to have something said on the loop."""

    def tell(text: str) -> None:
        trio.from_thread.run_sync(say, text)

    return tell
