"""The first look at a partition directory: what is known of it from before, and where to continue.

Segments that the cache knows, and that still are the files they were (``identity.py``), keep their
positions without being read. The one that was read last is read on from its tail checkpoint, if the
log still is what it was. Everything after is read by the looks that follow. What cannot be
recognised begins after every position that was ever shown, and so does what comes after it.
"""

from collections.abc import Mapping

from logfs.errors import NotThereYetError
from logfs.log.checkpoints import read_partition_metadata
from logfs.log.loading.context import LoadContext
from logfs.log.loading.loader import load_state
from logfs.log.losses import Loss, LossFile, log_loss
from logfs.log.names import SEGMENT_TABLE, FileKind, format_segment_file, format_topic_id
from logfs.log.reading.readable import ReadableLog, ReadableState
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogPoint, Snapshot
from logfs.log.segments.table import SegmentState, SegmentTable
from logfs.log.topics import effective_config, read_properties
from logfs.services.following.files import FollowContext
from logfs.services.following.followed import FollowedLog
from logfs.services.following.listing import list_logs
from logfs.services.following.positions import CachedPositions, FollowedPositions, OwnerPositions
from logfs.services.following.rebuilding import ViewRebuild
from logfs.services.following.tail import Boundary
from logfs.services.following.transactions import Transactions
from logfs.types import Positions, TopicPartition


def follow_partition(
    following: FollowContext, loading: LoadContext, topic_partition: TopicPartition
) -> FollowedLog | None:
    """Begin to follow a partition; what it holds is read by ``refresh``.

    Returns:
        None for a partition of logfs's own whose last segment has no file until its owner recovers
        it: it cannot be followed, but read as it is.

    Raises:
        NotThereYetError: It is just being made.
    """
    if following.disk.exists(f"{topic_partition.directory}/{SEGMENT_TABLE}"):
        return _follow_own(following, loading, topic_partition)
    return _Beginning(following, loading, topic_partition).follow()


def _follow_own(
    following: FollowContext, loading: LoadContext, topic_partition: TopicPartition
) -> FollowedLog | None:
    """Follow a directory of logfs's own: its segment table says which positions are where."""
    before = list_logs(following.disk, topic_partition.directory, loading.now_ms).logs
    state = load_state(loading, topic_partition)
    directory, segments = state.topic_partition.directory, state.snapshot.segments
    logs = list_logs(following.disk, directory, loading.now_ms).logs
    positions = OwnerPositions(following.disk, directory, state.table, state.losses)
    if any(segment.base_offset not in logs for segment in segments):
        return None
    for segment in segments:
        segment.inode = following.disk.stat(segment.name).inode
    active, end = segments[-1], state.snapshot.end
    entries = active.files()
    rebuild = ViewRebuild(
        following.disk, following.opened.of(positions), positions, directory, state.config,
        end.positions, list(segments[:-1]),
    )  # fmt: skip
    rebuild.resume(
        active,
        (entries.offset_entries(), entries.time_entries(), entries.text_entries()),
        Boundary(end.file_size, end.offset, end.positions.minus(active.bases)),
        end.max_timestamp,
    )
    rebuild.tail.epoch_before = state.epochs.latest
    transactions = Transactions(state.disk, state.producer_expiration_ms, state.producers)
    log = FollowedLog(state, following, positions, rebuild.tail, transactions)
    log.begin(rebuild, loading.now_ms)
    if not loading.is_live:
        log.end_as_loaded(before)
    return log


class _Beginning:
    """A partition that another process made."""

    def __init__(
        self, following: FollowContext, loading: LoadContext, topic_partition: TopicPartition
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
        positions = self._open_positions()
        self._opened = following.opened.of(positions)
        shown = positions.shown
        known = self._known_segments(positions, bases)
        rebuild = ViewRebuild(
            following.disk, self._opened, positions, directory, self._config, shown, known
        )
        self._begin(rebuild, bases[len(known) :])
        tail = rebuild.tail
        segments = (*rebuild.sealed, tail.segment)
        start = LogPoint(segments[0].base_offset, segments[0].bases)
        state = ReadableState(
            disk=following.disk,
            topic_partition=self._topic_partition,
            topic_id=self._topic_id,
            config=self._config,
            table=positions.table,
            snapshot=Snapshot.of(segments, start, tail.end),
            losses=positions.losses,
            last_modified_ms=following.disk.stat(tail.segment.name).mtime_ms,
        )
        log = FollowedLog(state, following, positions, tail, Transactions(following.disk))
        log.begin(rebuild, self._loading.now_ms)
        return log

    def _open_positions(self) -> FollowedPositions:
        following, loading = self._following, self._loading
        number = self._topic_partition.partition
        name = self._directory if self._topic_id is None else f"{self._topic_id}-{number}"

        def lose(losses: LossFile, detail: str) -> None:
            loss = Loss(loading.now_ms, "positions", SEGMENT_TABLE, 0, 0, None, detail)
            log_loss(self._topic_partition, loss)
            losses.add(loss)

        following.used.add(name)
        if following.cache is not None:
            return CachedPositions.open(following.cache, name, following.host, following.disk, lose)
        table = SegmentTable(following.disk, self._directory, following.host.new_id())
        return FollowedPositions(table, LossFile(following.disk, self._directory, read_only=True))

    def _known_segments(self, positions: FollowedPositions, bases: list[int]) -> list[Segment]:
        """Return the oldest segments, as far as they are what they were."""
        known: list[Segment] = []
        if not isinstance(positions, CachedPositions):
            return known
        for base_offset in bases:
            entry = positions.entries.get(base_offset)
            if entry is None or entry.state is not SegmentState.SEALED:
                break
            segment = Segment.from_entry(self._opened, self._directory, entry)
            found = self._following.disk.stat(segment.name)
            if not positions.is_same(segment, found):
                break
            segment.inode = found.inode
            known.append(segment)
        return known

    def _begin(self, rebuild: ViewRebuild, rest: list[int]) -> None:
        """Find where to continue."""
        positions = rebuild.positions
        if not rest:
            rebuild.end_at_last(self._logs)
        elif not self._resume(rebuild, rest[0]):
            entry = positions.entries.get(rest[0])
            if len(rest) == 1 and entry is not None and entry.state is SegmentState.SEALED:
                # It was sealed, and now nothing is after it: the log was cut.
                segment = Segment.from_entry(self._opened, self._directory, entry)
                rebuild.sealed.append(segment)
                rebuild.end_at_last(self._logs)
                return
            later = [base for base in positions.entries if base >= rest[0]]
            bases = rebuild.sealed[-1].ends if rebuild.sealed else Positions()
            if later or not rebuild.sealed:
                bases = rebuild.shown
            if entry is not None and entry.bases != bases:
                rebuild.lose_from(
                    rest[0], entry.bases, "it is not what it was when it was read last"
                )
            rebuild.begin(rest[0], bases)

    def _resume(self, rebuild: ViewRebuild, base_offset: int) -> bool:
        """Resume at the tail checkpoint; False if it describes another segment."""
        positions = rebuild.positions
        note = positions.tail
        if (
            note is None
            or note.base_offset != base_offset
            or not isinstance(positions, CachedPositions)
        ):
            return False
        segment = Segment(self._opened, self._directory, base_offset, note.bases)
        segment.has_gaps, segment.first_timestamp = note.has_gaps, note.first_timestamp
        text = positions.resumed_entries(segment, note.text_entries)
        if text is None:
            return False
        files = self._opened.get(segment)
        offset, time = files.offset_entries(), files.time_entries()
        rebuild.resume_checkpoint(segment, (offset, time, memoryview(text)), note)
        return True

    def _size_of(self, base_offset: int) -> int:
        name = format_segment_file(base_offset, FileKind.LOG)
        return self._following.disk.stat(f"{self._directory}/{name}").size


def follow_partial(
    following: FollowContext, log: ReadableLog, base_offset: int, now_ms: int
) -> FollowedLog:
    """Begin to follow a log in the middle: it begins with a segment, at position 0."""
    disk, directory = following.disk, log.directory
    table = SegmentTable(disk, directory, following.host.new_id())
    positions = FollowedPositions(table, LossFile(disk, directory, read_only=True))
    opened, nothing = following.opened.of(positions), Positions()
    rebuild = ViewRebuild(disk, opened, positions, directory, log.config, nothing, [])
    rebuild.begin(base_offset, nothing)
    start = LogPoint(base_offset, nothing)
    state = ReadableState(
        disk=disk,
        topic_partition=log.topic_partition,
        topic_id=log.topic_id,
        config=log.config,
        table=table,
        snapshot=Snapshot.of((rebuild.tail.segment,), start, rebuild.tail.end),
        losses=positions.losses,
        last_modified_ms=log.last_modified_ms,
    )
    part = FollowedLog(state, following, positions, rebuild.tail, Transactions(disk), base_offset)
    part.begin(rebuild, now_ms)
    return part
