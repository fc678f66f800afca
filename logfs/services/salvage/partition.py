"""Copying what can be read of one partition."""

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

from logfs.disk.vfs import Disk, copy_range
from logfs.log import names
from logfs.log.listing import list_partition
from logfs.log.losses import CUT, Loss, LossFile
from logfs.log.names import FileKind, FileSuffix, format_segment_file
from logfs.log.segments.batches import decodes, is_refused
from logfs.log.segments.scan import end_of_data
from logfs.records.layout import (
    HEADER_BYTES,
    LENGTH_AT,
    base_offset_of,
    first_timestamp_of,
    is_message,
    last_offset_delta_of,
    max_timestamp_of,
    size_of,
)
from logfs.services.salvage.gaplessfile import GaplessFile
from logfs.services.salvage.otherfiles import (
    copy_other_files,
    is_of_source,
    tiered_only,
)
from logfs.services.salvage.report import Gone, SalvagedPartition
from logfs.services.salvage.search import BatchSearch
from logfs.services.salvage.segmentcopy import SegmentCopy
from logfs.services.verifying.tables import read_table
from logfs.services.verifying.walking import BadBytes, IndexedBatches, SegmentWalk
from logfs.types import TopicPartition

_MISSING = "no batch has these offsets"


class Known(NamedTuple):
    """The facts about a partition in other files of a data directory.

    Attributes:
        may_have_holes: Records may have been removed by compaction.
        end_offset: An offset that the log had reached; 0 if none is known.
    """

    may_have_holes: bool
    end_offset: int


class _Source(NamedTuple):
    """A ``.log`` to read: its name, base offset, and the offset that its batches do not reach."""

    name: str
    base_offset: int
    limit: int | None
    is_last: bool


class _Part(NamedTuple):
    """A ``.log`` from its byte ``start`` on; positions in ``log`` are relative to that byte."""

    source: _Source
    log: GaplessFile
    start: int


class PartitionSalvage:
    """Copies one partition.

    Args:
        source: The damaged data directory; nothing is written there.
        target: The copy, which has no such partition; None: nothing is written.
        known: The facts in other files.
        now_ms: The time that its losses get.
        count: Called with a number of bytes that have been read.
    """

    def __init__(
        self,
        source: Disk,
        target: Disk | None,
        topic_partition: TopicPartition,
        *,
        known: Known,
        now_ms: int,
        count: Callable[[int], object],
    ) -> None:
        self._source = source
        self._target = target
        self._directory = topic_partition.directory
        self._may_have_holes, self._known_end = known
        self._now_ms = now_ms
        self._count = count
        self._result = SalvagedPartition(topic_partition)
        self._end: int | None = None  # the offset after the last batch
        self._last_ms: int | None = None  # its largest timestamp
        self._waiting: list[Gone] = []  # left out since; what follows is not known yet
        self._segment = SegmentCopy(None, "")
        self._is_misled = False  # the walk refuses batches because of a wrong offset before them

    def run(self) -> SalvagedPartition:
        """Copy it; durable on return.

        Raises:
            OSError: The copy cannot be written, or the directory of the source not be listed.
        """
        sources = self._sources()
        if self._target is not None:
            self._target.make_directory(self._directory)
        self._result.notes += copy_other_files(self._source, self._target, self._directory)
        for source in sources:
            self._copy_segment(source)
        result = self._result
        result.end_offset = self._end or 0
        if not self._waiting and result.end_offset < self._known_end:
            file, why = f"{self._directory}/", f"the log had reached offset {self._known_end}"
            self._waiting.append(Gone(sources[-1].name if sources else file, 0, 0, why, 0, None))
        is_known = result.end_offset < self._known_end
        self._report(self._known_end if is_known else None, None)
        bases = [source.base_offset for source in sources]
        result.notes += tiered_only(self._source, self._directory, bases)
        if self._target is not None:
            self._save_losses(self._target)
            self._target.sync_directory(self._directory)
        return result

    def _sources(self) -> list[_Source]:
        """Return the ``.log`` files to copy, in the order of their offsets.

        A whole output of a compaction replaces the segments whose offsets it has.

        Source: Kafka LogLoader.completeSwapOperations.
        """
        listing = list_partition(self._source, self._directory)
        state = read_table(self._source, self._directory).state
        dropped = set() if state is None else state.dropped
        found = {
            base: suffix
            for suffix in (FileSuffix.NONE, FileSuffix.SWAP)
            for base in listing.inodes(FileKind.LOG, suffix)
            if base not in dropped
        }
        if any(entry.has_gaps for entry in ({} if state is None else state.entries).values()):
            self._may_have_holes = True
        bases = sorted(found)
        return [
            _Source(
                f"{self._directory}/{format_segment_file(base, FileKind.LOG, found[base])}",
                base,
                None if found[base] is FileSuffix.SWAP or base == bases[-1] else bases[number + 1],
                base == bases[-1],
            )
            for number, base in enumerate(bases)
        ]

    def _copy_segment(self, source: _Source) -> None:
        """Copy one segment; as several, if its offsets are too far apart for one."""
        start, base_offset = 0, source.base_offset
        if self._end is None:
            self._end = self._result.start_offset = base_offset
        try:
            log = GaplessFile(source.name, self._source.open(source.name, uncached=True))
        except OSError as error:
            if not is_of_source(error):
                raise
            why = f"it cannot be opened: {error.strerror}"
            self._waiting.append(Gone(source.name, 0, 0, why, 0, source.limit))
            return
        try:
            while True:
                part = _Part(source._replace(base_offset=base_offset), log.after(start), start)
                rest = self._copy_part(part)
                if rest is None:
                    break
                start += rest
                base_offset = self._end
                if is_refused(log, start):
                    base_offset = max(base_offset, base_offset_of(log.pread(HEADER_BYTES, start)))
        finally:
            log.close()

    def _copy_part(self, part: _Part) -> int | None:
        """Copy batches up to one that is too far from the base offset.

        Returns:
            Where the next part begins; None if everything was copied.
        """
        source = part.source
        self._segment = SegmentCopy(self._target, self._directory)
        self._is_misled = False
        walk = SegmentWalk(part.log, source.base_offset, (), source.is_last)
        walk.hints = BatchSearch(part.log, walk.builder, source.limit)
        records = 0
        for chunk in walk.chunks():
            self._take_bad(part, walk.bad, chunk.begins[0] + source.base_offset)
            walk.bad = []
            self._take(part, chunk, int(walk.builder.records) - records)
            records = int(walk.builder.records)
            self._count(chunk.stop - chunk.start)
        far = None if walk.far is None else walk.far[0]
        self._take_bad(part, [one for one in walk.bad if far is None or one.position < far], None)
        if far is None:
            self._take_end(part, walk)
        else:
            far = self._take_far(part, far)
        self._result.segments += self._segment.close()
        self._result.size_bytes += self._segment.size_bytes
        return far

    def _take_far(self, part: _Part, position: int) -> int | None:
        """Take a batch that is too far from the base offset, if only its offset is damaged.

        Returns:
            Where the next part begins; None at the end of the segment.
        """
        head, limit = part.log.pread(HEADER_BYTES, position), part.source.limit
        is_beyond = limit is not None and base_offset_of(head) >= limit
        if not is_beyond and self._right_offset(part, position) is None:
            return position
        self._take_beyond(part, position)
        end = position + size_of(head)
        return end if end < part.log.size() else None

    def _take_beyond(self, part: _Part, position: int) -> None:
        """Take a batch with an offset of the next segment or a far one: it is damaged."""
        right = self._right_offset(part, position)
        if right is not None:
            self._write_repaired(part, position, right)
            return
        head = part.log.pread(HEADER_BYTES, position)
        why = f"its offset {base_offset_of(head)} is one of the next segment"
        self._take_bad(part, [BadBytes(position, size_of(head), why)], None)

    def _take_end(self, part: _Part, walk: SegmentWalk) -> None:
        """Leave out what a segment has after its last batch, but zeros."""
        position = int(walk.builder.file_position)
        rest = walk.size - position
        if walk.tail is not None:
            self._leave_out(part, position, rest, walk.tail.why)
        elif rest > 0 and part.log.unreadable_in(position, rest):
            self._leave_out(part, position, rest, "no batch is there")

    def _take(self, part: _Part, chunk: IndexedBatches, records: int) -> None:
        """Write those batches of a chunk whose offsets follow the last ones."""
        base, count, limit = part.source.base_offset, len(chunk.begins), part.source.limit
        first = bisect_left(chunk.begins, (self._end or 0) - base)
        stop = count if limit is None else bisect_left(chunk.ends, limit - base)
        self._is_misled = self._is_misled or stop < count
        places = [*chunk.places, chunk.stop]
        if chunk.is_after_damage and (first, stop, count) == (0, 1, 1):
            right = self._right_offset(part, places[0])
            if right is not None:
                self._is_misled = True
                self._write_repaired(part, places[0], right)
                return
        if first:
            offsets = f"{chunk.begins[0] + base} to {chunk.ends[first - 1] + base}"
            self._result.notes.append(
                f"{part.source.name}: offsets {offsets} are left out: earlier batches have them too"
            )
        if first < stop:
            begin = chunk.begins[first] + base
            self._settle(part, begin, places[first], _first_time(chunk, places[first]))
            self._note_holes(part, chunk, first, stop)
            data = memoryview(chunk.buffer)
            data = data[chunk.within(places[first]) : chunk.within(places[stop])]
            self._segment.write(data, self._name_of(part, begin), places[first])
            self._end = chunk.ends[stop - 1] + base + 1
            self._last_ms = _last_time(chunk, places[stop - 1])
            if (first, stop) != (0, count):
                records = sum(chunk.ends[first:stop]) - sum(chunk.begins[first:stop])
                records += stop - first
            self._result.records += records
        for position in places[max(first, stop) : count]:
            self._take_beyond(part, position)

    def _name_of(self, part: _Part, begin: int) -> int:
        """Return the base offset of a new segment: its own, unless earlier batches have that."""
        base = part.source.base_offset
        return base if base >= (self._end or 0) else begin

    def _note_holes(self, part: _Part, chunk: IndexedBatches, first: int, stop: int) -> None:
        """Note the offsets that no batch of a chunk has."""
        if self._may_have_holes or chunk.has_all_offsets:
            return
        base = part.source.base_offset
        for number in range(first + 1, stop):
            end, begin = chunk.ends[number - 1] + base + 1, chunk.begins[number] + base
            if begin > end:
                position = chunk.places[number]
                times = _last_time(chunk, chunk.places[number - 1]), _first_time(chunk, position)
                self._result.gone.append(
                    Gone(part.source.name, part.start + position, 0, _MISSING, end, begin, *times)
                )

    def _take_bad(self, part: _Part, bad: list[BadBytes], following: int | None) -> None:
        """Repair or leave out what a walk could not use.

        Args:
            following: The offset of the next batch of the segment; None at its end.
        """
        for one in bad:
            head = part.log.pread(HEADER_BYTES, one.position)
            if self._is_misled and self._write_refused(part, one, head):
                continue
            begin = following if one.next_offset is None else one.next_offset
            if begin is None and one.position + one.size == part.log.size():
                begin = part.source.limit
            if not one.size:
                begin = base_offset_of(part.log.pread(HEADER_BYTES, one.seen_from))
            right = None if begin is None else begin - last_offset_delta_of(head) - 1
            if begin is None or right is None or not self._repair(part, one, head, right):
                size = one.size or size_of(head)
                self._leave_out(part, one.position, size, one.why, one.next_offset)

    def _repair(self, part: _Part, bad: BadBytes, head: bytes, right: int) -> bool:
        """Give a batch the base offset that its neighbours prove; returns False without proof.

        No checksum covers a base offset.
        """
        wrong = base_offset_of(head)
        if bad.size:
            is_proven = (
                not self._waiting
                and right == self._end != wrong
                and size_of(head) == bad.size
                and not is_message(head)
                and is_refused(part.log, bad.position)
            )
            if not is_proven:
                return False
            self._write_repaired(part, bad.position, right)
            return True
        if not self._segment.set_base_offset(bad.position, right):
            is_next = right >= (self._end or 0)
            if is_next:
                self._write_repaired(part, bad.position, right)
            return is_next
        before = self._result.gone[-1:]
        if before and before[0][:3] == (part.source.name, part.start + bad.position, 0):
            del self._result.gone[-1]  # the offsets that it seemed to leave out
        self._end, self._last_ms = right + last_offset_delta_of(head) + 1, max_timestamp_of(head)
        self._note_repair(part, bad.position, wrong, right)
        return True

    def _right_offset(self, part: _Part, position: int) -> int | None:
        """Return the base offset that the next batch proves; None if the batch's own may be right.

        It is asked where damage comes before a batch, so that no other batch can prove its offset.
        """
        head = part.log.pread(HEADER_BYTES, position)
        after = position + size_of(head)
        following = part.log.pread(HEADER_BYTES, after)
        if is_message(head) or len(following) < HEADER_BYTES or not is_refused(part.log, after):
            return None
        right = base_offset_of(following) - last_offset_delta_of(head) - 1
        is_contradicted = base_offset_of(head) > right >= (self._end or 0)
        return right if is_contradicted else None

    def _write_repaired(self, part: _Part, position: int, right: int) -> int:
        """Write a batch with another base offset; returns where it ends."""
        head = part.log.pread(HEADER_BYTES, position)
        self._settle(part, right, position, first_timestamp_of(head))
        self._write_batch(part, position, right)
        self._note_repair(part, position, base_offset_of(head), right)
        return position + size_of(head)

    def _write_refused(self, part: _Part, bad: BadBytes, head: bytes) -> bool:
        """Write a batch that the walk refuses because of a wrong offset before it."""
        base = base_offset_of(head) if len(head) == HEADER_BYTES else -1
        limit = part.source.limit
        batch = part.log.pread(bad.size, bad.position)
        if (
            base < (self._end or 0)
            or (limit is not None and base >= limit)
            or size_of(head) != bad.size
            or not decodes(batch, 0, len(batch))
        ):
            return False
        before_ms = None if is_message(head) else first_timestamp_of(head)
        self._settle(part, base, bad.position, before_ms)
        self._write_batch(part, bad.position, base)
        return True

    def _write_batch(self, part: _Part, position: int, base_offset: int) -> None:
        """Write one batch with a base offset."""
        batch = part.log.pread(size_of(part.log.pread(HEADER_BYTES, position)), position)
        self._segment.write(
            base_offset.to_bytes(LENGTH_AT, "big") + batch[LENGTH_AT:],
            self._name_of(part, base_offset),
            position,
        )
        self._end = base_offset + last_offset_delta_of(batch) + 1
        self._last_ms = None if is_message(batch) else max_timestamp_of(batch)
        self._result.records += last_offset_delta_of(batch) + 1

    def _note_repair(self, part: _Part, position: int, wrong: int, right: int) -> None:
        note = (
            f"{part.source.name}: byte {part.start + position}: the batch has offset {wrong}; "
            f"those around it prove that it is {right}, so it was repaired"
        )
        if note not in self._result.notes:  # the walk finds it later
            self._result.notes.append(note)

    def _leave_out(
        self, part: _Part, position: int, size: int, why: str, next_offset: int | None = None
    ) -> None:
        """Keep bytes in a ``.cut`` file, and report them once it is known what follows."""
        unreadable = part.log.unreadable_in(position, size)
        if unreadable:
            why += f"; the disk cannot read {unreadable} bytes there"
        kept_as = self._keep(part, position, size)
        self._waiting.append(
            Gone(
                part.source.name, part.start + position, size, why, 0, next_offset, kept_as=kept_as
            )
        )

    def _keep(self, part: _Part, position: int, size: int) -> str | None:
        """Copy bytes into a ``.cut`` file; returns its name, None if there is nothing to keep."""
        stop = position + size
        if self._target is None or end_of_data(part.log, position, stop) == position:
            return None
        name = names.unused_cut_file(
            self._target.exists, self._directory, part.source.base_offset, part.start + position
        )
        copy_range(part.log, position, stop, self._target, f"{self._directory}/{name}")
        return name

    def _settle(self, part: _Part, begin: int, position: int, before_ms: int | None) -> None:
        """Report what was left out before a batch, and the offsets before it that are missing."""
        if not self._waiting and begin > (self._end or 0) and not self._may_have_holes:
            self._waiting.append(
                Gone(part.source.name, part.start + position, 0, _MISSING, 0, begin)
            )
        self._report(begin, before_ms)

    def _report(self, begin: int | None, before_ms: int | None) -> None:
        """Report what was left out; None: no batch follows."""
        first = self._end or 0
        for number, one in enumerate(self._waiting, 1):
            known = None if number == len(self._waiting) else one.next_offset
            following = begin if known is None or (begin is not None and known > begin) else known
            self._result.gone.append(
                one._replace(
                    first_offset=first,
                    next_offset=following,
                    after_ms=self._last_ms,
                    before_ms=before_ms,
                )
            )
            first = first if following is None else max(first, following)
        self._waiting = []

    def _save_losses(self, target: Disk) -> None:
        losses = LossFile(target, self._directory, read_only=False)
        for gone in self._result.gone:
            file = gone.kept_as or gone.file.rpartition("/")[2]
            where = f"; its bytes are in {gone.kept_as}" if gone.kept_as else ""
            end = "to the end" if gone.next_offset is None else f"up to {gone.next_offset}"
            detail = (
                f"{gone.file}: byte {gone.position}: {gone.why}; a salvage left out the offsets "
                f"from {gone.first_offset} {end}{where}"
            )
            position = 0 if gone.kept_as else gone.position
            losses.note(
                Loss(self._now_ms, CUT, file, position, gone.size_bytes, gone.first_offset, detail)
            )
        losses.save()


def _first_time(chunk: IndexedBatches, position: int) -> int | None:
    return _time(chunk, position, first_timestamp_of)


def _last_time(chunk: IndexedBatches, position: int) -> int | None:
    return _time(chunk, position, max_timestamp_of)


def _time(
    chunk: IndexedBatches, position: int, time_of: Callable[[bytearray, int], int]
) -> int | None:
    """Return a timestamp of a batch; None if it has none, as messages of old formats."""
    at = chunk.within(position)
    if is_message(chunk.buffer, at):
        return None
    found = time_of(chunk.buffer, at)
    return found if found >= 0 else None
