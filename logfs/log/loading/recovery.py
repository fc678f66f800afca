"""The segments of a partition that is being loaded: which are trusted, scanned, cut, set aside.

After a clean stop the segment table says everything and no segment is opened. After an unclean one
every segment from the recovery point on is scanned; the log is cut where its first bad batch
begins, after what is cut has been copied. Other segments are scanned only if their indexes or table
entries are missing; what is corrupt in them stays and is reported.

A stop in the middle of this is one more unclean stop. So what lies behind a cut goes first, the
last of it at the beginning, each loss is noted before it happens, and the table says beforehand
that positions which were shown are about to go.

Source: Kafka LogLoader.recoverLog, LogSegment.recover.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from logfs.config import TopicConfig
from logfs.disk.vfs import DISK_FULL, File
from logfs.errors import LogfsError
from logfs.log import names
from logfs.log.counters import LogCounters
from logfs.log.host import cache_mark
from logfs.log.loading.cutting import copy_tail, rewrite
from logfs.log.loading.given import Loading as Loading  # others take it from here
from logfs.log.loading.split import SpansTooMuchError, check_span, split_segment
from logfs.log.losses import Loss, LossFile, log_loss
from logfs.log.names import FileKind
from logfs.log.segments.scan import (
    INCOMPLETE,
    MemoryFiles,
    Scan,
    begins_batch,
    claims_more,
    rebuild_indexes,
    scan_segment,
)
from logfs.log.segments.segment import Segment
from logfs.log.segments.table import SegmentState, SegmentTable, TableEntry
from logfs.log.writing.active import remove_segment_files
from logfs.log.writing.lease import NO_BOOT
from logfs.records.produced import ProducedBatch
from logfs.types import Positions, TopicPartition

logger = logging.getLogger(__name__)

_INDEX_KINDS = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TEXT_INDEX})


@dataclass(slots=True)
class Loader:
    """One partition being loaded.

    Attributes:
        kinds: The files of each segment, by base offset.
        swapped: Those that are still called ``.swap``.
        segments: Those that are kept, so far.
        has_changed: The table must be written anew.
        has_cut: Something that was shown is gone.
        has_junk: Bytes that are no batch stay behind the last segment.
        recovered: Base offsets of the segments that were recovered.
        counters: Told what was scanned for that.
        produced: Batches with a producer id of the segments that were scanned, by base offset.
        leader_epochs: Epochs in them, each with the first offset.
        scans_all: No segment is trusted, since what is to be known stands in the batches alone.
        deferred: What has to be done before the first append, since the disk is full now. None:
            nothing has.
    """

    loading: Loading
    topic_partition: TopicPartition
    config: TopicConfig
    losses: LossFile
    kinds: dict[int, set[FileKind]]
    swapped: dict[int, set[FileKind]] = field(default_factory=dict)
    table: SegmentTable | None = None
    segments: list[Segment] = field(default_factory=list)
    has_changed: bool = False
    has_cut: bool = False
    has_junk: bool = False
    recovered: set[int] = field(default_factory=set)
    produced: dict[int, list[ProducedBatch]] = field(default_factory=dict)
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)
    counters: LogCounters = field(default_factory=LogCounters)
    deferred: list[Callable[[], None]] | None = None
    scans_all: bool = False

    @contextlib.contextmanager
    def deferring(self, later: Callable[[], None] | None = None) -> Iterator[None]:
        """Let the block end early if the disk is full; ``later`` then does what it could not."""
        try:
            yield
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            logger.warning("%s: %s; it is done once there is room", self.topic_partition, error)
            self.deferred = [*(self.deferred or ()), *([] if later is None else [later])]

    @property
    def directory(self) -> str:
        """The name of the partition directory."""
        return self.topic_partition.directory

    @property
    def bases(self) -> list[int]:
        """Base offsets of the ``.log`` files that are there."""
        return sorted(base for base, kinds in self.kinds.items() if FileKind.LOG in kinds)

    @property
    def start_offset(self) -> int:
        """The log start offset that was noted last; 0 if none was."""
        return self.loading.start_offsets.get(self.topic_partition, 0)

    @property
    def entries(self) -> dict[int, TableEntry]:
        """The entries of the segment table by base offset; of the last one, what was left."""
        entries = {} if self.table is None else self.table.entries
        return entries if self.left is None else {**entries, self.left.base_offset: self.left}

    @property
    def left(self) -> TableEntry | None:
        """The last segment as a close left it that flushed nothing; None after any other stop."""
        return None if self.table is None else (self.loading.left or {}).get(self.topic_partition)

    @property
    def cache_mark(self) -> bytes:
        """What goes with an open entry of the table; see ``host.cache_mark``."""
        return cache_mark(self.loading.host, self.loading.disk)

    @property
    def boots(self) -> set[bytes]:
        """Marks of the page cache while something was appended, since the last clean stop."""
        return set() if self.table is None else self.table.state.boots

    @property
    def shown(self) -> Positions:
        """Positions that no size ever shown exceeds."""
        return Positions() if self.table is None else self.table.state.lease

    def recovery_point(self, end_offset: int) -> int:
        """Return the first offset that may not be durable, of a log with this end offset."""
        if self.loading.is_clean and self.left is None:
            return end_offset
        return min(self.loading.recovery_points.get(self.topic_partition, 0), end_offset)

    def must_recover(self, behind: Sequence[int]) -> bool:
        """Whether the segment in front of those with these bases may have lost bytes."""
        recovery_point = self.loading.recovery_points.get(self.topic_partition, 0)
        return not self.loading.is_clean and (not behind or behind[0] > recovery_point)

    def ends_at_recovery_point(self, entry: TableEntry) -> bool:
        """Whether the indexes of a sealed segment may not be durable although its records are.

        A flush syncs the ``.log`` of the active segment alone, and then it may have been sealed.
        """
        recovery_point = self.loading.recovery_points.get(self.topic_partition, 0)
        return not self.loading.is_clean and entry.next_offset == recovery_point

    def segment(self, base_offset: int, bases: Positions) -> Segment:
        """Describe a segment."""
        segment = Segment(self.loading.opened, self.directory, base_offset, bases)
        return self._in_place(segment)

    def known_segment(self, entry: TableEntry) -> Segment:
        """Describe a segment as the table does."""
        return self._in_place(Segment.from_entry(self.loading.opened, self.directory, entry))

    def _in_place(self, segment: Segment) -> Segment:
        segment.swapped = frozenset(self.swapped.get(segment.base_offset, ()))
        return segment

    def lose(self, kind: str, file: str, position: int, size: int, detail: str) -> None:
        """Note a loss in the daemon's log and in the partition's file."""
        offset = self.segments[-1].next_offset if self.segments else None
        loss = Loss(self.loading.now_ms, kind, file, position, size, offset, detail)
        log_loss(self.topic_partition, loss)
        self.losses.add(loss)


def load_segments(loader: Loader) -> None:
    """Fill ``loader.segments``: with what the log holds, recovered if that is due."""
    bases = _without_deleted(loader)
    ends, next_offset = Positions(), -1
    if loader.table is not None and bases and bases[0] not in loader.entries:
        ends = loader.shown  # what came before it is lost, and the positions of that were shown
    while len(bases) > len(loader.segments):
        number = len(loader.segments)
        base_offset, behind = bases[number], bases[number + 1 :]
        entry = loader.entries.get(base_offset)
        is_next = base_offset == next_offset or not loader.segments or loader.table is None
        if loader.must_recover(behind) and entry is None and not is_next:
            _set_aside(loader, bases[number:], "what was in front of it is lost")
            loader.has_cut = True
            break
        try:
            segment = _load_segment(loader, base_offset, entry, ends, behind)
        except SpansTooMuchError as error:
            bases[number : number + 1] = split_segment(loader.loading.disk, error, loader.kinds)
            continue
        loader.segments.append(segment)
        if loader.has_cut:
            break
        ends, next_offset = segment.ends, segment.next_offset
        if entry is not None and entry.next_offset is not None:
            ends, next_offset = ends.at_least(entry.ends), max(next_offset, entry.next_offset)


def _load_segment(
    loader: Loader,
    base_offset: int,
    entry: TableEntry | None,
    ends: Positions,
    behind: Sequence[int],
) -> Segment:
    """Take a segment as its table entry describes it, or scan it; positions go on at ``ends``."""
    must_recover = loader.must_recover(behind)
    if entry is not None and _is_trusted(loader, entry, must_recover, not behind):
        return loader.known_segment(entry)
    segment = loader.segment(base_offset, ends if entry is None else entry.bases)
    # Before the scan, which notes the same in the table if it is about to cut what was shown.
    is_distrusted = loader.loading.has_failed or NO_BOOT in loader.boots
    segment = _scan(loader, segment, entry, behind)
    if must_recover and is_distrusted and not loader.loading.read_only:
        rewrite(loader.loading.disk, segment.name, segment.size_bytes)
    return segment


def _without_deleted(loader: Loader) -> list[int]:
    """Leave out the segments that were deleted, and whose files are still or again there."""
    bases = loader.bases
    dropped = set() if loader.table is None else loader.table.state.dropped
    first = max(min(loader.entries, default=0), max(dropped, default=-1) + 1)
    for base_offset in bases:
        if base_offset < first and not loader.loading.read_only:
            remove_segment_files(loader.loading.disk, loader.segment(base_offset, Positions()))
    return [base_offset for base_offset in bases if base_offset >= first]


def _is_trusted(loader: Loader, entry: TableEntry, must_recover: bool, is_last: bool) -> bool:
    if loader.scans_all or (must_recover and entry.state is not SegmentState.CLOSED):
        return False
    if entry.state is SegmentState.OPEN:
        return False
    if entry.state is SegmentState.SEALED and loader.ends_at_recovery_point(entry):
        return False
    if not loader.kinds[entry.base_offset] >= _INDEX_KINDS:
        return False
    # What was active when logfs stopped, a broker may have appended to; or compacted the others.
    is_closed = entry.state is SegmentState.CLOSED
    is_compacted = loader.topic_partition in loader.loading.compacted
    if not (is_last or must_recover or is_closed or is_compacted):
        return True
    name = loader.known_segment(entry).name
    return loader.loading.disk.stat(name).size == entry.size_bytes


def _scan(
    loader: Loader, segment: Segment, entry: TableEntry | None, behind: Sequence[int]
) -> Segment:
    """Scan a segment and store its indexes; cut it where it is bad if it is to be recovered."""
    loading, must_recover = loader.loading, loader.must_recover(behind)
    may_grow = loading.is_live and not behind
    log = loading.disk.open(segment.name, write=not loading.read_only)
    pass_over = not (must_recover or may_grow)
    scan = _scan_log(loader, segment, log, entry, pass_over_corrupt=pass_over)
    scan.describe(segment)
    _note_producers(loader, segment, scan, is_recovered=must_recover)
    for position, size, why in scan.corrupt:
        loader.lose("corrupt", segment.name, position, size,
                    f"{segment.name}: the batch at byte {position} ({size} bytes) cannot be read: "
                    f"{why}; it stays where it is")  # fmt: skip
    if not may_grow:
        _settle_end(loader, segment, scan, log, entry, behind)
    loader.has_changed = True
    is_gapped = _keeps_its_gaps(loader, scan, entry)
    if is_gapped and entry is not None:
        segment = loader.known_segment(entry)
    if loading.read_only:
        segment.pinned_files = None if is_gapped else MemoryFiles(loading.disk, segment, scan)
        return segment
    if must_recover and behind:
        log.sync()

    def store_indexes() -> None:
        if not segment.is_deleted:
            rebuild_indexes(loading.disk, segment, scan, but_text=is_gapped)
            segment.close_files()

    segment.pinned_files = MemoryFiles(loading.disk, segment, scan, but_text=is_gapped)
    with loader.deferring(store_indexes):
        store_indexes()
    return segment


def _scan_log(
    loader: Loader,
    segment: Segment,
    log: File,
    entry: TableEntry | None,
    *,
    pass_over_corrupt: bool,
) -> Scan:
    config = loader.config
    scan = scan_segment(log, segment, config, pass_over_corrupt=pass_over_corrupt)
    if entry is None:
        check_span(scan, segment, read_only=loader.loading.read_only)
    elif scan.corrupt and entry.size_bytes == scan.file_size:
        lengths = scan.lengths_of_corrupt(entry.kept)
        return scan_segment(
            log, segment, config, pass_over_corrupt=True, lengths_of_corrupt=lengths
        )
    return scan


def _settle_end(
    loader: Loader,
    segment: Segment,
    scan: Scan,
    log: File,
    entry: TableEntry | None,
    behind: Sequence[int],
) -> None:
    """Have the file end where its batches end, and say what is missing."""
    if scan.valid_bytes < scan.file_size:
        scan.leave_out_padding(log, loader.config, is_last=not behind)
    if scan.valid_bytes < scan.file_size:
        if entry is None or entry.size_bytes != scan.valid_bytes:
            _handle_tail(loader, segment, scan, log, behind)
            return
        # left by a write that failed, never part of the log
    elif entry is not None and entry.size_bytes not in (None, scan.file_size):
        _note_other_size(loader, segment, scan, entry)
    if not loader.loading.read_only and log.size() > scan.valid_bytes:
        log.truncate(scan.valid_bytes)
        log.sync()


def _note_other_size(loader: Loader, segment: Segment, scan: Scan, entry: TableEntry) -> None:
    """Note that a segment of whole batches has another size than the table says."""
    missing = (entry.size_bytes or 0) - scan.file_size
    if loader.loading.is_clean and entry.state is SegmentState.SEALED:
        # Of one with gaps more is to be said: see _keeps_its_gaps.
        if not entry.has_gaps:
            loader.lose("positions", segment.name, 0, 0,
                        f"{segment.name} has {scan.file_size} bytes, logfs left it with "
                        f"{entry.size_bytes}: somebody else, a broker perhaps, has compacted it; "
                        "the positions in it start anew where it begins")  # fmt: skip
    elif missing > 0:
        loader.lose("cut", segment.name, scan.file_size, missing,
                    f"{segment.name}: its last {missing} bytes are gone; they were not durable "
                    "when the machine stopped")  # fmt: skip


def _note_producers(loader: Loader, segment: Segment, scan: Scan, *, is_recovered: bool) -> None:
    loader.produced[segment.base_offset] = scan.builder.produced
    loader.leader_epochs += scan.builder.leader_epochs
    if is_recovered:
        loader.recovered.add(segment.base_offset)
        loader.counters.recovered_segments += 1
        loader.counters.recovered_bytes += scan.file_size


def _keeps_its_gaps(loader: Loader, scan: Scan, entry: TableEntry | None) -> bool:
    """Whether the text index of a compacted segment, which no scan can rebuild, still holds."""
    if entry is None or not entry.has_gaps:
        return False
    old = loader.known_segment(entry)
    try:
        old.files().text_entries()
        is_whole = scan.valid_bytes == scan.file_size == entry.size_bytes and not scan.corrupt
    except (LogfsError, FileNotFoundError):
        is_whole = False
    if not is_whole:
        loader.lose("positions", old.name, 0, 0,
                    f"{old.name}: the positions in this compacted segment are lost and start anew "
                    "where it begins")  # fmt: skip
    return is_whole


def _handle_tail(
    loader: Loader, segment: Segment, scan: Scan, log: File, behind: Sequence[int]
) -> None:
    """Cut what is no whole batch at the end of a segment, or leave it if nothing says to cut."""
    position, size = scan.valid_bytes, scan.file_size - scan.valid_bytes
    what = f"{segment.name}: {size} bytes from byte {position} on are no whole batch"
    what = f"{what} ({scan.problem})"
    if not loader.must_recover(behind) and (behind or position):
        loader.lose("corrupt", segment.name, position, size, f"{what}; they stay")
        loader.has_junk = not behind
        return
    is_half = not behind and _is_half_written(loader, scan, log)
    loader.has_cut = True
    if loader.loading.read_only:
        _set_aside(loader, behind, "it lies behind a cut")
        if not is_half:
            loader.lose("cut", segment.name, position, size, f"{what}; recovery would cut them")
        return

    def cut() -> None:
        if segment.is_deleted:
            return
        if not is_half:
            _distrust(loader, segment)
        _set_aside(loader, behind, "it lies behind a cut")
        copy = copy_tail(loader.loading.disk, segment, log, position, scan.file_size)
        where = f"a copy is in {copy}" if copy else "all of them were zero"
        if is_half:
            logger.info("%s and were cut: the append that they begin was not over; %s", what, where)
        else:
            loader.lose("cut", segment.name, position, size, f"{what} and were cut; {where}")
        log.truncate(position)
        log.sync()

    with loader.deferring(cut):
        cut()


def _is_half_written(loader: Loader, scan: Scan, log: File) -> bool:
    """Whether a tail is the begin of a batch whose append was not over when the process died.

    It was never acknowledged, so it is no loss. That is known only if the machine has run since,
    with the same page cache: what was acknowledged is there as a whole. Positions go on at the
    lease all the same: that costs nothing and holds even if this should be wrong.
    """
    loading = loader.loading
    is_same_run = loader.boots == {loader.cache_mark} and not loading.has_failed
    durable = loading.recovery_points.get(loader.topic_partition, 0)
    offset = int(scan.builder.next_offset)
    size = scan.file_size - scan.valid_bytes
    if not is_same_run or offset < durable or size >= loader.config.max_message_bytes:
        return False
    tail = log.pread(size, scan.valid_bytes)
    # In a preallocated file the scan finds zeros in the place of what was not written.
    is_cut_short = scan.problem == INCOMPLETE or (scan.padding and claims_more(tail))
    return bool(is_cut_short) and begins_batch(tail, offset, scan.padding)


def _distrust(loader: Loader, segment: Segment) -> None:
    """Note in the table that positions up to the lease are used up, before any of them goes."""
    if loader.table is not None:
        entry = TableEntry(
            segment.base_offset,
            SegmentState.OPEN,
            segment.bases,
            loader.shown,
            has_gaps=segment.has_gaps,
            boot=NO_BOOT,
        )
        loader.table.put(entry)
        loader.table.sync()


def _set_aside(loader: Loader, bases: Sequence[int], why: str) -> None:
    """Rename the ``.log`` of segments that cannot stay, from the last one on."""
    disk = loader.loading.disk
    for base_offset in reversed(bases):
        segment = loader.segment(base_offset, Positions())
        if not disk.exists(segment.name):
            continue  # by an attempt that the disk was too full for
        size = disk.stat(segment.name).size
        if loader.loading.read_only:
            loader.lose("cut", segment.name, 0, size,
                        f"{segment.name}: {why}; recovery would set it aside")  # fmt: skip
            continue
        if size:
            name = names.unused_cut_file(disk.exists, segment.directory, base_offset, 0)
            loader.lose("cut", segment.name, 0, size,
                        f"{segment.name}: {why}, so it was set aside as {name}")  # fmt: skip
            disk.rename(segment.name, f"{segment.directory}/{name}")
        remove_segment_files(disk, segment)
        disk.sync_directory(segment.directory)
        loader.has_changed = True
