"""What becomes of a followed log when its files were removed, replaced or cut.

What is kept keeps its positions. What comes after a cut begins after every position that was ever
shown, and says so in the text index of the segment that was cut.

A segment that the broker's cleaner has rewritten is read beside those it was made of, while their
names or open descriptors last: a record keeps the position that the record with its offset had.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError, LogfsError
from logfs.log.indexes.index import Entries
from logfs.log.names import FileKind, format_segment_file
from logfs.log.segments.batches import BatchWalk
from logfs.log.segments.scan import scan_segment
from logfs.log.segments.segment import Segment
from logfs.records._compaction import KeptRecords
from logfs.records.compression import decompress
from logfs.services.following.files import GrowingFiles, OwnedSegments
from logfs.services.following.listing import Changes, Replaced
from logfs.services.following.positions import FollowedPositions
from logfs.services.following.tail import Boundary, Tail, entries_before, find_boundary, gap_pair
from logfs.services.following.tailcheckpoint import TailCheckpoint
from logfs.types import Positions

Views = tuple[Entries, Entries, Entries]
"""The entries of offset, time and text index."""


class Damage(NamedTuple):
    """Something that was shown and is gone; the fields of a ``Loss``."""

    kind: str
    file: str
    position: int
    bytes: int
    offset: int
    detail: str


@dataclass(slots=True)
class ViewRebuild:
    """A followed log while what readers see of it is rebuilt.

    Attributes:
        shown: Positions that no size ever shown exceeds.
        sealed, present: The segments, and the end of the last one; what they are to become.
        has_cut: Readers have to look up their position again.
    """

    disk: Disk
    opened: OwnedSegments
    positions: FollowedPositions
    directory: str
    config: TopicConfig
    shown: Positions
    sealed: list[Segment]
    present: Tail | None = None
    gone: list[Segment] = field(default_factory=list)
    has_cut: bool = False
    damage: list[Damage] = field(default_factory=list)

    @property
    def tail(self) -> Tail:
        """The end of the last segment."""
        assert self.present is not None
        return self.present

    def apply(self, changes: Changes, logs: Mapping[int, int]) -> None:
        """Follow what two looks found out; after a FileNotFoundError nothing was changed."""
        old = [*self.sealed, self.tail.segment]
        rewritten = {
            group.first: self._open_rewritten(old[group.first], logs) for group in changes.replaced
        }
        self.gone += old[: changes.dropped]
        groups = {group.first: group for group in changes.replaced}
        cut = len(old) if changes.cut is None else changes.cut
        self.sealed = []
        number = changes.dropped
        while number < cut:
            group = groups.get(number)
            if group is not None and not self._rewrite(old, group, rewritten[number]):
                cut = number
            elif group is not None:
                number = group.stop
            else:
                self._keep(old[number], is_lost=number in changes.lost)
                number += 1
        if cut < len(old):
            self.gone += old[cut:]
            self.end_at_last(logs)
        else:
            self.sealed.pop()

    def cut_tail(self) -> None:
        """The segment that is appended to was cut."""
        self.restart(self.tail.segment, self.tail.files.all_entries(), self.tail.find_cut())

    def skip_offsets(self, boundary: Boundary) -> None:
        """The log continues with another offset than that at which it was cut."""
        self.restart(self.tail.segment, self.tail.files.all_entries(), boundary, is_loss=False)

    def resume(
        self, segment: Segment, entries: Views, boundary: Boundary, max_timestamp: int
    ) -> None:
        """Continue with a segment that was read up to a boundary."""
        tail = self._open_tail(segment, entries_before(entries, segment, boundary))
        positions = segment.bases.plus(boundary.lengths)
        tail.go_on(boundary.position, boundary.offset, positions, max_timestamp)
        self.present = tail

    def resume_checkpoint(self, segment: Segment, entries: Views, note: TailCheckpoint) -> None:
        """Continue where a note says, or from where the log is not what it was."""
        boundary = Boundary(note.file_end, note.next_offset, note.lengths)
        offset, time, _ = entries_before(entries, segment, boundary)
        # The note says how many text entries belong to it: a gap at the end is the last of them.
        tail = self._open_tail(segment, (offset, time, bytes(entries[2])))
        if not tail.resume(note):
            self.present = None
            found = find_boundary(tail.log, segment, entries[2], note.file_end, tail.leader_epoch)
            self.restart(segment, entries, found)
            return
        self.present = tail
        self.positions.go_on(segment, note.text_entries)
        if self.positions.may_have_lost and tail.end.positions != self.shown:
            self.restart(segment, entries, boundary, is_loss=False)

    def begin(self, base_offset: int, bases: Positions) -> None:
        """Begin with a segment of which nothing is known."""
        self.present = self.open_segment(base_offset, bases)
        self.positions.begin(self.tail.segment, b"")

    def open_segment(self, base_offset: int, bases: Positions) -> Tail:
        """Open a segment of which nothing is known."""
        segment = Segment(self.opened, self.directory, base_offset, bases)
        return self._open_tail(segment, (b"", b"", b""))

    def _keep(self, segment: Segment, *, is_lost: bool) -> None:
        if not is_lost:
            self.sealed.append(segment)
            return
        self.gone.append(segment)
        self._lose(segment, Boundary(0, segment.base_offset, Positions()), segment.ends,
                   "it is gone, and nothing took its place")  # fmt: skip

    def _open_rewritten(self, old: Segment, logs: Mapping[int, int]) -> File:
        """Open the ``.log`` that has taken the place of a segment, and others after it."""
        name = f"{self.directory}/{format_segment_file(old.base_offset, FileKind.LOG)}"
        log = self.disk.open(name)
        if log.inode() != logs[old.base_offset]:
            raise FileNotFoundError(f"{name} has been replaced again")
        return log

    def _rewrite(self, old: Sequence[Segment], group: Replaced, log: File) -> bool:
        """Take the segment that replaced a group; False if its positions are lost."""
        members = old[group.first : group.stop]
        new = Segment(self.opened, self.directory, members[0].base_offset, members[0].bases)
        for segment in members:
            segment.is_deleted = True
        new.inode = log.inode()
        try:
            entry = self.positions.entry_of_rewritten(new, log.size())
            if entry is not None:
                new = Segment.from_entry(self.opened, self.directory, entry)
                new.inode = log.inode()
                self.sealed.append(new)
                self.gone += members
                return True
            rewritten = index_compacted(members, new, log, self.config)
        except (LogfsError, FileNotFoundError) as error:
            self._lose(members[0], Boundary(0, new.base_offset, Positions()), self.shown,
                       f"it was rewritten, and what it was made of cannot be read: {error}",
                       is_cut=True)  # fmt: skip
            return False
        self.positions.replace(new, rewritten.entries)
        new.files().log = log
        self.sealed.append(new)
        self.gone += members
        return True

    def end_at_last(self, logs: Mapping[int, int]) -> None:
        """Continue with the last segment that is left, or with the first one there is."""
        if not self.sealed:
            self.has_cut = True
            self.begin(min(logs), self.shown)
            return
        last = self.sealed.pop()
        files = last.files()
        entries = files.offset_entries(), files.time_entries(), files.text_entries()
        log = self.disk.open(last.name)
        boundary = find_boundary(log, last, entries[2], last.size_bytes, self._leader_epoch)
        if boundary.position == last.size_bytes:  # gaps at its end are not found by counting
            boundary = boundary._replace(lengths=last.ends.minus(last.bases))
        self.restart(last, entries, boundary)

    def restart(
        self,
        segment: Segment,
        entries: Views,
        boundary: Boundary,
        *,
        is_loss: bool = True,
    ) -> None:
        """Continue at a boundary in a segment; what comes next is after what was shown."""
        bases, left = segment.bases, entries_before(entries, segment, boundary)
        is_cut = bases.plus(boundary.lengths) != self.shown
        if is_cut and not boundary.position:
            bases = self.shown
        new = Segment(self.opened, self.directory, segment.base_offset, bases)
        new.first_timestamp = segment.first_timestamp
        if is_cut and boundary.position:
            new.has_gaps = True
            left = (*left[:2], left[2] + gap_pair(new, boundary, self.shown))
        else:
            new.has_gaps = segment.has_gaps
        highest = segment.max_timestamp
        if self.present is not None and segment is self.present.segment:
            highest = self.present.end.max_timestamp
        if is_cut and is_loss:
            why = f"the log was cut at offset {boundary.offset}"
            self._lose(segment, boundary, self.shown, why, is_cut=True)
        self.present = self._open_tail(new, left)
        self.present.go_on(boundary.position, boundary.offset, self.shown, highest)
        self.positions.begin(new, left[2])

    def lose_from(self, base_offset: int, bases: Positions, why: str) -> None:
        """Note that positions from a segment on are lost."""
        segment = Segment(self.opened, self.directory, base_offset, bases)
        self._lose(segment, Boundary(0, base_offset, Positions()), self.shown, why, is_cut=True)

    @property
    def _leader_epoch(self) -> int:
        if self.present is not None:
            return self.present.leader_epoch
        return -1 if self.positions.tail is None else self.positions.tail.leader_epoch

    def _open_tail(self, segment: Segment, entries: tuple[bytes, bytes, bytes]) -> Tail:
        log = self.disk.open(segment.name)
        segment.inode = log.inode()
        files = GrowingFiles(self.disk, segment, self.positions, log, entries)
        tail = Tail(log, segment, files, self.config.index_interval_bytes)
        tail.epoch_before = self._leader_epoch
        return tail

    def _lose(
        self,
        segment: Segment,
        boundary: Boundary,
        end: Positions,
        why: str,
        *,
        is_cut: bool = False,
    ) -> None:
        begin = segment.bases.plus(boundary.lengths)
        size = end.text - begin.text
        behind = "; what was written since is after them" if is_cut else ""
        detail = f"{segment.name}: {why}: positions {begin.text} to {end.text} are gone{behind}"
        self.has_cut = True
        self.damage.append(
            Damage("cut", segment.name, boundary.position, size, boundary.offset, detail)
        )


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A segment that was rewritten, and the entries of its text index."""

    segment: Segment
    entries: bytes


def index_compacted(
    old: Sequence[Segment], new: Segment, log: File, config: TopicConfig
) -> Rewritten:
    """Describe a rewritten segment.

    Args:
        old: The segments it was made of, in order.
        new: The segment, with base offset, bases and inode; the rest is filled in.

    Raises:
        FileNotFoundError: An old file is gone for good.
        CorruptRecordError: A batch does not decode, or the new file has what the old ones had not.
    """
    scan = scan_segment(log, new, config)
    if scan.problem is not None:
        raise CorruptRecordError(f"{new.name}: {scan.problem}", scan.valid_bytes, new.name)
    scan.describe(new)
    total = old[-1].ends.minus(old[0].bases)
    if new.lengths == total:
        return Rewritten(new, bytes(scan.text_entries))
    walk = KeptRecords(new.base_offset, config.index_interval_bytes, decompress)
    windows = _old_windows(walk, old)
    new_windows = BatchWalk(log, 0, new.size_bytes)
    while True:
        if walk.run():
            if next(windows, None) is None:
                raise CorruptRecordError(f"{new.name} has records that were not there before")
        elif (window := next(new_windows, None)) is not None:
            walk.load_new(window.take_buffer(), 0, window.stop, window.file_position)
        else:
            break
    new.has_gaps = True
    new.ends = new.bases.plus(walk.lengths)
    new.lengths = Positions(*walk.kept_lengths)
    return Rewritten(new, walk.take())


def _old_windows(walk: KeptRecords, old: Sequence[Segment]) -> Iterator[bool]:
    """Load one window of the old segments after the other."""
    for segment in old:
        files = segment.files()
        entries = bytes(files.text_entries())
        lengths = segment.bases.minus(old[0].bases)
        walk.begin_old(entries, segment.base_offset, *lengths)
        for window in BatchWalk(files.log, 0, segment.size_bytes):
            walk.load_old(window.take_buffer(), 0, window.stop)
            yield True
