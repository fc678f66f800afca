"""One partition of a directory that another process writes: a look at it, and what readers see.

``refresh`` is one look. Most cost two stats: of the directory, whose time changes when a name does,
and of the newest ``.log``. Records that were appended are published at once. Anything else, files
that are missing or were replaced, is acted on when two looks agree on it.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from logfs.errors import CorruptRecordError
from logfs.log.losses import Loss, log_loss
from logfs.log.names import FileKind, format_segment_file
from logfs.log.producers.state import ProducerState
from logfs.log.reading.lookup import positions_of_offset
from logfs.log.reading.readable import ReadableState
from logfs.log.segments.batches import INCOMPLETE, batch_after
from logfs.log.segments.scan import (
    SegmentScan,
    end_of_data,
    fill_segment,
    must_stay,
    pass_over,
    pass_over_unreadable,
)
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogPoint, Snapshot
from logfs.services.following.files import FollowContext
from logfs.services.following.listing import RACY_MS, Changes, Listing, Look, compare, list_logs
from logfs.services.following.positions import FollowedPositions
from logfs.services.following.rebuilding import ViewRebuild
from logfs.services.following.tail import Tail
from logfs.services.following.transactions import Transactions
from logfs.services.following.watched import WatchedLog
from logfs.types import Positions

if TYPE_CHECKING:
    from logfs.log.loading.context import LoadContext
    from logfs.log.partition import PartitionLog

logger = logging.getLogger(__name__)

_REPEATS = 2
"""A problem is logged once so many looks in a row have met it."""
SETTLED_MS = 40
"""Two looks agree if they are so far apart: names change one after the other."""


class FollowedLog(WatchedLog):
    """A partition that is followed. ``refresh`` in one thread at a time, readers anywhere.

    Attributes:
        transactions: The state of the producers in the log at the last look.
    """

    def __init__(
        self,
        state: ReadableState,
        following: FollowContext,
        positions: FollowedPositions,
        tail: Tail,
        transactions: Transactions,
        part_base: int | None = None,
    ) -> None:
        super().__init__(state)
        self.is_part = part_base is not None
        self._first_base = -1 if part_base is None else part_base
        self._positions = positions
        self._tail = tail
        self._listing: Listing | None = None
        self._candidate: Look | None = None
        self._seen: tuple[int, int, int] | None = None
        self._named: tuple[int, int | None] = (0, None)
        self._points: tuple[int, int | None] | None = None
        self._warning = RepeatedWarning()
        self._now_ms = 0
        self.transactions = transactions
        self._total_bytes = 0
        self._segments = following.opened.of(positions)
        self._loading = following.loading
        self._decided: tuple[int, int, int] | None = None
        self._ends_here = False
        self._set_aside: dict[int, int] = {}

    def end_as_loaded(self, logs: Mapping[int, int]) -> None:
        """End the log where loading has found its end, until its files change.

        Args:
            logs: Inodes of the ``.log`` files by base offset; those after the last segment are what
                recovery would set aside.
        """
        base_offset, end = self._tail.segment.base_offset, self.snapshot.end
        self._set_aside = {base: inode for base, inode in logs.items() if base > base_offset}
        self._decided = base_offset, end.file_size, self._tail.log.size()
        self._ends_here = True

    def begin(self, rebuild: ViewRebuild, now_ms: int) -> None:
        """Show what loading found, and note what it has to be noted for the next time."""
        known = {base for base in self._positions.entries if base != self._tail.segment.base_offset}
        if rebuild.damage or known != {segment.base_offset for segment in rebuild.sealed}:
            self._adopt(rebuild)
        if self._positions.is_cached and self.snapshot.end.offset > self.log_start_offset:
            self.state.snapshot = self.transactions.look_up(self.snapshot, self.directory, now_ms)

    def note_checkpoints(self, start_offset: int, high_watermark: int | None) -> None:
        """Take over what the checkpoint files of the directory say of this partition."""
        self._named = start_offset, high_watermark if self._positions.is_replicated else None

    @property
    def producers(self) -> ProducerState:
        """The state of the producers at the log end."""
        return self.transactions.state

    @property
    def indexing(self) -> tuple[int, int] | None:
        """How far the positions are known: (bytes done, bytes in all); None once all are."""
        if self.is_caught_up:
            return None
        return self.done_bytes, self._total_bytes

    @property
    def is_settling(self) -> bool:
        """Whether files have been seen to change, and a second look has to agree."""
        return self._candidate is not None

    def _refresh(self, now_ms: int, limit_bytes: int) -> bool:
        self._now_ms = now_ms
        try:
            return self._look(now_ms, limit_bytes)
        except FileNotFoundError:
            # Names are just changing, or the topic is being deleted: the next look tells.
            self._listing = self._seen = None
            return False

    def close_files(self) -> None:
        """Note where everything is and let go of every file."""
        with self._lock:
            if not self.is_deleted and not self.is_unreadable:
                fill_segment(self._tail.segment, self._tail.builder)
                self._positions.close(self._tail.segment, self._tail.checkpoint())
            for segment in self.snapshot.segments:
                segment.close_files()
            self.state.table.close()

    # A look

    def _look(self, now_ms: int, limit_bytes: int) -> bool:
        old, listing = self.snapshot, self._listing
        is_fresh = listing is None or self._has_changed(listing)
        if listing is None or is_fresh:
            listing = list_logs(self.disk, self.directory, now_ms).starting(self._first_base)
            self._listing = listing
            if not self.is_caught_up:
                self._total_bytes = self._count_bytes(listing)
        has_more = self._grow(listing, now_ms, limit_bytes)
        if is_fresh:
            has_more |= self._settle(listing, now_ms)
        if self.snapshot is not old or self._named != self._points:
            self._place_points()
        self.is_caught_up |= not has_more
        if not has_more:
            self._positions.let_go()
        return has_more

    def _count_bytes(self, listing: Listing) -> int:
        names = (format_segment_file(base, FileKind.LOG) for base in listing.logs)
        return sum(self.disk.stat(f"{self.directory}/{name}").size for name in names)

    def _has_changed(self, listing: Listing) -> bool:
        if listing.mtime_ms is None or self._candidate is not None:
            return True
        return self.disk.stat(self.directory).mtime_ms != listing.mtime_ms

    def _grow(self, listing: Listing, now_ms: int, limit_bytes: int) -> bool:
        """Read what was appended, segment after segment; True if there is more."""
        later = sorted(base for base in listing.logs if base > self._tail.segment.base_offset)
        if not self._may_have_grown(now_ms) and not later:
            return False
        later = [base for base in later if listing.logs[base] != self._set_aside.get(base)]
        while True:
            if not self._tail.is_intact:
                rebuild = self._new_rebuild()
                rebuild.cut_tail()
                self._adopt(rebuild)
            elif (skip := self._tail.find_skip()) is not None:
                rebuild = self._new_rebuild()
                rebuild.skip_offsets(skip)
                self._adopt(rebuild)
            limit_bytes -= self._read_on(limit_bytes)
            if limit_bytes <= 0:
                self._seen = None  # there may be more, even if the stat is the same
                return True
            if self._pass_over(later[0] if later else None):
                continue
            if not later or self._ends_here:
                return False
            self._begin_next(later.pop(0), self._whole_tail())

    def _may_have_grown(self, now_ms: int) -> bool:
        """Whether the newest ``.log`` has changed since the last look."""
        try:
            found = self.disk.stat(self._tail.segment.name)
        except FileNotFoundError:
            return False
        seen = found.size, found.mtime_ms, found.inode
        if seen == self._seen or found.inode != self._tail.segment.inode:
            return False
        self._seen = seen if found.mtime_ms <= now_ms - RACY_MS else None
        self.state.last_modified_ms = max(self.last_modified_ms, found.mtime_ms)
        return True

    def _read_on(self, limit_bytes: int) -> int:
        """Read what was appended to the newest segment, and show it; returns the bytes."""
        tail = self._tail
        before = tail.builder.file_position
        entries = tail.grow(limit_bytes)
        if tail.builder.file_position != before:
            self._positions.cover(tail.segment, tail.end.positions)
            self._positions.grow(entries, tail.checkpoint())
            self.state.snapshot = self._with_transactions(self.snapshot._replace(end=tail.end))
        return tail.builder.file_position - before

    def _with_transactions(self, snapshot: Snapshot) -> Snapshot:
        """Note which transactions were ended or begun by what was appended."""
        produced, self._tail.produced = self._tail.produced, []
        if not produced and snapshot.unstable is None:
            return snapshot
        try:
            return self.transactions.follow(snapshot, produced)
        except CorruptRecordError as error:
            logger.warning("%s: a transaction cannot be placed: %s", self.topic_partition, error)
            return snapshot

    def _whole_tail(self) -> Segment | None:
        """Return the newest segment as its owner has sealed it, if that has more than was read.

        That is so when a store has it: a reader of its journal may know a part only.

        Raises:
            FileNotFoundError: Its file is just being replaced.
        """
        segment, next_offset = self._tail.segment, self._tail.builder.next_offset
        entry = self._positions.sealed_by_owner(segment)
        if entry is None or entry.next_offset is None or entry.next_offset <= next_offset:
            return None
        found = self.disk.stat(segment.name)
        if found.size < (entry.size_bytes or 0):
            raise FileNotFoundError(f"{segment.name} is not yet what its owner has sealed")
        if found.inode == segment.inode:
            return None  # some of it cannot be read
        whole = Segment.from_entry(self._segments, self.directory, entry)
        whole.inode = found.inode
        return whole

    def _begin_next(self, base_offset: int, whole: Segment | None) -> None:
        """Continue with the next segment; ``whole`` takes the place of the newest one."""
        tail, old, snapshot = self._tail, self._tail.segment, self.snapshot
        new = self._new_rebuild().open_segment(base_offset, self._bases_of(base_offset))
        if whole is None:
            tail.final_time_entry()
        fill_segment(old, tail.builder)
        segments = (*snapshot.segments[:-1], whole or old, new.segment)
        snapshot = snapshot.changed(segments, snapshot.start, new.end)
        if whole is None:
            self._positions.seal(old, tail.files.text_entries())
            old.pinned_files = None
            # Kept open for a while: compaction may replace it twice between two looks.
            old.files().log = tail.log
        else:
            snapshot = self.transactions.look_up(snapshot, self.directory, self._now_ms)
            self._let_go([old])
        self._positions.begin(new.segment, b"")
        self._tail, self._seen = new, None
        self.state.snapshot = snapshot

    def _bases_of(self, base_offset: int) -> Positions:
        """Return the positions at which a new segment begins."""
        end = self.snapshot.end.positions
        known = self._positions.entries.get(base_offset)
        return end if known is None else end.at_least(known.bases)

    def _pass_over(self, following: int | None) -> bool:
        """Account for a batch that cannot be used, as a start of a store in the directory would.

        It stays, and is a loss, or the log ends before it. If not even its bytes can be read, this
        is the rest of the segment, up to ``following``, the next one. At the end of a log that
        another process writes it may be on its way.

        Returns:
            Whether there is more to read in this segment.
        """
        tail, name = self._tail, self._tail.segment.name
        position, size = int(tail.builder.file_position), tail.log.size()
        place = tail.segment.base_offset, position, size
        if tail.problem is None or position >= size:
            self._ends_here = False
            return position < size  # what was appended after the last read
        if self._decided == place:
            return False
        self._decided, self._ends_here = place, False
        loading = self._loading(self._now_ms)
        stays = must_stay(tail.log, tail.builder, is_last=following is None)
        if following is None and not stays and not self._is_for_good(loading, position, size):
            return False
        scan, what = SegmentScan(tail.builder, size), f"{name}: {size - position} bytes from byte"
        what = f"{what} {position} on are no whole batch ({tail.problem})"
        if not stays and loading.must_recover(self.topic_partition, following):
            self._end_here(position, size, what)
            return False
        if not pass_over(scan, tail.log, ()) and not (
            following is not None and pass_over_unreadable(scan, tail.log, following)
        ):
            self._lose_here("corrupt", position, size - position, f"{what}; they stay")
            return False
        one = scan.corrupt[0]
        self._lose_here("corrupt", position, one.size,
                   f"{name}: the batch at byte {position} ({one.size} bytes) cannot be read: "
                   f"{one.why}; it stays where it is")  # fmt: skip
        self._positions.cover(tail.segment, tail.end.positions)
        self._positions.grow(b"", tail.checkpoint())
        self.state.snapshot = self.snapshot._replace(end=tail.end)
        return True

    def _end_here(self, position: int, size: int, what: str) -> None:
        """End the log where recovery would cut it."""
        self._ends_here = True
        self._lose_here("cut", position, size - position, f"{what}; recovery would cut them")
        for base_offset in () if self._listing is None else self._listing.logs:
            name = f"{self.directory}/{format_segment_file(base_offset, FileKind.LOG)}"
            if base_offset > self._tail.segment.base_offset:
                what = f"{name}: the log was cut before it; recovery would set it aside"
                bytes_gone = self.disk.stat(name).size
                self._lose(Loss(self._now_ms, "cut", name, 0, bytes_gone, base_offset, what))

    def _is_for_good(self, loading: "LoadContext", position: int, size: int) -> bool:
        """Whether what cannot be used at the end of the log is not just being written."""
        log, problem = self._tail.log, self._tail.problem
        if loading.is_live or problem is None or end_of_data(log, position, size) == position:
            return False
        # A writer on another machine has no lock here: what it is writing is the last batch.
        is_last = problem == INCOMPLETE or (batch_after(log, position, size) or size) == size
        return not is_last or (loading.is_clean and problem != INCOMPLETE)

    # What is not growth

    def _settle(self, listing: Listing, now_ms: int) -> bool:
        """Act on what two looks agree on; True if there is more to do at once."""
        candidate, self._candidate = self._candidate, None
        changes = compare(self._known(), listing.logs) if listing.logs else Changes()
        if not changes:
            return False
        if candidate is None or listing.is_swapping or not candidate.agrees(listing.logs):
            self._candidate = Look.of(listing.logs, self._tail.segment.base_offset, now_ms)
            return False
        if now_ms - candidate.since_ms < SETTLED_MS:
            self._candidate = candidate
            return False
        rebuild = self._new_rebuild()
        rebuild.apply(changes, listing.logs)
        self._adopt(rebuild)
        return True

    def _known(self) -> list[tuple[int, int]]:
        return [(segment.base_offset, segment.inode) for segment in self.snapshot.segments]

    def _new_rebuild(self) -> ViewRebuild:
        return ViewRebuild(
            self.disk,
            self._segments,
            self._positions,
            self.directory,
            self.config,
            self.snapshot.end.positions,
            list(self.snapshot.segments[:-1]),
            self._tail,
        )

    def _adopt(self, rebuild: ViewRebuild) -> None:
        """Show a log as it was rebuilt."""
        for damage in rebuild.damage:
            self._lose(Loss(self._now_ms, *damage))
        old, self._tail, self._seen = self.snapshot, rebuild.tail, None
        self._let_go(rebuild.gone)
        active = rebuild.tail.segment
        segments = (*rebuild.sealed, active)
        self._positions.cover(active, rebuild.tail.end.positions)
        self._positions.store(rebuild.sealed, active)
        self._positions.grow(b"", rebuild.tail.checkpoint())
        start = LogPoint(segments[0].base_offset, segments[0].bases)
        truncations = old.truncations + rebuild.has_cut
        snapshot = old.changed(segments, start, rebuild.tail.end, truncations)
        if rebuild.has_cut:
            snapshot = self.transactions.look_up(snapshot, self.directory, self._now_ms)
        else:
            snapshot = snapshot.with_transactions(snapshot.aborted, snapshot.unstable)
        self.state.snapshot = snapshot

    def _place_points(self) -> None:
        """Find the log start and the high watermark that the checkpoints name."""
        self._points = self._named
        try:
            self.state.snapshot = with_points(self.snapshot, *self._named)
        except (CorruptRecordError, FileNotFoundError) as error:
            self._points = None  # the next look tries again: files may just be changing
            if not self.is_settling:
                self._warning.note(f"{self.topic_partition}: a checkpoint leads nowhere: {error}")
        else:
            self._warning.settle()

    def _lose_here(self, kind: str, position: int, size: int, detail: str) -> None:
        segment, offset = self._tail.segment, self._tail.builder.next_offset
        self._lose(Loss(self._now_ms, kind, segment.name, position, size, offset, detail))

    def _lose(self, loss: Loss) -> None:
        log_loss(self.topic_partition, loss)
        self.state.losses.add(loss)


AnyLog: TypeAlias = "PartitionLog | WatchedLog"
"""A log of a mount: written by its daemon, or followed."""


class RepeatedWarning:
    """A problem that may last for a moment, while files change, or for good."""

    def __init__(self) -> None:
        self._problem = ""
        self._count = 0

    def note(self, problem: str) -> None:
        """Note that a look has met a problem; the second look in a row logs it."""
        self._count = self._count + 1 if problem == self._problem else 1
        self._problem = problem
        if self._count == _REPEATS:
            logger.warning("%s", problem)

    def settle(self) -> None:
        """Note that a look has met no problem."""
        self._problem, self._count = "", 0


def with_points(snapshot: Snapshot, start_offset: int, high_watermark: int | None) -> Snapshot:
    """Return a snapshot that begins at a log start offset and has a high watermark.

    Args:
        start_offset: From log-start-offset-checkpoint.
        high_watermark: From replication-offset-checkpoint; None if it is not named there.

    Raises:
        CorruptRecordError: What an offset is in cannot be read.
        FileNotFoundError: It has just been deleted.
    """
    start = snapshot.start
    if start_offset > start.offset:
        start = _point(snapshot, start_offset)
    watermark = snapshot.watermark
    if high_watermark is None:
        watermark = None
    elif watermark is None or watermark.offset != high_watermark or start != snapshot.start:
        watermark = _point(snapshot, max(high_watermark, start.offset))
    return snapshot._replace(start=start, watermark=watermark)


def _point(snapshot: Snapshot, offset: int) -> LogPoint:
    offset = min(offset, snapshot.end.offset)
    return LogPoint(offset, positions_of_offset(snapshot, offset))
