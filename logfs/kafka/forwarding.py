"""Forwards: the partitions of a topic, one thread each, to a topic of a cluster.

What is forwarded is read from the files, whether a daemon or another process writes them. What was
acknowledged is noted in the partition directory, see ``logfs.log.forwardfile``: retention keeps the
rest, and the daemon shows it.
"""

import logging
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from logfs.disk.vfs import Lock, RootedDisk
from logfs.errors import (
    BrokerError,
    ClusterRefusedError,
    ClusterUnreachableError,
    LogfsError,
    NoSuchPartitionError,
)
from logfs.kafka.cluster import NO_ID, REFUSED_S, UNKNOWN_TOPIC, Cluster, ClusterTopic
from logfs.kafka.copying import ClusterCopy
from logfs.kafka.forwarded import ForwardedPartition, LocalPartition
from logfs.kafka.resuming import AskAgainError, Destination, ForwardFailedError
from logfs.kafka.sending import Sender
from logfs.kafka.shipping import Shaping
from logfs.library.followed_directory import FollowedDirectory
from logfs.log.forwardfile import (
    FAILED,
    NO_LIMIT,
    RUNNING,
    STOPPED,
    ForwardFile,
    ForwardIdentity,
)
from logfs.log.mirrorfile import read_mirror
from logfs.log.names import format_forward_file, format_topic_id
from logfs.machine.host import machine_id
from logfs.records.compression import Compression
from logfs.types import IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)

_TICK_S = 0.2
_MOST_BYTES = 1_048_576
"""A little less than Kafka's default of ``max.message.bytes``."""


@dataclass(frozen=True, slots=True)
class ForwardPlan:
    """What is forwarded, and how.

    Attributes:
        topic: The local topic.
        partitions: Those of its partitions; None: all, also those that are added.
        bootstrap: The brokers as given.
        destination: The topic there.
        by_key: Spread records over all partitions by their keys; else each partition goes to the
            partition with the same number.
        compression: Codec of all batches; None: each keeps its own.
        is_stamped: Records get the time at which they are sent.
        hold_bytes: See ``ForwardIdentity``.
        start: The start of a new forward: ``start``, ``end``, or an offset. With ``resumes`` also
            one that exists.
        resumes: ``start`` is where to continue; ``start`` None means where it is noted.
        until_now: End when everything that is here now was acknowledged.
        skips_too_large: Leave out records that the destination does not take, as a loss.
    """

    topic: str
    partitions: tuple[int, ...] | None
    bootstrap: str
    destination: str
    by_key: bool = False
    compression: Compression | None = None
    is_stamped: bool = False
    hold_bytes: int = NO_LIMIT
    start: str | int | None = "start"
    resumes: bool = False
    until_now: bool = False
    skips_too_large: bool = False


@dataclass(slots=True)
class _PartitionThread:
    partition: ForwardedPartition
    thread: threading.Thread
    lock: Lock


class Forward(ClusterCopy):
    """Forwards a topic.

    Args:
        cluster: The cluster.
        disk: The data directory; its files must be writable.
        plan: The plan of what is forwarded.
        say: Called with a line for people when something changes.
    """

    def __init__(
        self, cluster: Cluster, disk: RootedDisk, plan: ForwardPlan, say: Callable[[str], None]
    ) -> None:
        super().__init__(cluster, say)
        self._disk = disk
        self._plan = plan
        self._threads: dict[int, _PartitionThread] = {}
        self._source: FollowedDirectory | None = None
        self._topic: ClusterTopic | None = None

    @property
    def partitions(self) -> list[ForwardedPartition]:
        """Every partition that is forwarded."""
        return [running.partition for running in self._threads.values()]

    @property
    def failures(self) -> list[str]:
        """Why partitions do not continue."""
        return [one.failure for one in self.partitions if one.failure]

    @property
    def losses(self) -> int:
        """How often records were not forwarded that should have been."""
        return sum(one.sender.totals.losses for one in self.partitions)

    def run(self) -> None:
        """Forward until told to stop, or until everything was acknowledged.

        Raises:
            ClusterUnreachableError: No broker answered, at the first attempt.
            ClusterRefusedError: The cluster refuses the client, or has no such topic.
            LogfsError, OSError: There is no such topic, another process forwards it, or the files
                cannot be used.
        """
        topic = self._topic = self._destination()
        self._source = FollowedDirectory(self._disk, lambda tp: tp.topic == self._plan.topic)
        try:
            self._open_new(self._source, topic)
            if not self._threads:
                raise NoSuchPartitionError(f"topic {self._plan.topic} has no such partition here")
            while not self.owner.stopping.is_set():
                self.owner.wait(_TICK_S)
                self._tick()
        finally:
            self._end()

    # Inside

    def _destination(self) -> ClusterTopic:
        """Return the destination; raise ClusterRefusedError if it does not exist."""
        name = self._plan.destination
        found = self._cluster.existing_topics([name], self.owner.stopping)[name]
        if found.error == UNKNOWN_TOPIC:
            raise ClusterRefusedError(
                f"the cluster has no topic {name}: make it first, with as many partitions as "
                f"{self._plan.topic} has here"
            )
        if found.error:
            raise ClusterRefusedError(f"topic {name}: error {found.error} of the cluster")
        return found

    def _open_new(self, source: FollowedDirectory, topic: ClusterTopic) -> None:
        """Begin to forward partitions that are not forwarded yet."""
        wanted = self._plan.partitions
        for where in source.partitions():
            number = where.partition
            if number not in self._threads and (wanted is None or number in wanted):
                self._threads[number] = self._open(source, topic, where)
                self._threads[number].thread.start()

    def _open(
        self, source: FollowedDirectory, topic: ClusterTopic, where: TopicPartition
    ) -> _PartitionThread:
        plan, log = self._plan, source.log(where)
        self._refuse_loop(where)
        number = zlib.crc32(f"{self._cluster.cluster_id}/{topic.name}".encode())
        name = f"{where.directory}/{format_forward_file(number)}"
        lock = self._disk.lock(f"{name}.lock")
        try:
            committed = log.snapshot.visible_end(IsolationLevel.READ_COMMITTED).offset
            home = f"{machine_id()}/{self._disk.stat(where.directory).inode}"
            file = self._file(name, home, topic, (log.log_start_offset, committed))
        except BaseException:
            lock.close()
            raise
        sender = Sender(
            Destination(self._cluster, topic, where),
            file,
            Shaping(
                file.identity.producer_id,
                file.identity.producer_epoch,
                _MOST_BYTES,
                plan.compression,
                is_stamped=plan.is_stamped,
            ),
            self.owner.stopping,
            skips_too_large=plan.skips_too_large,
        )
        local = LocalPartition(source, log)
        partition = ForwardedPartition(local, sender, file, home, self.owner.stopping)
        partition.trusts_note = plan.resumes
        if plan.until_now:
            partition.until = committed
        thread = threading.Thread(
            target=self._work, args=(partition, topic), name=f"forward-{where}", daemon=True
        )
        return _PartitionThread(partition, thread, lock)

    def _refuse_loop(self, where: TopicPartition) -> None:
        mirror = read_mirror(self._disk, where.directory)
        if mirror is not None and mirror.cluster_id == self._cluster.cluster_id:
            raise ClusterRefusedError(
                f"{where} is a mirror of {mirror.describe()}, so it is not forwarded to the same "
                "cluster"
            )

    def _file(
        self, name: str, home: str, topic: ClusterTopic, ends: tuple[int, int]
    ) -> ForwardFile:
        """Return what is noted of a partition, or begin a note with its own producer."""
        plan = self._plan
        topic_id = "" if topic.topic_id == NO_ID else format_topic_id(topic.topic_id)
        try:
            file = ForwardFile.open(self._disk, name)
        except FileNotFoundError:
            file = None
        mode = "key" if plan.by_key else "same"
        if file is not None and not (plan.resumes and plan.start is not None):
            known = file.identity
            if known.topic_id != topic_id:
                raise ClusterRefusedError(
                    f"topic {topic.name} was deleted and made again at the destination: it has id "
                    f"{topic_id}, expected {known.topic_id}. --resume-at OFFSET begins with it"
                )
            if known.partitions != mode:
                raise ClusterRefusedError(
                    f"{name}: it was begun with --partitions {known.partitions}: continue with "
                    "that, or begin again with --resume-at OFFSET"
                )
            changed = known._replace(
                bootstrap=plan.bootstrap, hold_bytes=plan.hold_bytes, home=known.home or home
            )
            if changed != known:
                file.change(changed)
            return file
        if file is not None:
            file.close()
        start = plan.start
        if not isinstance(start, int):
            start = ends[1] if start == "end" else ends[0]
        producer_id, epoch = self._new_producer()
        identity = ForwardIdentity(
            self._cluster.cluster_id,
            plan.bootstrap,
            topic.name,
            topic_id,
            mode,
            len(topic.leaders),
            producer_id,
            epoch,
            start,
            plan.hold_bytes,
            home,
        )
        return ForwardFile.create(self._disk, name, identity)

    def _new_producer(self) -> tuple[int, int]:
        waits = self._cluster.back_off()
        while True:
            try:
                return self._cluster.new_producer_id()
            except BrokerError as error:
                if not error.is_retriable or self.owner.stopping.wait(waits.next_s()):
                    raise

    def _work(self, partition: ForwardedPartition, topic: ClusterTopic) -> None:
        """Forward a partition, over everything that passes by itself. In its thread."""
        waits, sent = self._cluster.back_off(), 0
        while not self.owner.stopping.is_set():
            try:
                pause_s = self._run_once(partition)
            except Exception as error:
                logger.exception("a bug in logfs: %s is not forwarded", partition.where)
                partition.failure = f"{partition.where}: a bug in logfs: {error!r}"
                return
            if pause_s is None:
                return
            if partition.sender.totals.records > sent:
                waits.succeeded()
            sent = partition.sender.totals.records
            self.owner.stopping.wait(pause_s + waits.next_s())
            with suppress(ClusterUnreachableError, ClusterRefusedError, BrokerError, OSError):
                found = self._cluster.topics([topic.name])[topic.name]
                if not found.error and found.topic_id != topic.topic_id:
                    partition.failure = (
                        f"{partition.where}: topic {topic.name} was deleted and made again at the "
                        "destination: --resume-at OFFSET begins with it"
                    )
                    return
                if not found.error:
                    partition.sender.destination.topic = found

    def _run_once(self, partition: ForwardedPartition) -> float | None:
        """Forward until something stops it; returns how long to wait, None if it has ended."""
        try:
            partition.run()
        except ForwardFailedError as error:
            partition.failure = str(error)
        except ClusterRefusedError as error:
            self.owner.refusal = error
            partition.sender.error = str(error)
            return REFUSED_S
        except (AskAgainError, ClusterUnreachableError, BrokerError, OSError) as error:
            partition.sender.error = str(error)
            partition.sender.totals.errors[type(error).__name__] += 1
            logger.warning("%s: %s", partition.where, error)
            return 0.0
        except LogfsError as error:
            partition.failure = str(error)
        return None

    def _has_begun(self) -> bool:
        return all(one.is_ready or one.failure for one in self.partitions)

    def _has_ended(self) -> bool:
        return not any(running.thread.is_alive() for running in self._threads.values())

    def summary(self) -> str:
        """Return the state in a sentence."""
        lag = sum(one.lag for one in self.partitions)
        failed = len(self.failures)
        state = f"{len(self._threads)} partitions to {self._plan.destination}, lag {lag} offsets"
        return state + (f", {failed} failed" if failed else "")

    def _show(self) -> None:
        self._report()
        if self._source is not None and self._topic is not None and not self._plan.until_now:
            self._open_new(self._source, self._topic)

    def _report(self, *, is_last: bool = False) -> None:
        """Note what ``.meta`` and the metrics show."""
        now_ms = round(time.time() * 1000)
        for one in self.partitions:
            state = FAILED if one.failure else STOPPED if is_last else RUNNING
            totals = one.sender.totals
            report: Mapping[str, object] = {
                "state": state,
                "error": (one.failure or one.sender.error)[:1000],
                "reported": now_ms,
                "bytes": totals.bytes,
                "records": totals.records,
                "retries": totals.retries,
                "losses": totals.losses,
                "produce_seconds": round(totals.produce_s, 3),
                "throttled_ms": totals.throttled_ms,
                "acknowledged": one.sender.acknowledged_ms,
            }
            with suppress(OSError):
                one.file.report(report)

    def _end(self) -> None:
        self.owner.stopping.set()
        for running in self._threads.values():
            running.partition.local.watch.wake()
        for running in self._threads.values():
            if running.thread.ident is not None:
                running.thread.join()
        self._report(is_last=True)
        for running in self._threads.values():
            try:
                running.partition.close()
            finally:
                running.partition.local.watch.close()
                running.lock.close()
        self._cluster.close()
        if self._source is not None:
            self._source.close()
