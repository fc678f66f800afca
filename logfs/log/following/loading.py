"""The first look at a partition directory: what is known of it from before, and where to go on.

Segments that the cache knows, and that still have the size they had, keep their positions without
being read. The one that was read last is gone on with where the tail note says, if the log still is
what it was. Everything after is read by the looks that follow. What cannot be recognised begins
after every position that was ever shown, and so does what comes after it.
"""

from collections.abc import Mapping

from logfs.errors import NotThereYetError
from logfs.log.checkpoints import read_partition_metadata
from logfs.log.following.context import Following
from logfs.log.following.followed import FollowedLog
from logfs.log.following.kept import KeptInCache, KeptInDirectory, KeptInMemory
from logfs.log.following.listing import list_logs
from logfs.log.following.reshaping import Reshaping
from logfs.log.following.tail import Place
from logfs.log.following.transactions import Transactions
from logfs.log.loading.context import LoadContext
from logfs.log.loading.loader import load_state
from logfs.log.losses import Loss, LossFile, log_loss
from logfs.log.names import SEGMENT_TABLE, FileKind, format_segment_file, format_topic_id
from logfs.log.reading.readable import ReadableLog, ReadableState
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogPoint, Snapshot
from logfs.log.segments.table import SegmentState, SegmentTable
from logfs.log.topics import effective_config, read_properties
from logfs.types import Positions, TopicPartition


def follow_partition(
    following: Following, loading: LoadContext, topic_partition: TopicPartition
) -> FollowedLog | None:
    """Begin to follow a partition; what it holds is read by ``refresh``.

    Returns:
        None for a partition of logfs's own whose last segment has no file until its owner recovers
        it: it cannot be followed, but read as it is.

    Raises:
        NotThereYetError: It is just being made.
        LogfsError, OSError: It cannot be used.
    """
    if following.disk.exists(f"{topic_partition.directory}/{SEGMENT_TABLE}"):
        return _follow_own(following, loading, topic_partition)
    return _Beginning(following, loading, topic_partition).follow()


def _follow_own(
    following: Following, loading: LoadContext, topic_partition: TopicPartition
) -> FollowedLog | None:
    """Follow a directory of logfs's own: its segment table says which positions are where."""
    state = load_state(loading, topic_partition)
    directory, segments = state.topic_partition.directory, state.snapshot.segments
    logs = list_logs(following.disk, directory, loading.now_ms).logs
    kept = KeptInDirectory(following.disk, directory, state.table, state.losses)
    if any(segment.base_offset not in logs for segment in segments):
        return None
    for segment in segments:
        segment.inode = following.disk.stat(segment.name).inode
    active, end = segments[-1], state.snapshot.end
    entries = active.files()
    shape = Reshaping(
        following.disk, following.opened.of(kept), kept, directory, state.config, end.positions,
        list(segments[:-1]),
    )  # fmt: skip
    shape.resume(
        active,
        (entries.offset_entries(), entries.time_entries(), entries.text_entries()),
        Place(end.file_size, end.offset, end.positions.minus(active.bases)),
        end.max_timestamp,
    )
    transactions = Transactions(state.disk, state.producer_expiration_ms, state.producers)
    log = FollowedLog(state, following, kept, shape.tail, transactions)
    log.begin(shape, logs, loading.now_ms)
    return log


class _Beginning:
    """A partition that somebody else made."""

    def __init__(
        self, following: Following, loading: LoadContext, topic_partition: TopicPartition
    ) -> None:
        disk, directory = following.disk, topic_partition.directory
        self._following = following
        self._loading = loading
        self._topic_partition = topic_partition
        self._directory = directory
        self._logs: Mapping[int, int] = list_logs(disk, directory, loading.now_ms).logs
        topic_id = read_partition_metadata(disk, directory)
        self._topic_id = None if topic_id is None else format_topic_id(topic_id)
        self._config = effective_config(loading.defaults, read_properties(disk, directory))

    def follow(self) -> FollowedLog:
        """Put together what is known."""
        following, directory = self._following, self._directory
        bases = sorted(self._logs)
        if not bases or (self._topic_id is None and not self._size_of(bases[-1])):
            raise NotThereYetError(f"{directory}: the partition is just being made")
        kept = self._kept()
        self._opened = following.opened.of(kept)
        shown = kept.shown
        known = self._known_segments(kept, bases)
        shape = Reshaping(following.disk, self._opened, kept, directory, self._config, shown, known)
        self._begin(shape, bases[len(known) :])
        tail = shape.tail
        segments = (*shape.sealed, tail.segment)
        start = LogPoint(segments[0].base_offset, segments[0].bases)
        state = ReadableState(
            disk=following.disk,
            topic_partition=self._topic_partition,
            topic_id=self._topic_id,
            config=self._config,
            table=kept.table,
            snapshot=Snapshot.of(segments, start, tail.end),
            losses=kept.losses,
            last_modified_ms=following.disk.stat(tail.segment.name).mtime_ms,
        )
        log = FollowedLog(state, following, kept, tail, Transactions(following.disk))
        log.begin(shape, self._logs, self._loading.now_ms)
        return log

    def _kept(self) -> KeptInMemory:
        following, loading = self._following, self._loading
        number = self._topic_partition.partition
        name = self._directory if self._topic_id is None else f"{self._topic_id}-{number}"

        def lose(losses: LossFile, detail: str) -> None:
            loss = Loss(loading.now_ms, "positions", SEGMENT_TABLE, 0, 0, None, detail)
            log_loss(self._topic_partition, loss)
            losses.add(loss)

        following.used.add(name)
        if following.cache is not None:
            return KeptInCache.open(following.cache, name, following.host, lose)
        table = SegmentTable(following.disk, self._directory, following.host.new_id())
        return KeptInMemory(table, LossFile(following.disk, self._directory, read_only=True))

    def _known_segments(self, kept: KeptInMemory, bases: list[int]) -> list[Segment]:
        """Return the oldest segments, as far as they are what they were."""
        known = []
        for base_offset in bases:
            entry = kept.entries.get(base_offset)
            if entry is None or entry.state is not SegmentState.SEALED:
                break
            segment = Segment.from_entry(self._opened, self._directory, entry)
            found = self._following.disk.stat(segment.name)
            if found.size != entry.size_bytes:
                break
            segment.inode = found.inode
            known.append(segment)
        return known

    def _begin(self, shape: Reshaping, rest: list[int]) -> None:
        """Find where to go on."""
        kept = shape.kept
        if not rest:
            shape.end_at_last(self._logs)
        elif not self._resume(shape, rest[0]):
            entry = kept.entries.get(rest[0])
            if len(rest) == 1 and entry is not None and entry.state is SegmentState.SEALED:
                # It was sealed, and now nothing is after it: the log was cut.
                segment = Segment.from_entry(self._opened, self._directory, entry)
                shape.sealed.append(segment)
                shape.end_at_last(self._logs)
                return
            later = [base for base in kept.entries if base >= rest[0]]
            bases = shape.sealed[-1].ends if shape.sealed else Positions()
            if later or not shape.sealed:
                bases = shape.shown
            if entry is not None and entry.bases != bases:
                shape.lose_from(rest[0], entry.bases, "it is not what it was when it was read last")
            shape.begin(rest[0], bases)

    def _resume(self, shape: Reshaping, base_offset: int) -> bool:
        """Go on where the tail note says; False if it does not speak of this segment."""
        kept = shape.kept
        note = kept.tail
        if note is None or note.base_offset != base_offset or not isinstance(kept, KeptInCache):
            return False
        segment = Segment(self._opened, self._directory, base_offset, note.bases)
        segment.has_gaps, segment.first_timestamp = note.has_gaps, note.first_timestamp
        text = kept.resumed_entries(segment, note.text_entries)
        if text is None:
            return False
        files = self._opened.get(segment)
        offset, time = files.offset_entries(), files.time_entries()
        shape.resume_noted(segment, (offset, time, memoryview(text)), note)
        return True

    def _size_of(self, base_offset: int) -> int:
        name = format_segment_file(base_offset, FileKind.LOG)
        return self._following.disk.stat(f"{self._directory}/{name}").size


def begin_part(
    following: Following, log: ReadableLog, base_offset: int, now_ms: int
) -> FollowedLog:
    """Begin to follow a log in the middle: it begins with a segment, at position 0."""
    disk, directory = following.disk, log.directory
    table = SegmentTable(disk, directory, following.host.new_id())
    kept = KeptInMemory(table, LossFile(disk, directory, read_only=True))
    opened, nothing = following.opened.of(kept), Positions()
    shape = Reshaping(disk, opened, kept, directory, log.config, nothing, [])
    shape.begin(base_offset, nothing)
    start = LogPoint(base_offset, nothing)
    state = ReadableState(
        disk=disk,
        topic_partition=log.topic_partition,
        topic_id=log.topic_id,
        config=log.config,
        table=table,
        snapshot=Snapshot.of((shape.tail.segment,), start, shape.tail.end),
        losses=kept.losses,
        last_modified_ms=log.last_modified_ms,
    )
    part = FollowedLog(state, following, kept, shape.tail, Transactions(disk), base_offset)
    part.begin(shape, list_logs(disk, directory, now_ms).starting(base_offset).logs, now_ms)
    return part
