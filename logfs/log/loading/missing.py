"""Segments that the segment table has and the directory has not: their records are gone.

Recovery sees what is damaged, not what is missing. Without a word a log whose files were removed by
mistake, or by a repair of the file system, would begin later, or be empty. The table is exact after
a clean stop only: a stop in the middle of a compaction leaves entries of segments that were merged.
"""

from logfs.log.loading.context import Loader
from logfs.log.names import FileKind
from logfs.log.segments.table import SegmentState

_OF_FILES = frozenset({SegmentState.SEALED, SegmentState.CLOSED})


def tell_missing(loader: Loader, present: frozenset[int]) -> None:
    """Report each segment whose ``.log`` is gone since the last clean stop as a loss.

    Args:
        present: The base offsets of the files that were there.
    """
    table, tier, context = loader.table, loader.tier, loader.context
    # Another process may be compacting what is opened for reading.
    if table is None or not context.is_clean or context.read_only:
        return
    for base, entry in sorted(table.entries.items()):
        is_kept = base in present or (tier is not None and base in tier.entries)
        end = entry.next_offset
        if is_kept or entry.state not in _OF_FILES or end is None:
            continue
        if not max(base, loader.start_offset) < end:
            continue  # it was deleted, and its files have gone since
        name = loader.segment(base, entry.bases).file_name(FileKind.LOG)
        loader.lose(
            "missing", name, 0, entry.size_bytes or 0,
            f"{name}: the file is gone, with the records at offsets {base} to {end - 1}: restore "
            "it from a backup",
        )  # fmt: skip
