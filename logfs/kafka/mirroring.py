"""Mirrors: their topics, the leaders of these, and the threads that fetch.

``Mirror.run`` looks topics and leaders up, every few minutes and when a fetcher asks for it.
It gives each partition to the ``Fetcher`` of the broker that it is to be fetched from.
"""

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from logfs.errors import (
    BrokerError,
    ClusterRefusedError,
    ClusterUnreachableError,
    LogfsError,
    MirrorError,
    TopicExistsError,
)
from logfs.kafka.cluster import EARLIEST, LATEST, NO_ID, UNKNOWN_TOPIC, Cluster, ClusterTopic
from logfs.kafka.copying import ClusterCopy
from logfs.kafka.fetcher import Fetcher
from logfs.kafka.mirrored import MirroredPartition
from logfs.kafka.selection import OnRecreate, TopicSelection, local_config
from logfs.kafka.targets import MirrorTarget
from logfs.log.mirrorfile import FAILED, MIRRORING, STOPPED, MirrorSource
from logfs.log.names import format_topic_id
from logfs.services.clusters.mirrors import MirrorEnd
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_TICK_S = 0.5
_NOT_AUTHORIZED = 29


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """What is to be mirrored, and how.

    Attributes:
        selection: Topics, and their local names.
        bootstrap: The brokers as they were given.
        start: The start of a new mirror: ``EARLIEST``, ``LATEST`` or epoch milliseconds.
        keep: ``source``, ``forever`` or a duration, as it was given.
        keep_ms: ``retention.ms`` for it; None: as the source, and its log start is followed.
        until_now: End when everything is there that was at the source at the start.
    """

    selection: TopicSelection
    bootstrap: str
    start: int = EARLIEST
    keep: str = "source"
    keep_ms: str | None = None
    until_now: bool = False
    on_recreate: OnRecreate = OnRecreate.STOP


@dataclass(slots=True)
class _Topic:
    """A topic that is mirrored; ``failure`` says why it has stopped, and so does ``noted``."""

    local: str
    source: ClusterTopic
    partitions: dict[int, MirroredPartition] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    noted: str = ""


class Mirror(ClusterCopy):
    """Mirrors topics of a cluster.

    Args:
        cluster: The cluster.
        target: The directory for its topics.
        plan: The plan of what is mirrored.
        say: Called with a line for people when something changes.
    """

    def __init__(
        self,
        cluster: Cluster,
        target: MirrorTarget,
        plan: MirrorPlan,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(cluster, say)
        self._target = target
        self._plan = plan
        self._topics: dict[str, _Topic] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._missing: set[str] = set()

    def run(self) -> None:
        """Mirror until told to stop, or until everything is there.

        Raises:
            ClusterUnreachableError: No broker answered, at the first attempt.
            ClusterRefusedError: The cluster refuses the client.
            LogfsError, OSError: The local topics cannot be made.
        """
        waits = self._cluster.back_off()
        next_look_s = 0.0
        try:
            while not self.owner.stopping.is_set():
                if time.monotonic() >= next_look_s:
                    pause_s = self._cluster.settings.metadata_max_age_ms / 1000
                    if not self._look():
                        pause_s = waits.next_s()
                    else:
                        waits.succeeded()
                    next_look_s = time.monotonic() + pause_s
                if self.owner.wait(_TICK_S):
                    next_look_s = min(next_look_s, time.monotonic() + waits.next_s())
                self._tick()
        finally:
            self.owner.stopping.set()
            for fetcher in self._fetchers.values():
                fetcher.join()
            self._cluster.close()
            self._target.keep_up(is_last=True)

    @property
    def partitions(self) -> list[MirroredPartition]:
        """Every partition that is mirrored."""
        return [one for topic in self._topics.values() for one in topic.partitions.values()]

    @property
    def failures(self) -> list[str]:
        """Why topics and partitions do not continue."""
        found = [topic.failure for topic in self._topics.values() if topic.failure]
        return [*found, *(one.failure for one in self.partitions if one.failure)]

    @property
    def losses(self) -> int:
        """How often records were cut or missed."""
        return sum(one.losses for one in self.partitions)

    # Topics and leaders

    def _look(self) -> bool:
        """Look topics and leaders up; returns whether everything has a leader."""
        selection = self._plan.selection
        names = None if selection.has_expressions else selection.exact
        try:
            found = self._topics_named(names)
            wanted = selection.chosen(found)
            settled = [self._look_at(found[name]) for name in wanted]
            self._report_missing(set(selection.exact) - {n for n in wanted if not found[n].error})
        except (ClusterUnreachableError, BrokerError) as error:
            if not self._topics and isinstance(error, ClusterUnreachableError):
                raise
            self._say(f"{error}; trying again")
            return False
        except ClusterRefusedError:
            raise
        except (LogfsError, OSError) as error:
            if not self._is_ready:
                raise
            self._say(f"{error}; trying again")
            return False
        self._distribute()
        return all(settled)

    def _topics_named(self, names: Sequence[str] | None) -> dict[str, ClusterTopic]:
        if names is not None and self._plan.until_now:
            return self._cluster.existing_topics(names, self.owner.stopping)
        return self._cluster.topics(names)

    def _look_at(self, topic: ClusterTopic) -> bool:
        if topic.error:
            if topic.error == _NOT_AUTHORIZED:
                raise ClusterRefusedError(f"topic {topic.name}: the client may not read it")
            return topic.error == UNKNOWN_TOPIC
        known = self._topics.get(topic.name)
        is_new = known is None or known.source.topic_id != topic.topic_id
        if known is None:
            known = self._topics[topic.name] = _Topic(self._plan.selection.local(topic.name), topic)
        if known.failure:
            return True
        if is_new or len(topic.leaders) > len(known.partitions):
            self._open(known, topic)
        known.source = topic
        for number, partition in known.partitions.items():
            leader = topic.leaders.get(number, partition.leader)
            if leader != partition.leader:
                partition.leader, partition.is_unchecked = leader, True
        return all(leader.node >= 0 for leader in topic.leaders.values())

    def _open(self, known: _Topic, topic: ClusterTopic) -> None:
        """Make or look up the local topic, and the state of the partitions that are new."""
        source = MirrorSource(
            self._cluster.cluster_id,
            self._plan.bootstrap,
            topic.name,
            "" if topic.topic_id == NO_ID else format_topic_id(topic.topic_id),
            self._plan.keep,
        )
        known.config = self._config(topic.name)
        count = max(topic.leaders) + 1
        try:
            ends = self._open_as_wanted(known, count, source)
        except MirrorError as error:
            known.failure = str(error)
            known.partitions.clear()
            self._say(str(error))
            self._target.note_state(known.local, FAILED, str(error))
            return
        for end in ends:
            if end.partition in topic.leaders and end.partition not in known.partitions:
                known.partitions[end.partition] = self._begin(known, topic, end)

    def _open_as_wanted(self, known: _Topic, count: int, source: MirrorSource) -> list[MirrorEnd]:
        mine = self._target.sources().get(known.local)
        is_recreated = (
            mine is not None
            and (mine.cluster_id, mine.topic) == (source.cluster_id, source.topic)
            and mine.topic_id != source.topic_id
        )
        if mine is not None and is_recreated:
            again = f"topic {source.topic} was made again at the source"
            match self._plan.on_recreate:
                case OnRecreate.REPLACE:
                    self._say(f"{again}: its mirror is replaced")
                    known.partitions.clear()
                    self._target.delete(known.local)
                case OnRecreate.KEEP:
                    known.partitions.clear()
                    self._target.note_state(known.local, STOPPED, again)
                    kept = self._rename_to_keep(known.local, mine)
                    self._say(f"{again}: its mirror is kept as {kept}")
                case OnRecreate.STOP:
                    pass
        return self._target.open(known.local, count, known.config, source)

    def _rename_to_keep(self, local: str, mine: MirrorSource) -> str:
        """Put today's date into the name of a topic; returns the new name.

        It is another date where a stop has interrupted this before.
        """
        for name, other in self._target.sources().items():
            if name.startswith(f"{local}.") and other.is_same_topic(mine):
                self._target.rename(local, name)
                return name
        day = f"{local}.{time.strftime('%Y-%m-%d')}"
        for name in itertools.chain([day], (f"{day}.{number}" for number in itertools.count(2))):
            with contextlib.suppress(TopicExistsError):
                self._target.rename(local, name)
                return name
        raise AssertionError("some name is free")

    def _config(self, topic: str) -> dict[str, str]:
        try:
            found = self._cluster.topic_configs(topic)
        except BrokerError as error:
            logger.warning("topic %s: its settings are not copied: %s", topic, error)
            found = {}
        return local_config(found, self._plan.keep_ms)

    def _begin(self, known: _Topic, topic: ClusterTopic, end: MirrorEnd) -> MirroredPartition:
        partition = MirroredPartition(
            TopicPartition(known.local, end.partition),
            topic.name,
            topic.topic_id,
            topic.leaders[end.partition],
            self._plan.keep_ms is None,
            end.log_start_offset,
            end.log_end_offset,
        )
        node, number = partition.leader.node, end.partition
        if self._plan.until_now:
            partition.until = self._offset_at(node, topic.name, number, LATEST)
        if end.log_end_offset == 0 and self._plan.start != EARLIEST:
            offset = self._offset_at(node, topic.name, number, self._plan.start)
            if offset < 0:
                offset = self._offset_at(node, topic.name, number, LATEST)
            if offset > 0 and self._plan.start == LATEST:
                self._target.start_at(partition.where, offset)
                partition.start = partition.end = offset
            elif offset > 0:
                partition.resume_at = offset
        return partition

    def _offset_at(self, node: int, topic: str, number: int, moment: int) -> int:
        return self._cluster.list_offsets(node, topic, {number: moment})[number][0]

    def _report_missing(self, missing: set[str]) -> None:
        for name in sorted(missing - self._missing):
            text = f"topic {name}: the cluster has no such topic"
            if self._plan.until_now:
                raise ClusterRefusedError(text)
            self._say(f"{text}; waiting for it" if name not in self._topics else f"{text} any more")
        self._missing = missing

    def _distribute(self) -> None:
        """Give each partition to the fetcher of its broker."""
        by_node: dict[int, list[MirroredPartition]] = {}
        for one in self.partitions:
            node = one.node if one.node in self._cluster.brokers else one.leader.node
            if node >= 0:
                by_node.setdefault(node, []).append(one)
        for node, fetcher in self._fetchers.items():
            fetcher.assign(by_node.get(node, ()))
        for node, rows in by_node.items():
            if node not in self._fetchers:
                target = self._target.for_thread()
                fetcher = self._fetchers[node] = Fetcher(self._cluster, node, target, self.owner)
                fetcher.assign(rows)
                fetcher.start()

    # Between looks

    def _keep_up(self) -> None:
        self._target.keep_up()

    def _has_begun(self) -> bool:
        return all(one.contact_ms or one.failure or one.is_done for one in self.partitions)

    def _has_ended(self) -> bool:
        if self._plan.until_now and all(one.is_done or one.failure for one in self.partitions):
            return True
        return bool(self._topics) and len(self.failures) > 0 and not self._goes_on()

    def _goes_on(self) -> bool:
        """Whether a topic is left to mirror, or may come."""
        is_any = any(not topic.failure for topic in self._topics.values())
        return is_any and any(not one.failure for one in self.partitions)

    def summary(self) -> str:
        """Return the state in a sentence."""
        partitions = self.partitions
        lag = sum(one.lag for one in partitions)
        failed = len(self.failures)
        state = f"{len(partitions)} partitions of {len(self._topics)} topics, lag {lag} offsets"
        return state + (f", {failed} failed" if failed else "")

    def _show(self) -> None:
        """Give the daemon what ``.meta`` and the metrics show, and note failures durably."""
        try:
            for topic in self._topics.values():
                why = next((one.failure for one in topic.partitions.values() if one.failure), "")
                if topic.partitions and why != topic.noted:
                    state = FAILED if why else MIRRORING
                    self._target.note_state(topic.local, state, why)
                    topic.noted = why
            self._target.show(self._facts())
        except (LogfsError, OSError) as error:
            logger.debug("%s", error)

    def _facts(self) -> dict[str, object]:
        return {
            f"{one.where.topic}/{one.where.partition}": {
                "leader": one.leader.node,
                "leader_epoch": one.leader.epoch,
                "source_log_start_offset": one.source_start,
                "source_high_watermark": one.high_watermark,
                "lag_records": one.lag,
                "last_contact": one.contact_ms or None,
                "bytes": one.bytes,
                "records": one.records,
                "losses": one.losses,
                "throttled_ms": one.throttled_ms,
                "errors": dict(one.errors),
                "fetches": {**one.fetches.as_json(), "counts": list(one.fetches.counts)},
                "state": FAILED if one.failure else MIRRORING,
                "error": one.failure or one.error,
            }
            for one in self.partitions
        }
