"""Where the records of a segment stand that the broker's cleaner has rewritten.

The new file and those it was made of are read side by side: a record keeps the position that the
record with its offset had. The old files are deleted by then; they are read while their names, or
their open descriptors, last.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from logfs.config import TopicConfig
from logfs.disk.vfs import File
from logfs.errors import CorruptRecordError
from logfs.log.segments.batches import BatchWalk
from logfs.log.segments.scan import scan_segment
from logfs.log.segments.segment import Segment
from logfs.records._native import KeptRecords
from logfs.records.compression import decompress
from logfs.types import Positions


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
        new: It, with base offset, bases and inode; the rest is filled in.

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
