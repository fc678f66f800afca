"""The content of ``logfs status`` for partitions and topics.

No log is scanned: offsets, positions and sizes come from the segment table, times and rates from
look-ups in the time index.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from logfs.disk.remote.overlay import is_stored
from logfs.disk.vfs import Disk
from logfs.errors import LogfsError
from logfs.log.catalog import Catalog
from logfs.log.losses import Loss
from logfs.log.reading.lookup import offset_for_time, positions_of_offset, timestamp_of
from logfs.log.reading.readable import ReadableLog
from logfs.log.remote.rows import TieredRows
from logfs.log.segments.table import SegmentState, SegmentTable
from logfs.services.meta import remote_facts
from logfs.types import View

RATE_MS = 300_000
"""Rates are those of the last five minutes, or since the oldest record if that is younger."""
_LEAST_MS = 1000


class PartitionOverview(NamedTuple):
    """A partition; fit for JSON. None means not known.

    Attributes:
        size_bytes: Size of the ``.log`` files.
        kept_bytes: Length of the retained values, as text.
        shown_bytes: Size of the file in a mount.
        oldest_timestamp, newest_timestamp: That of the first retained record, and the largest.
        records_per_second, bytes_per_second: Recent rates of appends; bytes of text.
        offline: Why it accepts no appends; None if it does.
        is_unreadable: The partition cannot be read either.
        mirror: The source of a mirror as ``.meta`` shows it; None: it is no mirror.
        forwards: The clusters to which it is forwarded, as ``.meta`` shows them.
    """

    topic: str
    partition: int
    segments: int | None = None
    size_bytes: int | None = None
    kept_bytes: int | None = None
    shown_bytes: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    oldest_timestamp: int | None = None
    newest_timestamp: int | None = None
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    losses: int = 0
    last_loss: dict[str, object] | None = None
    offline: str | None = None
    is_unreadable: bool = False
    mirror: dict[str, object] | None = None
    forwards: Sequence[dict[str, object]] = ()


class TextLengths(NamedTuple):
    """Lengths of a partition as text that its segment table contains.

    Attributes:
        kept: Length of the retained values, without the active segment.
        active: Position at which the active segment begins; None if there is none.
        end: Position of the end; None if it is in the active segment.
    """

    kept: int
    active: int | None
    end: int | None


def text_lengths(disk: Disk, directory: str) -> TextLengths | None:
    """Return the lengths of a partition; None if its table is empty.

    Raises:
        LogfsError, OSError: The table cannot be read.
    """
    entries = SegmentTable.load(disk, directory).entries
    if not entries:
        return None
    last = entries[max(entries)]
    kept = sum(e.lengths.text for e in entries.values() if e.state is not SegmentState.OPEN)
    active = last.bases.text if last.state is SegmentState.OPEN else None
    return TextLengths(kept, active, last.ends.text if last.state is SegmentState.CLOSED else None)


def tiered_bytes(disk: Disk, directory: str) -> int:
    """Return the bytes of the objects of a partition; 0 if they are not known."""
    try:
        rows = TieredRows.load(disk, directory)
    except (LogfsError, OSError):
        return 0
    entries = [] if rows is None else rows.entries.values()
    return sum(entry.size_bytes + sum(entry.lengths) for entry in entries)


class TopicOverview(NamedTuple):
    """A topic; fit for JSON.

    Attributes:
        has_config: The topic has its own configuration; one that a broker made has none, and is
            never trimmed or compacted. None: not known.
        expired: A sentence for each of them whose every record is older than ``retention.ms``.
        quota: The quotas as ``.meta`` shows them; None: it has none.
    """

    topic: str
    has_config: bool | None
    warnings: list[str]
    partition_count: int
    partitions: list[PartitionOverview]
    expired: Sequence[str] = ()
    quota: Mapping[str, int | float] | None = None


def topic_overview(
    store: Catalog[ReadableLog],
    topic: str,
    now_ms: int,
    since_ms: int = 0,
    first: int = 0,
    limit: int = 1 << 31,
) -> TopicOverview:
    """Describe a topic; raise NoSuchTopicError if there is none."""
    numbers = store.partitions(topic)
    wanted = [number for number in numbers if number >= first][:limit]
    logs = [store.partition(topic, number) for number in wanted]
    has_config = store.has_config(topic)
    return TopicOverview(
        topic,
        has_config,
        [*store.config_warnings(topic), *_remote_warnings(logs)],
        len(numbers),
        [partition_overview(log, now_ms, since_ms) for log in logs],
        [text for log in logs if has_config for text in _expired(log, now_ms)],
        logs[0].quota_meta if logs else None,
    )


def _expired(log: ReadableLog, now_ms: int) -> Iterator[str]:
    """Warn that retention is about to delete all records, for example imported ones."""
    config, snapshot = log.config, log.snapshot
    newest = max([snapshot.end.max_timestamp, *snapshot.maxima[-1:]])
    has_records = snapshot.start.offset < snapshot.end.offset
    if has_records and config.is_expiring and 0 <= newest < now_ms - config.retention_ms:
        yield (
            f"partition {log.topic_partition.partition}: its newest record is older than "
            f"retention.ms={config.retention_ms}, so all its records are about to be deleted; to "
            "keep them, set retention.ms to more, or to -1"
        )


def _remote_warnings(logs: Sequence[ReadableLog]) -> Iterator[str]:
    """Say why segments are not copied to the object store."""
    for log in logs:
        facts = remote_facts(log)
        if facts is not None and facts["error"] is not None:
            yield (
                f"partition {log.topic_partition.partition}: nothing is copied to the object "
                f"store: {facts['error']}"
            )


def partition_overview(log: ReadableLog, now_ms: int, since_ms: int = 0) -> PartitionOverview:
    """Describe a partition."""
    losses = [loss for loss in log.losses if loss.time_ms >= since_ms]
    topic, partition = log.topic_partition
    told = PartitionOverview(
        topic,
        partition,
        losses=len(losses),
        last_loss=_last(losses),
        offline=log.offline,
        is_unreadable=log.is_unreadable,
        mirror=log.mirror_meta,
        forwards=log.forward_meta,
    )
    if log.is_unreadable:
        return told
    snapshot = log.snapshot
    sealed, active = snapshot.segments[:-1], snapshot.active
    start, end = snapshot.start, snapshot.end
    newest = max([end.max_timestamp, *snapshot.maxima[-1:]])
    kept = sum(segment.lengths.text for segment in sealed) + end.positions.text - active.bases.text
    told = told._replace(
        segments=len(snapshot.segments),
        size_bytes=snapshot.size_bytes,
        # Without the records of the first segment before the start; gaps in it are small.
        kept_bytes=max(kept - (start.positions.text - snapshot.segments[0].bases.text), 0),
        shown_bytes=end.positions[View.TEXT],
        log_start_offset=start.offset,
        log_end_offset=end.offset,
        newest_timestamp=None if newest < 0 else newest,
    )
    try:
        return _with_times(told, log, now_ms)
    except (LogfsError, OSError):
        return told  # damaged or just deleted; the rest is known


def _with_times(told: PartitionOverview, log: ReadableLog, now_ms: int) -> PartitionOverview:
    snapshot = log.snapshot
    if is_stored(log.disk, snapshot.segments[0].name):
        # Without asking the store.
        found = snapshot.segments[0].first_timestamp
        return told._replace(oldest_timestamp=None if found < 0 else found)
    first = offset_for_time(snapshot, 0)
    oldest = None if first is None else timestamp_of(snapshot, first)
    begin_ms = max(now_ms - RATE_MS, oldest or 0)
    recent = offset_for_time(snapshot, begin_ms)
    if recent is None:
        return told._replace(oldest_timestamp=oldest, records_per_second=0.0, bytes_per_second=0.0)
    seconds = max(now_ms - begin_ms, _LEAST_MS) / 1000
    begin, end = positions_of_offset(snapshot, recent).text, snapshot.end.positions.text
    holes = sum(max(hole.end.text - max(hole.begin.text, begin), 0) for hole in snapshot.holes)
    return told._replace(
        oldest_timestamp=oldest,
        records_per_second=(snapshot.end.offset - recent) / seconds,
        bytes_per_second=(end - begin - holes) / seconds,
    )


def _last(losses: list[Loss]) -> dict[str, object] | None:
    return losses[-1]._asdict() if losses else None
