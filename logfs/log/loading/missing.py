"""Segments that the segment table has and the directory has not: their records are gone.

Recovery sees what is damaged, not what is missing. Without a word a log whose files were removed by
mistake, or by a repair of the file system, would begin later, or be empty.
"""

from logfs.log.loading.context import Loader
from logfs.log.names import FileKind
from logfs.log.segments.table import SegmentState

_OF_FILES = frozenset({SegmentState.OPEN, SegmentState.SEALED, SegmentState.CLOSED})


def tell_missing(loader: Loader, present: frozenset[int]) -> None:
    """Report each durable segment whose ``.log`` is gone as a loss.

    Args:
        present: The base offsets of the files that were there.
    """
    table, tier = loader.table, loader.tier
    if table is None or loader.is_mirror:
        return
    point = loader.context.recovery_points.get(loader.topic_partition, 0)
    for base, entry in sorted(table.entries.items()):
        is_kept = base in present or (tier is not None and base in tier.entries)
        # What was not durable may be missing after a power cut: recovery tells that.
        end = entry.next_offset if entry.next_offset is not None else point
        if is_kept or entry.state not in _OF_FILES or not max(base, loader.start_offset) < end:
            continue
        if end > point and not loader.context.is_clean:
            continue
        name = loader.segment(base, entry.bases).file_name(FileKind.LOG)
        loader.lose(
            "missing", name, 0, entry.size_bytes or 0,
            f"{name}: the file is gone, with the records at offsets {base} to {end - 1}: restore "
            "it from a backup",
        )  # fmt: skip
