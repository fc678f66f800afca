"""Copying what can be read of one partition."""

from collections.abc import Callable
from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.log.listing import list_partition
from logfs.log.losses import CUT, Loss, LossFile
from logfs.log.names import FileKind, FileSuffix, format_segment_file
from logfs.log.segments.batches import is_refused
from logfs.records.layout import HEADER_BYTES, base_offset_of
from logfs.services.salvage.gaplessfile import GaplessFile
from logfs.services.salvage.otherfiles import copy_other_files, is_of_source, tiered_only
from logfs.services.salvage.part import NO_OFFSET, EndOfCopy, PartCopy, SegmentPart, Source
from logfs.services.salvage.report import Gone, SalvagedPartition
from logfs.services.verifying.tables import read_table
from logfs.types import TopicPartition


class Known(NamedTuple):
    """The facts about a partition in other files of a data directory.

    Attributes:
        may_have_holes: Records may have been removed by compaction.
        end_offset: An offset that the log had reached; 0 if none is known.
    """

    may_have_holes: bool
    end_offset: int


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
        self._reached = EndOfCopy()

    def run(self) -> SalvagedPartition:
        """Copy it; durable on return.

        Raises:
            OSError: The copy cannot be written, or the directory of the source not be listed.
        """
        sources, result, reached = self._sources(), self._result, self._reached
        if sources:
            result.start_offset = reached.offset = sources[0].base_offset
        if self._target is not None:
            self._target.make_directory(self._directory)
        result.notes += copy_other_files(self._source, self._target, self._directory)
        for source in sources:
            self._copy_segment(source)
        reached = self._reached
        result.end_offset = reached.offset
        is_known = reached.offset < self._known_end
        if not reached.waiting and is_known:
            file, why = f"{self._directory}/", f"the log had reached offset {self._known_end}"
            reached.waiting.append(Gone(sources[-1].name if sources else file, 0, 0, why, 0, None))
        result.gone += reached.take_gone(self._known_end if is_known else None, None)
        bases = [source.base_offset for source in sources]
        result.notes += tiered_only(self._source, self._directory, bases)
        if self._target is not None:
            self._save_losses(self._target)
            self._target.sync_directory(self._directory)
        return result

    def _sources(self) -> list[Source]:
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
            Source(
                f"{self._directory}/{format_segment_file(base, FileKind.LOG, found[base])}",
                base,
                None if found[base] is FileSuffix.SWAP or base == bases[-1] else bases[number + 1],
                base == bases[-1],
            )
            for number, base in enumerate(bases)
        ]

    def _copy_segment(self, source: Source) -> None:
        """Copy one segment; as several, if its offsets are too far apart for one."""
        start, base_offset = 0, source.base_offset
        try:
            log = GaplessFile(source.name, self._source.open(source.name, uncached=True))
        except OSError as error:
            if not is_of_source(error):
                raise
            why = f"it cannot be opened: {error.strerror}"
            self._reached.waiting.append(Gone(source.name, 0, 0, why, 0, source.limit))
            return
        try:
            while True:
                part = SegmentPart(
                    source._replace(base_offset=base_offset), log.after(start), start
                )
                rest = self._copy_part(part)
                if rest is None:
                    break
                start += rest
                base_offset = self._reached.offset
                if is_refused(log, start):
                    base_offset = max(base_offset, base_offset_of(log.pread(HEADER_BYTES, start)))
        finally:
            log.close()

    def _copy_part(self, part: SegmentPart) -> int | None:
        """Copy batches up to one that is too far from the base offset.

        The first copy may show which base offsets are wrong. Then the next one repairs them.

        Returns:
            Where the next part begins; None if everything was copied.
        """
        repaired, refused = dict[int, int](), dict[int, str]()
        while True:
            offsets = dict.fromkeys(refused, NO_OFFSET) | repaired
            copy = PartCopy(part, offsets, refused, self._target, self._directory, self._reached)
            # The bytes of a second copy are counted already.
            copy.run(None if offsets else self._count, may_have_holes=self._may_have_holes)
            if copy.wrong.keys() <= repaired.keys() and copy.beyond.keys() <= offsets.keys():
                break
            copy.discard()
            refused |= copy.beyond
            repaired = copy.wrong | repaired
        self._adopt(copy)
        self._result.notes += [_repair_note(part, *found) for found in sorted(repaired.items())]
        return copy.far

    def _adopt(self, copy: PartCopy) -> None:
        result, self._reached = self._result, copy.reached
        result.segments += copy.segment.close()
        result.size_bytes += copy.segment.size_bytes
        result.records += copy.records
        result.gone += copy.gone
        result.notes += copy.notes

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


def _repair_note(part: SegmentPart, position: int, right: int) -> str:
    wrong = base_offset_of(part.log.pread(HEADER_BYTES, position))
    return (
        f"{part.source.name}: byte {part.start + position}: the batch has offset {wrong}; "
        f"those around it prove that it is {right}, so it was repaired"
    )
