"""Requests that change nothing."""

from collections.abc import Mapping

import trio

from logfs.control.requests import Request
from logfs.errors import ControlError, LogOfflineError
from logfs.fs.metrics.mounts import MountMetrics, MountPlace
from logfs.fs.operations.served import Operations
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.threads import run_in_thread
from logfs.machine.host import Clock, utc_offset_s
from logfs.services import administration
from logfs.services.backup.point import take_point
from logfs.services.following.store import AnyStore
from logfs.services.overview import topic_overview

_LIMIT = trio.CapacityLimiter(8)
"""Questions about all partitions at the same time: one of their disks may hang."""

PARTITIONS_AT_ONCE = 500
"""The most partitions in one answer to ``overview``, so that it fits into a frame."""


class QueryCommands:
    """Answers the requests that change nothing; one method each. Event loop only.

    Args:
        store: The store.
        operations: The file system over it.
        clock: The clocks.
        status: The answer to ``status``.

    Attributes:
        facts: The metrics of the mount.
    """

    def __init__(
        self,
        store: AnyStore,
        operations: Operations,
        clock: Clock,
        status: Mapping[str, object],
    ) -> None:
        self._store = store
        self._operations = operations
        self._clock = clock
        self._status = status
        where = MountPlace(str(status.get("data", "")), str(status.get("mountpoint", "")))
        self.facts = MountMetrics(store, operations, clock, where)

    async def status(self, _request: Request) -> object:
        """Return facts about the daemon."""
        return {**self._status, **self._operations.facts()}

    async def utc_offset(self, request: Request) -> object:
        """Return the offset of the daemon's time zone from UTC at a local date and time."""
        try:
            return utc_offset_s(self._operations.tree.time_zone, request["local"])
        except ValueError as error:
            raise ControlError(f"expected a local date and time: {error}") from None

    async def metrics(self, _request: Request) -> object:
        """Return the metrics that do not belong to single topics."""
        return await run_in_thread(self.facts.summary, limiter=_LIMIT)

    async def prometheus(self, _request: Request) -> object:
        """Return all metrics as Prometheus text."""
        return await run_in_thread(self._render, limiter=_LIMIT)

    def _render(self) -> bytes:
        from logfs.fs.metrics.exposition import Exposition  # loads prometheus_client

        return Exposition(self.facts).render()[0]

    async def activity(self, request: Request) -> object:
        """Return what programs do within a time."""
        return await self._operations.files.watching.watch(request["milliseconds"])

    async def topics(self, _request: Request) -> object:
        """Return the number of partitions of each topic."""
        return administration.topic_sizes(self._store.writable)

    async def describe(self, request: Request) -> object:
        """Return the facts about a topic."""
        facts = await self._operations.topic_changes.run(
            request["topic"], administration.describe_topic, self._store.writable, request["topic"]
        )
        return facts._asdict()

    async def overview(self, request: Request) -> object:
        """Return what ``logfs status`` shows of a topic and of some of its partitions."""
        found = await run_in_thread(
            topic_overview,
            self._store,
            request["topic"],
            self._clock.now_ms(),
            request["since_ms"],
            request["first"],
            PARTITIONS_AT_ONCE,
            limiter=_LIMIT,
        )
        return {**found._asdict(), "partitions": [row._asdict() for row in found.partitions]}

    async def point(self, request: Request) -> object:
        """Make a partition durable and return the point up to which it is."""
        partition = await find_partition(self._operations, request)
        log = partition.log.writable
        if log.is_unreadable:
            raise LogOfflineError(str(log.offline))
        if log.offline is None:
            await self._operations.files.fsyncs.flush(partition)
        point = await partition.executor.change_in_thread(take_point, log)
        return point._asdict()


async def find_partition(operations: Operations, request: Request) -> MountedPartition:
    """Return the partition that a request names; reload it first if it is offline."""
    partition = operations.tree.partition(request["topic"], request["partition"])
    await operations.files.reload_if_offline(partition)
    return partition
