"""The state of a data directory, from its daemon, from a read-only mount, or from its files."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from logfs.client import Daemon
from logfs.disk.vfs import Disk
from logfs.errors import LogfsError, NoSuchTopicError
from logfs.library.directory import all_partitions, open_for_reading, partitions_named
from logfs.library.group_lags import GroupLag, all_lags
from logfs.library.mounted_disk import reading_disk
from logfs.library.owner import data_directory, shown_level
from logfs.library.places import Place, served_at
from logfs.log import names
from logfs.log.groups.coding import OFFSETS_TOPIC
from logfs.log.names import FileKind
from logfs.log.reading.address import SEGMENTS_NAME
from logfs.log.store import was_clean
from logfs.machine.host import current_host, system_clock
from logfs.records.jsontext import decode_object
from logfs.services.overview import PartitionOverview, TopicOverview, topic_overview
from logfs.types import TopicPartition

LARGEST_APPEND_BYTES = 1024 * 1024
"""The most bytes of one write(2): the kernel's largest request."""


class Status(NamedTuple):
    """A data directory and the daemon that serves it.

    Attributes:
        daemon: Facts about the daemon: pid, mountpoint, options, started_ms, version, was_clean,
            sealed_files; fewer for a read-only mount. None if no daemon serves the directory.
        metrics: The daemon's metrics that do not belong to single topics; None if it was not asked.
        is_read_only: The daemon changes nothing.
        is_foreign: Another program has the lock: a broker, a job, another command.
        is_clean: The last stop was clean; None while a program has the lock.
        free_bytes: Free space of its file system.
        groups: The positions of consumer groups in these partitions; none if this user may not read
            them.
        is_full: The free space is too small for an append, or no more files can be created.
    """

    data: str
    daemon: dict[str, Any] | None
    metrics: dict[str, Any] | None
    is_read_only: bool
    is_foreign: bool
    is_clean: bool | None
    free_bytes: int
    is_full: bool
    topics: list[TopicOverview]
    groups: list[GroupLag]

    def as_json(self) -> dict[str, Any]:
        """Return it for JSON."""
        topics = [
            {**topic._asdict(), "partitions": [row._asdict() for row in topic.partitions]}
            for topic in self.topics
        ]
        groups = [row.as_json() for row in self.groups]
        return {**self._asdict(), "topics": topics, "groups": groups}

    @property
    def partitions(self) -> list[PartitionOverview]:
        """Every partition."""
        return [row for topic in self.topics for row in topic.partitions]


def look(place: Place, since_ms: int) -> Status:
    """Return the state of a data directory, or of some of its partitions, without older losses.

    Raises:
        LogfsError: There is no such topic or partition, or the daemon cannot be asked.
    """
    data, disk = data_directory(place), reading_disk(place)
    only = partitions_named(disk, place.address)
    room = _room(disk.free())
    wanted = all_partitions(disk) if only is None else only
    groups = _groups(place, wanted)
    try:
        daemon = Daemon.connect(data)
    except PermissionError:
        daemon = None  # another user's: its mount still answers
    if daemon is not None:
        with daemon:
            facts = daemon.status()
            topics = list(_from_daemon(daemon, wanted, since_ms))
            return Status(data, facts, daemon.metrics(), False, False, None, *room, topics, groups)
    point = place.root if place.is_mount else served_at(data)
    if point is not None:
        topics = list(_from_mount(point, wanted, since_ms))
        is_read_only = bool(os.statvfs(point).f_flag & os.ST_RDONLY)
        facts = _facts_of(point)
        return Status(data, facts, None, is_read_only, False, None, *room, topics, groups)
    is_foreign = disk.is_locked(names.LOCK_FILE)
    is_clean = None if is_foreign else was_clean(disk, current_host().boot_id) or not wanted
    topics = list(_from_files(disk, wanted, since_ms))
    return Status(data, None, None, False, is_foreign, is_clean, *room, topics, groups)


def _groups(place: Place, wanted: Sequence[TopicPartition]) -> list[GroupLag]:
    """Return the positions of groups in some partitions; none if they cannot be read."""
    found = set(wanted)
    if place.is_remote or (not place.address and not any(t == OFFSETS_TOPIC for t, _ in found)):
        return []
    with contextlib.suppress(LogfsError, OSError):
        lags = all_lags(place._replace(address=()), shown_level(place))
        return [lag for lag in lags if TopicPartition(lag.topic, lag.partition) in found]
    return []


def _room(found: os.statvfs_result) -> tuple[int, bool]:
    """Return the free bytes of a file system, and whether it is full."""
    free_bytes = found.f_bavail * found.f_frsize
    if found.f_flag & os.ST_RDONLY:
        return free_bytes, False
    has_no_inodes = found.f_files > 0 and found.f_favail == 0
    return free_bytes, free_bytes < LARGEST_APPEND_BYTES or has_no_inodes


def _by_topic(wanted: Sequence[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(wanted):
        found.setdefault(topic, []).append(number)
    return found


def _from_daemon(
    daemon: Daemon, wanted: Sequence[TopicPartition], since_ms: int
) -> Iterator[TopicOverview]:
    for topic, numbers in _by_topic(wanted).items():
        with contextlib.suppress(NoSuchTopicError):  # deleted meanwhile
            yield _ask(daemon, topic, numbers, since_ms)


def _ask(daemon: Daemon, topic: str, numbers: Sequence[int], since_ms: int) -> TopicOverview:
    """Ask for a topic, as many partitions at once as one answer has."""
    rows: list[PartitionOverview] = []
    first = numbers[0]
    while True:
        found = daemon.overview(topic, first, since_ms)
        rows += [row for row in found.partitions if row.partition in numbers]
        if not found.partitions or found.partitions[-1].partition >= numbers[-1]:
            return found._replace(partitions=rows)
        first = found.partitions[-1].partition + 1


def _facts_of(point: str) -> dict[str, Any]:
    return {"mountpoint": point, "pid": int(os.getxattr(point, "user.logfs.pid"))}


def _from_mount(
    point: str, wanted: Sequence[TopicPartition], since_ms: int
) -> Iterator[TopicOverview]:
    for topic, numbers in _by_topic(wanted).items():
        tps = [TopicPartition(topic, number) for number in numbers]
        rows = [_from_meta(point, one, since_ms) for one in tps]
        yield TopicOverview(topic, _has_config(point, tps[0]), [], len(numbers), rows)


def _has_config(point: str, topic_partition: TopicPartition) -> bool | None:
    """Return whether a topic has its own configuration; None if that cannot be read."""
    directory = Path(point, SEGMENTS_NAME, topic_partition.directory)
    try:
        (directory / names.TOPIC_CONFIG).stat()
    except FileNotFoundError:
        return False
    except OSError:  # this user may not, or the disk cannot
        return None
    return True


def _from_meta(point: str, topic_partition: TopicPartition, since_ms: int) -> PartitionOverview:
    """Return what the mount shows of a partition; nothing if this user may not read it."""
    topic, number = topic_partition
    try:
        meta = decode_object(Path(point, topic, f"{number}.meta").read_bytes())
    except PermissionError:
        return PartitionOverview(topic, number)
    losses = [loss for loss in meta["losses"] if loss["time_ms"] >= since_ms]
    text = meta["positions"]["text"]
    return PartitionOverview(
        meta["topic"],
        meta["partition"],
        segments=meta["segments"],
        size_bytes=meta["size_bytes"],
        shown_bytes=text["end"],
        log_start_offset=meta["log_start_offset"],
        log_end_offset=meta["log_end_offset"],
        newest_timestamp=meta["max_timestamp"],
        losses=len(losses),
        last_loss=losses[-1] if losses else None,
        offline=meta["offline"],
    )


def _from_files(
    disk: Disk, wanted: Sequence[TopicPartition], since_ms: int
) -> Iterator[TopicOverview]:
    """Load the partitions that have a segment table; others would have to be scanned."""
    ours = [tp for tp in wanted if _has_table(disk, tp)]
    store = open_for_reading(disk, ours)
    now_ms = system_clock().now_ms()
    for topic, numbers in _by_topic(wanted).items():
        told = TopicOverview(topic, False, [], len(numbers), [])
        if topic in store.topics():
            told = topic_overview(store, topic, now_ms, since_ms)
        known = {row.partition: row for row in told.partitions}
        rows = [known.get(n) or _from_names(disk, TopicPartition(topic, n)) for n in numbers]
        yield told._replace(partition_count=len(numbers), partitions=rows)


def _has_table(disk: Disk, topic_partition: TopicPartition) -> bool:
    try:
        return disk.exists(f"{topic_partition.directory}/{names.SEGMENT_TABLE}")
    except OSError:
        return True  # loading it says what the disk cannot read


def _from_names(disk: Disk, topic_partition: TopicPartition) -> PartitionOverview:
    """Return what the names and sizes of the files of a partition show."""
    directory, size, bases = topic_partition.directory, 0, list[int]()
    try:
        for name, _ in disk.list(directory):
            parsed = names.parse_segment_file(name)
            if parsed is not None and parsed.kind is FileKind.LOG and not parsed.suffix:
                size += disk.stat(f"{directory}/{name}").size
                bases.append(parsed.base_offset)
    except OSError as error:  # a symbolic link, or what the disk cannot read
        return PartitionOverview(*topic_partition, offline=str(error), is_unreadable=True)
    return PartitionOverview(
        *topic_partition,
        segments=len(bases),
        size_bytes=size,
        log_start_offset=min(bases, default=0),
    )
