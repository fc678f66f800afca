"""One thread that fetches from one broker what it leads, and appends it.

The next request is sent before the answer to the last one is appended, so that the broker reads
while this process writes. What then turns out to be asked from a wrong offset is not used.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest

from logfs.errors import BrokerError, ClusterRefusedError, ClusterUnreachableError, LogfsError
from logfs.kafka.cluster import NO_ID, REFUSED_S, Cluster
from logfs.kafka.copying import Owner
from logfs.kafka.fetching import (
    FIRST_WITH_DIVERGENCE,
    FIRST_WITH_IDS,
    NEWEST_VERSION,
    OLDEST_VERSION,
    Fetched,
    FetchLimits,
    Wanted,
    decode_fetch,
    fetch_request,
)
from logfs.kafka.mirrored import MirroredPartition, PartitionFailedError
from logfs.kafka.targets import MirrorTarget
from logfs.kafka.wire import Connection, check, error_name, error_of

logger = logging.getLogger(__name__)

OFFSET_OUT_OF_RANGE = 1
_MOVED = frozenset({3, 5, 6, 9, 56, 74, 75, 100, 103})
"""Errors that say to look for the leader, or the topic, again."""
_IDLE_S = 0.05
_LOCAL_RETRY_S = 1.0
_ERROR_RETRY_S = 1.0


class _UnderWay(NamedTuple):
    """A request that was sent.

    Attributes:
        offsets: The offset asked of each partition.
        by_key: The partitions by their keys in the answer.
        sent_s: When, by the monotonic clock.
    """

    offsets: Mapping[MirroredPartition, int]
    by_key: Mapping[tuple[str | UUID, int], MirroredPartition]
    sent_s: float


class Fetcher(threading.Thread):
    """Fetches from one broker.

    Attributes:
        node: The broker.
    """

    def __init__(self, cluster: Cluster, node: int, target: MirrorTarget, owner: Owner) -> None:
        super().__init__(name=f"fetch-{node}", daemon=True)
        self.node = node
        self._cluster = cluster
        self._target = target
        self._owner = owner
        self._assigned: deque[MirroredPartition] = deque()
        self._lock = threading.Lock()
        settings = cluster.settings
        self._limits = FetchLimits(
            settings.fetch_message_max_bytes,
            settings.fetch_max_bytes,
            settings.fetch_wait_max_ms,
        )

    def assign(self, partitions: Sequence[MirroredPartition]) -> None:
        """Fetch these partitions from now on."""
        with self._lock:
            self._assigned = deque(partitions)

    def run(self) -> None:
        """Fetch until the mirror stops."""
        waits = self._cluster.back_off()
        while not self._owner.stopping.is_set():
            connection: Connection | None = None
            try:
                if not self._due():
                    self._owner.stopping.wait(_IDLE_S)
                    continue
                connection = self._cluster.connect(self.node)
                self._serve(connection, waits.succeeded)
            except ClusterRefusedError as error:
                self._owner.refusal = error
                self._owner.stopping.wait(REFUSED_S + waits.next_s())
            except (ClusterUnreachableError, BrokerError, OSError) as error:
                self._lost(error)
                self._owner.stopping.wait(waits.next_s())
            except Exception as error:
                logger.exception("a bug in logfs: broker %d is not fetched from", self.node)
                self._lost(error)
                self._owner.stopping.wait(waits.next_s())
            finally:
                if connection is not None:
                    connection.close()
        self._target.keep_up(is_last=True)

    # Inside

    def _lost(self, error: Exception) -> None:
        logger.warning("broker %d: %s", self.node, error)
        for partition in self._all():
            partition.error, partition.is_unchecked, partition.replica = str(error), True, None
            partition.errors["CONNECTION"] += 1
        self._owner.want_look()

    def _all(self) -> list[MirroredPartition]:
        with self._lock:
            return list(self._assigned)

    def _due(self) -> list[MirroredPartition]:
        """Return the partitions to fetch now; another one comes first each time.

        One that another broker is to be asked for waits until the mirror assigns it there.
        """
        now_s = time.monotonic()
        with self._lock:
            self._assigned.rotate(-1)
            return [
                one
                for one in self._assigned
                if one.node == self.node
                and not one.failure
                and not one.is_done
                and one.retry_s <= now_s
            ]

    def _serve(self, connection: Connection, succeeded: Callable[[], None]) -> None:
        """Fetch over a connection until it is lost, or not needed any more."""
        version = connection.version(FetchRequest, NEWEST_VERSION, OLDEST_VERSION)
        under_way: _UnderWay | None = None
        while not self._owner.stopping.is_set():
            if under_way is None:
                if connection.is_expired or not self._all():
                    return
                under_way = self._send(connection, version, self._wanted(self._due(), version))
            if under_way is None:
                self._owner.stopping.wait(_IDLE_S)
                continue
            answer = decode_fetch(connection.receive(), version)
            took_s = time.monotonic() - under_way.sent_s
            succeeded()
            check(answer.error, "Fetch")
            found = _matched(under_way, answer.partitions)
            for partition, _ in found:
                partition.fetches.observe(took_s)
            may_go_on = not (answer.throttled_ms or connection.is_expired)
            following = self._send(connection, version, self._ahead(found) if may_go_on else [])
            for partition, row in found:
                self._take(partition, row, under_way.offsets[partition])
            # An answer that is throttled has no partitions.
            # Source: Kafka FetchContext.getThrottledResponse.
            self._wait_for_quota(answer.throttled_ms, under_way.offsets)
            under_way = following

    def _wait_for_quota(self, throttled_ms: int, waiting: Iterable[MirroredPartition]) -> None:
        if throttled_ms:
            for partition in waiting:
                partition.throttled_ms += throttled_ms
            self._owner.stopping.wait(throttled_ms / 1000)

    def _wanted(
        self, partitions: Sequence[MirroredPartition], version: int
    ) -> list[tuple[MirroredPartition, Wanted]]:
        """Return what to ask, with the epoch of the last record where the leader has to compare."""
        rows = []
        for partition in partitions:
            epoch = -1
            try:
                if partition.is_unchecked and partition.end > partition.start:
                    epoch = self._target.end(partition.where).last_epoch
                    if version < FIRST_WITH_DIVERGENCE and epoch >= 0:
                        self._compare(partition, epoch)
                        epoch = -1
                rows.append((partition, partition.wanted(epoch)))
            except (LogfsError, OSError) as error:
                self._failed(partition, error)
        return rows

    def _compare(self, partition: MirroredPartition, epoch: int) -> None:
        """Ask the leader where the epoch of the last record ends; source: KIP-320."""
        number, leader = partition.where.partition, partition.leader
        found, end = self._cluster.end_offset_for_epoch(
            leader.node, partition.topic, number, leader.epoch, epoch
        )
        if found >= 0 and (found < epoch or end < partition.end):
            partition.diverged(found, end, self._target)

    def _ahead(
        self, found: Sequence[tuple[MirroredPartition, Fetched]]
    ) -> list[tuple[MirroredPartition, Wanted]]:
        """Return what to ask before the answers are dealt with.

        Nothing if no records came, or if the next request should ask for other partitions, too.
        """
        if not any(len(answer.records) for _, answer in found):
            return []
        rows = [(partition, partition.wanted_after(answer)) for partition, answer in found]
        ahead = [(partition, wanted) for partition, wanted in rows if wanted is not None]
        return ahead if {one for one, _ in ahead} == set(self._due()) else []

    def _send(
        self,
        connection: Connection,
        version: int,
        rows: Sequence[tuple[MirroredPartition, Wanted]],
    ) -> _UnderWay | None:
        if not rows:
            return None
        wanted = [row for _, row in rows]
        if version < FIRST_WITH_IDS:
            wanted = [row._replace(topic_id=NO_ID) for row in wanted]
        rack = self._cluster.settings.client_rack
        connection.send(fetch_request(wanted, self._limits, rack=rack), version)
        offsets = {partition: row.offset for partition, row in rows}
        keys: dict[tuple[str | UUID, int], MirroredPartition] = {}
        for partition, row in rows:
            name = row.topic_id if version >= FIRST_WITH_IDS else row.topic
            keys[name, row.partition] = partition
        return _UnderWay(offsets, keys, time.monotonic())

    def _take(self, partition: MirroredPartition, answer: Fetched, offset: int) -> None:
        """Deal with an answer, unless what was asked is not wanted any more."""
        with partition.lock:
            if partition.offset == offset and partition in self._all():
                self._take_wanted(partition, answer)

    def _take_wanted(self, partition: MirroredPartition, answer: Fetched) -> None:
        try:
            if answer.error:
                self._refused(partition, answer)
            else:
                partition.take(answer, self._target)
                partition.error = ""
                if partition.is_done:
                    self._owner.want_look()
                if answer.preferred_replica >= 0:
                    partition.replica = answer.preferred_replica
                    self._owner.want_look()
        except (LogfsError, OSError) as error:
            self._failed(partition, error)

    def _refused(self, partition: MirroredPartition, answer: Fetched) -> None:
        """Deal with an error that the broker has for one partition."""
        code = answer.error
        partition.errors[error_name(code)] += 1
        partition.error = f"{error_name(code)} ({code})"
        if code == OFFSET_OUT_OF_RANGE:
            if partition.replica is not None:
                self._owner.want_look()  # so that the leader is asked
            partition.out_of_range(self._cluster, self._target)
            return
        partition.is_unchecked, partition.replica = True, None
        partition.retry_s = time.monotonic() + self._cluster.settings.reconnect_backoff_ms / 1000
        if code in _MOVED:
            self._owner.want_look()
            return
        error = error_of(code, f"{partition.topic}/{partition.where.partition}")
        logger.warning("%s: %s", partition.where, error)
        partition.retry_s = time.monotonic() + _ERROR_RETRY_S * (1 if error.is_retriable else 30)

    def _failed(self, partition: MirroredPartition, error: Exception) -> None:
        """Take note of an error of the local log, or of a question to the leader."""
        if partition.error != str(error):
            logger.warning("%s: %s", partition.where, error)
        partition.error = str(error)
        partition.errors[type(error).__name__] += 1
        partition.is_unchecked = True
        if isinstance(error, PartitionFailedError):
            partition.failure = str(error)
            self._owner.want_look()
            return
        if isinstance(error, BrokerError | ClusterUnreachableError):
            self._owner.want_look()
        partition.retry_s = time.monotonic() + _LOCAL_RETRY_S
        try:
            found = self._target.end(partition.where)
        except (LogfsError, OSError):
            return
        partition.start, partition.end = found.log_start_offset, found.log_end_offset


def _matched(
    under_way: _UnderWay, answers: Sequence[Fetched]
) -> list[tuple[MirroredPartition, Fetched]]:
    """Return the answers with the partitions that they are about."""
    found = []
    for answer in answers:
        name = answer.topic if answer.topic_id is None else answer.topic_id
        partition = under_way.by_key.get((name, answer.partition))
        if partition is not None:
            found.append((partition, answer))
    return found
