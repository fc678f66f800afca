"""Where the next record of a loaded log goes: behind everything that was ever shown."""

import logging

from logfs.log.loading.recovery import Loader
from logfs.log.segments.scan import MemoryFiles
from logfs.log.segments.table import SegmentState
from logfs.log.writing.active import create_files, remove_segment_files
from logfs.types import Positions

logger = logging.getLogger(__name__)


def begin_behind_what_was_lost(loader: Loader) -> Positions:
    """Make sure that no position is given twice; returns the lease to go on with."""
    loading, shown = loader.loading, loader.shown
    if loader.segments and loader.segments[-1].next_offset < loader.start_offset:
        shown = shown.at_least(loader.segments[-1].ends)
        _remove_all(loader)
    if not loader.segments:
        known = [entry.next_offset or entry.base_offset for entry in loader.entries.values()]
        begin_segment(loader, max([loader.start_offset, *known]), shown)
        return shown
    last = loader.segments[-1]
    behind = shown.at_least(last.ends)
    may_have_lost = bool(loader.boots - {loader.cache_mark})
    if loader.has_cut and not loading.read_only:
        may_have_lost = True
    if may_have_lost and last.ends != behind:
        logger.info(
            "%s: what was not synced may be lost: the log ends at byte %d, its next record begins "
            "at byte %d, after every size that was ever shown",
            loader.topic_partition, last.ends.text, behind.text,
        )  # fmt: skip
        begin_segment(loader, last.next_offset, behind)
    elif loader.has_junk:
        begin_segment(loader, last.next_offset, last.ends)
    is_flushed = loading.is_clean and loader.left is None
    if is_flushed or not loader.boots or may_have_lost:
        return loader.segments[-1].ends
    return behind


def _remove_all(loader: Loader) -> None:
    """Remove segments that end below the log start offset. Source: Kafka LogLoader.load."""
    for segment in reversed(loader.segments):
        if not loader.loading.read_only:
            remove_segment_files(loader.loading.disk, segment)
    loader.segments.clear()
    loader.has_changed = True


def begin_segment(loader: Loader, base_offset: int, bases: Positions) -> None:
    """Begin an empty segment; an empty last one is moved instead."""
    loading = loader.loading
    if loader.segments and loader.segments[-1].size_bytes == 0:
        base_offset = loader.segments.pop().base_offset
    segment = loader.segment(base_offset, bases)
    if loading.read_only:
        segment.pinned_files = MemoryFiles(loading.disk, segment, None)
    else:
        # Until it has files, whose making may be what is deferred.
        segment.pinned_files = MemoryFiles(loading.disk, segment, None)
        # Files after a tail that is still to be cut would make it pass for durable.
        if loader.deferred is None:
            with loader.deferring():
                _note_end(loader)
                create_files(loading.disk, segment, loader.config)
    loader.segments.append(segment)


def _note_end(loader: Loader) -> None:
    """Note in the table where the last segment ends now, if it was sealed with more.

    Before a segment follows it: a stop could come before the table is written, and the next start
    would take what is not the last segment as the table describes it.
    """
    table, last = loader.table, loader.segments[-1] if loader.segments else None
    if table is None or last is None:
        return
    entry = table.entries.get(last.base_offset)
    if entry is not None and entry.size_bytes not in (None, last.size_bytes):
        table.put(last.entry(SegmentState.SEALED))
        table.sync()
