"""Mirrors of topics of a cluster: how they are made, cut, and ended.

Which records a mirror has is decided by its source. What is done to a mirror for its source's sake
is here; what fetches is in ``logfs.kafka``. Each function may be repeated after any error or stop.
"""

from collections.abc import Mapping
from typing import NamedTuple

from logfs.errors import MirrorError, NoSuchTopicError, OffsetOutOfRangeError
from logfs.log.losses import DIVERGED, MISSED
from logfs.log.mirrorfile import MirrorFacts, MirrorSource
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.log.writing.replication import Replicated
from logfs.log.writing.truncation import copy_tail
from logfs.records.compression import Buffer


class MirrorEnd(NamedTuple):
    """Where a partition of a mirror begins and ends, and the leader epoch of its last record.

    ``last_epoch`` is -1 if the partition is empty or the epoch is not known.
    """

    partition: int
    log_start_offset: int
    log_end_offset: int
    last_epoch: int


def open_mirror(
    store: LogStore,
    topic: str,
    partitions: int,
    config: Mapping[str, str],
    source: MirrorSource,
    now_ms: int,
) -> list[MirrorEnd]:
    """Make a mirror, or look it up; it gets the partitions and the settings of its source.

    Args:
        store: The store.
        topic: Its local name.
        partitions: How many the source has.
        config: The settings to have; others that the topic has stay.
        source: The source of the mirror; its topic id, if there is one, becomes the local one.
        now_ms: The clock.

    Returns:
        The partitions, by number.

    Raises:
        MirrorError: There is a topic of that name that is no mirror, or one of another topic.
        LogfsError, OSError: See ``LogStore.create_topic``, ``grow_topic`` and ``alter_topic``.
    """
    if topic not in store.topics():
        store.create_topic(topic, partitions, config, now_ms, mirror=source)
    logs = [store.partition(topic, number) for number in store.partitions(topic)]
    for log in logs:
        check_same(log, source)
    if partitions > len(logs):
        store.grow_topic(topic, partitions, now_ms, mirror=source)
    present = store.topic_properties(topic)
    changes: dict[str, str | None] = {k: v for k, v in config.items() if present.get(k) != v}
    if changes:
        store.alter_topic(topic, changes)
    for log in logs:
        if log.mirror != source:
            log.set_mirror(source)
    return mirror_ends(store, topic)


def mirror_ends(store: LogStore, topic: str) -> list[MirrorEnd]:
    """Return where the partitions of a mirror begin and end."""
    return [end_of(store.partition(topic, number)) for number in sorted(store.partitions(topic))]


def end_of(log: PartitionLog) -> MirrorEnd:
    """Return where a partition begins and ends."""
    return MirrorEnd(
        log.topic_partition.partition, log.log_start_offset, log.log_end_offset, log.last_epoch
    )


def check_same(log: PartitionLog, source: MirrorSource) -> None:
    """Refuse by a MirrorError a partition that is no mirror of a topic."""
    log.check_writable()
    mine = log.mirror
    if mine is None:
        raise MirrorError(
            f"{log.topic_partition} is an ordinary partition, not a mirror: choose another name "
            "for the mirror with --prefix, or rename or delete the topic"
        )
    if not mine.is_same_topic(source):
        how = "which was deleted and made again" if mine.topic == source.topic else ""
        if mine.cluster_id != source.cluster_id:
            how = f"of cluster {source.cluster_id}"
        raise MirrorError(
            f"{log.topic_partition} is a mirror of {mine.describe()} with id {mine.topic_id}, not "
            f"of topic {source.topic} with id {source.topic_id}{', ' if how else ''}{how}"
        )


def check_mirror(log: PartitionLog) -> PartitionLog:
    """Return a partition that is a mirror; refuse by a MirrorError one that is none."""
    if log.mirror is None:
        raise MirrorError(f"{log.topic_partition} is no mirror, so nothing is replicated to it")
    return log


def cut(log: PartitionLog, offset: int, why: str, now_ms: int) -> None:
    """Remove the end of a mirror that its source has lost, after a copy of it; a loss.

    Raises:
        MirrorError: It is no mirror, or what is to be removed is in the object store.
        OffsetOutOfRangeError: The offset is not in the log.
        LogfsError, OSError: See ``PartitionLog.truncate_to``.
    """
    with check_mirror(log).exclusive():
        end = log.log_end_offset
        if offset == end:
            return
        stored = 0 if log.tier is None else log.tier.next_offset or 0
        if offset < stored:
            raise MirrorError(
                f"{log.topic_partition}: {why}. The mirror has records up to offset {end - 1}, "
                f"those up to offset {stored - 1} in the object store, where nothing is cut. It "
                "keeps all of them, and takes no new ones. Mirror the topic again: under another "
                "name with --prefix, or after 'logfs topic delete'"
            )
        copies = copy_tail(log.state, offset)
        if copies:
            offset = min(offset, copies[0].base_offset)
            first, where = copies[0], ", ".join(copy.name for copy in copies)
            detail = f"{why}: offsets {offset} to {end - 1} were cut; a copy is in {where}"
            size = sum(copy.size for copy in copies)
            log.add_loss(DIVERGED, first.file, first.position, size, detail, now_ms)
        log.truncate_to(offset, now_ms)


def skip_to(log: PartitionLog, offset: int, why: str, now_ms: int) -> None:
    """Continue after records that the source has deleted before they were fetched; a loss.

    Raises:
        MirrorError, OffsetOutOfRangeError, LogfsError, OSError: See ``continue_at``.
    """
    with check_mirror(log).exclusive():
        end = log.log_end_offset
        if offset == end:
            return
        file = log.snapshot.active.name.rpartition("/")[2]
        log.replication.continue_at(offset, now_ms)
        detail = f"{why}: offsets {end} to {offset - 1} were never here"
        log.add_loss(MISSED, file, 0, 0, detail, now_ms)


def promote(store: LogStore, topic: str) -> None:
    """Make a mirror an ordinary topic, which takes appends.

    Raises:
        MirrorError: It is none.
        NoSuchTopicError, LogfsError, OSError.
    """
    logs = [store.partition(topic, number) for number in store.partitions(topic)]
    if not logs:
        raise NoSuchTopicError(f"there is no topic {topic}")
    if all(log.mirror is None for log in logs):
        raise MirrorError(f"topic {topic} is no mirror: it takes appends already")
    for log in logs:
        if log.mirror is not None:
            log.set_mirror(None)


def note_state(store: LogStore, topic: str, state: str, reason: str) -> None:
    """Note whether a mirror continues, and why not. Nothing if the topic is no mirror any more."""
    for number in store.partitions(topic):
        log = store.partition(topic, number)
        mine = log.mirror
        if mine is not None and (mine.state, mine.reason) != (state, reason):
            log.set_mirror(mine._replace(state=state, reason=reason))


def sources(store: LogStore) -> dict[str, MirrorSource]:
    """Return every topic that is a mirror, and of what."""
    found = {}
    for topic in store.topics():
        numbers = sorted(store.partitions(topic))
        source = store.partition(topic, numbers[0]).mirror if numbers else None
        if source is not None:
            found[topic] = source
    return found


def replicate(log: PartitionLog, expected: int, batches: Buffer, now_ms: int) -> Replicated:
    """Append batches to a mirror that ends where expected; see ``append_replica``.

    Raises:
        OffsetOutOfRangeError: It ends elsewhere: another mirror writes to it, or the call was
            carried out before.
        MirrorError, LogfsError, OSError: See ``append_replica``.
    """
    with check_mirror(log).exclusive():
        if log.log_end_offset != expected:
            raise OffsetOutOfRangeError(expected, log.log_start_offset, log.log_end_offset)
        return log.replication.append_replica(batches, now_ms)


def advance(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Delete the records before an offset, because the source did; none beyond the log end."""
    with check_mirror(log).exclusive():
        offset = min(offset, log.log_end_offset)
        if offset > log.log_start_offset:
            log.advance_log_start_offset(offset, now_ms)


def show(store: LogStore, facts: Mapping[str, Mapping[str, object]], now_ms: int) -> None:
    """Let ``.meta`` and metrics show what is known of mirrors.

    Args:
        store: The store.
        facts: By ``topic/partition``; other partitions and those that are no mirrors do not count.
        now_ms: The clock.
    """
    for topic in store.topics():
        for number in store.partitions(topic):
            log, row = store.partition(topic, number), facts.get(f"{topic}/{number}")
            if row is not None and log.mirror is not None:
                log.state.mirror_facts = MirrorFacts(dict(row), now_ms)
