"""The end of a loaded log, and the data that must be durable before the next append."""

import logging

from logfs.log.loading.context import Loader
from logfs.log.names import FileKind, format_segment_file
from logfs.log.segments.scan import MemoryFiles
from logfs.log.segments.segment import sync_indexes
from logfs.log.writing.active import create_files, remove_segment_files
from logfs.types import Positions

logger = logging.getLogger(__name__)


def place_log_end(loader: Loader) -> Positions:
    """Let the log end after every position that was ever shown, so that none is used twice.

    Returns:
        Positions up to which the segment table allows appends from now on.
    """
    context, shown = loader.context, loader.shown
    if loader.segments and loader.segments[-1].next_offset < loader.start_offset:
        shown = shown.at_least(loader.segments[-1].ends)
        _remove_all(loader)
    if not loader.segments:
        known = [entry.next_offset or entry.base_offset for entry in loader.entries.values()]
        _add_empty_segment(loader, max([loader.start_offset, *known]), shown)
        return shown
    last = loader.segments[-1]
    after_shown = shown.at_least(last.ends)
    may_have_lost = loader.has_truncated or bool(loader.boots - {loader.cache_mark})
    if may_have_lost and last.ends != after_shown:
        logger.info(
            "%s: what was not synced may be lost: the log ends at byte %d, its next record begins "
            "at byte %d, after every size that was ever shown",
            loader.topic_partition, last.ends.text, after_shown.text,
        )  # fmt: skip
        _add_empty_segment(loader, last.next_offset, after_shown)
    elif loader.has_junk or loader.is_tiered(last.base_offset):
        _add_empty_segment(loader, last.next_offset, last.ends)
    is_flushed = context.is_clean and loader.unflushed_entry is None
    if is_flushed or not loader.boots or may_have_lost:
        return loader.segments[-1].ends
    return after_shown


def _remove_all(loader: Loader) -> None:
    """Remove segments that end below the log start offset. Source: Kafka LogLoader.load."""
    for segment in reversed(loader.segments):
        if not loader.context.read_only:
            remove_segment_files(loader.context.disk, segment)
    loader.segments.clear()
    loader.unsynced_indexes = None
    loader.has_changed = True


def _add_empty_segment(loader: Loader, base_offset: int, bases: Positions) -> None:
    """Add an empty last segment at the given positions, or move the last one if it is empty."""
    context, unsynced = loader.context, loader.unsynced_indexes
    if unsynced is not None and loader.deferred is None:
        sync_indexes(context.disk, unsynced)  # no flush does: it is sealed from now on
        loader.unsynced_indexes = None
    is_after_gap = False
    if loader.segments and loader.segments[-1].size_bytes == 0:
        empty = loader.segments.pop()
        base_offset, is_after_gap = empty.base_offset, empty.is_after_gap
    segment = loader.segment(base_offset, bases)
    segment.is_after_gap = is_after_gap
    # Until the segment has files: creating them may be deferred.
    segment.pinned_files = MemoryFiles(context.disk, segment, None)
    # After a tail that is still to be truncated, new files would make the tail seem durable.
    if not context.read_only and loader.deferred is None:
        with loader.deferring():
            create_files(context.disk, segment, loader.config)
    loader.segments.append(segment)


def sync_unflushed(loader: Loader) -> None:
    """Sync what the last owner wrote without a flush, except the last ``.log``.

    Later flushes do not sync these files: a flush syncs the ``.log`` of the active segment and the
    segments that were sealed since the log was loaded. A clean stop syncs only indexes that were
    written since then. The names are durable once the segment table has been written.

    Raises:
        OSError: An fsync failed.
    """
    entry, context = loader.unflushed_entry, loader.context
    if entry is None or context.read_only or loader.table is None or not loader.segments:
        return
    last = loader.segments[-1]
    if loader.table.entries.get(last.base_offset) == entry:
        return  # nothing was written since a stop that flushed
    recovery_point = loader.recovery_point(last.next_offset)
    first = min(s.base_offset for s in loader.segments if s.next_offset >= recovery_point)
    for base_offset, kinds in loader.kinds.items():
        if base_offset < first or loader.is_tiered(base_offset):
            continue
        for kind in sorted(kinds):
            if base_offset == last.base_offset and kind is FileKind.LOG:
                continue
            name = format_segment_file(base_offset, kind)
            file = context.disk.open(f"{loader.directory}/{name}")
            try:
                file.sync()
            finally:
                file.close()
