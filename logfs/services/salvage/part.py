"""Copying a part of a ``.log``: its batches up to one that is too far from the base offset."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from logfs.disk.vfs import Disk, copy_range
from logfs.log import names
from logfs.log.segments.scan import end_of_data
from logfs.records.layout import (
    HEADER_BYTES,
    base_offset_of,
    first_timestamp_of,
    is_message,
    max_timestamp_of,
)
from logfs.services.salvage.gaplessfile import GaplessFile
from logfs.services.salvage.report import Gone
from logfs.services.salvage.search import BatchSearch
from logfs.services.salvage.segmentcopy import SegmentCopy
from logfs.services.verifying.walking import IndexedBatches, SegmentWalk

NO_OFFSET = -1
"""With this base offset no batch is used."""

_MISSING = "no batch has these offsets"


class Source(NamedTuple):
    """A ``.log`` to read: its name, base offset, and the offset that its batches do not reach."""

    name: str
    base_offset: int
    limit: int | None
    is_last: bool


class SegmentPart(NamedTuple):
    """A ``.log`` from its byte ``start`` on; positions in ``log`` are relative to that byte."""

    source: Source
    log: GaplessFile
    start: int


@dataclass(slots=True)
class EndOfCopy:
    """The end of the batches that were copied.

    Attributes:
        offset: The offset after the last batch.
        last_ms: The largest timestamp of that batch; None: it has none.
        waiting: What was left out after it; the batch that follows is not known yet.
    """

    offset: int = 0
    last_ms: int | None = None
    waiting: list[Gone] = field(default_factory=list)

    def take_gone(self, begin: int | None, before_ms: int | None) -> list[Gone]:
        """Return what was left out before the batch with an offset; None: no batch follows."""
        first, gone = self.offset, []
        for number, one in enumerate(self.waiting, 1):
            known = None if number == len(self.waiting) else one.next_offset
            following = begin if known is None or (begin is not None and known > begin) else known
            gone.append(
                one._replace(
                    first_offset=first,
                    next_offset=following,
                    after_ms=self.last_ms,
                    before_ms=before_ms,
                )
            )
            first = first if following is None else max(first, following)
        self.waiting = []
        return gone


class PartCopy:
    """One attempt to copy a part; ``discard`` it if some base offsets have to be replaced first.

    Args:
        part: The part.
        offsets: The base offsets that are replaced, by the positions of their batches.
        refused: Why those with ``NO_OFFSET`` are left out, by their positions.
        target: The copy; None: nothing is written.
        directory: The partition directory.
        reached: What was copied before.

    Attributes:
        reached: What has been copied now.
        segment: The segment that is written.
        records: The number of records in it.
        gone, notes: See ``SalvagedPartition``.
        wrong: See ``SegmentWalk``.
        beyond: Why batches cannot be used that have an offset of the next segment, by position.
        far: Where the next part begins; None if everything was copied.
    """

    def __init__(
        self,
        part: SegmentPart,
        offsets: Mapping[int, int],
        refused: Mapping[int, str],
        target: Disk | None,
        directory: str,
        reached: EndOfCopy,
    ) -> None:
        self._part = part
        self._log = part.log.with_base_offsets(offsets)
        self._refused = refused
        self._target = target
        self._directory = directory
        self._kept: list[str] = []
        self.reached = replace(reached, waiting=[*reached.waiting])
        self.segment = SegmentCopy(target, directory)
        self.records = 0
        self.gone: list[Gone] = []
        self.notes: list[str] = []
        self.wrong: dict[int, int] = {}
        self.beyond: dict[int, str] = {}
        self.far: int | None = None

    def run(self, count: Callable[[int], object] | None, *, may_have_holes: bool) -> None:
        """Copy the part.

        Args:
            count: Called with numbers of bytes that were read; None: not called.
            may_have_holes: Records may have been removed by compaction.
        """
        source = self._part.source
        following = () if source.limit is None else (source.limit,)
        walk = SegmentWalk(
            self._log, source.base_offset, (), source.is_last, proves_all=True, following=following
        )
        walk.hints = BatchSearch(self._log, walk.builder, source.limit)
        records = 0
        for chunk in walk.chunks():
            self._leave_out_bad(walk)
            self._take(chunk, int(walk.builder.records) - records, may_have_holes=may_have_holes)
            records = int(walk.builder.records)
            if count is not None:
                count(chunk.stop - chunk.start)
        self.wrong, self.far = walk.wrong, None if walk.far is None else walk.far[0]
        self._leave_out_bad(walk)
        if self.far is None:
            self._leave_out_rest(walk)
        elif source.limit is not None and self._offset_at(self.far) >= source.limit:
            self._note_beyond(self.far)

    def discard(self) -> None:
        """Remove everything that was written."""
        self.segment.discard()
        for name in self._kept:
            if self._target is not None:
                self._target.remove(name)

    def _leave_out_bad(self, walk: SegmentWalk) -> None:
        """Leave out what a walk could not use."""
        for one in walk.bad:
            is_of_next_part = walk.far is not None and one.position >= walk.far[0]
            if one.size and not is_of_next_part:
                why = self._refused.get(one.position, one.why)
                self._leave_out(one.position, one.size, why, one.next_offset)
        walk.bad = []

    def _leave_out_rest(self, walk: SegmentWalk) -> None:
        """Leave out what a segment has after its last batch, but zeros."""
        position = int(walk.builder.file_position)
        rest = walk.size - position
        if walk.tail is not None:
            self._leave_out(position, rest, walk.tail.why)
        elif rest > 0 and self._part.log.unreadable_in(position, rest):
            self._leave_out(position, rest, "no batch is there")

    def _offset_at(self, position: int) -> int:
        return base_offset_of(self._log.pread(HEADER_BYTES, position))

    def _note_beyond(self, position: int) -> None:
        offset = self._offset_at(position)
        self.beyond[position] = f"its offset {offset} is one of the next segment"

    def _take(self, chunk: IndexedBatches, records: int, *, may_have_holes: bool) -> None:
        """Write those batches of a chunk whose offsets follow the last ones."""
        source, reached = self._part.source, self.reached
        base, count, limit = source.base_offset, len(chunk.begins), source.limit
        first = bisect_left(chunk.begins, reached.offset - base)
        stop = count if limit is None else bisect_left(chunk.ends, limit - base)
        places = [*chunk.places, chunk.stop]
        if first:
            offsets = f"{chunk.begins[0] + base} to {chunk.ends[first - 1] + base}"
            self.notes.append(
                f"{source.name}: offsets {offsets} are left out: earlier batches have them too"
            )
        if first < stop:
            begin = chunk.begins[first] + base
            if not may_have_holes and not reached.waiting and begin > reached.offset:
                reached.waiting.append(self._missing(places[first], 0, begin))
            self.gone += reached.take_gone(begin, _time(chunk, places[first], first_timestamp_of))
            if not may_have_holes:
                self._note_holes(chunk, first, stop)
            data = memoryview(chunk.buffer)
            data = data[chunk.within(places[first]) : chunk.within(places[stop])]
            # Its own base offset, unless earlier batches have that.
            self.segment.write(data, base if base >= reached.offset else begin)
            reached.offset = chunk.ends[stop - 1] + base + 1
            reached.last_ms = _time(chunk, places[stop - 1], max_timestamp_of)
            if (first, stop) != (0, count):
                records = sum(chunk.ends[first:stop], stop - first) - sum(chunk.begins[first:stop])
            self.records += records
        for position in places[max(first, stop) : count]:
            self._note_beyond(position)

    def _note_holes(self, chunk: IndexedBatches, first: int, stop: int) -> None:
        """Note the offsets that no batch of a chunk has."""
        if chunk.has_all_offsets:
            return
        base = self._part.source.base_offset
        for number in range(first + 1, stop):
            end, begin = chunk.ends[number - 1] + base + 1, chunk.begins[number] + base
            if begin > end:
                before, position = chunk.places[number - 1 : number + 1]
                one = self._missing(position, end, begin)
                after_ms = _time(chunk, before, max_timestamp_of)
                before_ms = _time(chunk, position, first_timestamp_of)
                self.gone.append(one._replace(after_ms=after_ms, before_ms=before_ms))

    def _missing(self, position: int, end: int, begin: int) -> Gone:
        name, start = self._part.source.name, self._part.start + position
        return Gone(name, start, 0, _MISSING, end, begin)

    def _leave_out(
        self, position: int, size: int, why: str, next_offset: int | None = None
    ) -> None:
        """Keep bytes in a ``.cut`` file, and report them once it is known what follows."""
        part = self._part
        unreadable = part.log.unreadable_in(position, size)
        if unreadable:
            why += f"; the disk cannot read {unreadable} bytes there"
        name, start = part.source.name, part.start + position
        kept_as = self._keep(position, size)
        self.reached.waiting.append(Gone(name, start, size, why, 0, next_offset, kept_as=kept_as))

    def _keep(self, position: int, size: int) -> str | None:
        """Copy bytes into a ``.cut`` file; returns its name, None if there is nothing to keep."""
        part, stop = self._part, position + size
        if self._target is None or end_of_data(part.log, position, stop) == position:
            return None
        name = names.unused_cut_file(
            self._target.exists, self._directory, part.source.base_offset, part.start + position
        )
        self._kept.append(f"{self._directory}/{name}")
        copy_range(part.log, position, stop, self._target, self._kept[-1])
        return name


def _time(
    chunk: IndexedBatches, position: int, time_of: Callable[[bytearray, int], int]
) -> int | None:
    """Return a timestamp of a batch; None if it has none, as messages of old formats."""
    at = chunk.within(position)
    if is_message(chunk.buffer, at):
        return None
    found = time_of(chunk.buffer, at)
    return found if found >= 0 else None
