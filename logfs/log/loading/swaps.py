"""Replacing segment files by others: the renames, and how a start completes an interrupted one.

    .cleaned   still being written: removed, with every ``.swap`` at or after the first of them
    .swap      complete: the segments that it replaces are removed, and it loses its suffix
    .deleted   replaced or deleted: removed

A ``.swap`` replaces the segments from its base offset to its own last record. Segments after that
which compaction removed as a whole may still be there, unchanged: this does no harm.

The order of the renames matters, so the directory is synced between them: a power cut may keep any
subset of the names that were not synced. A broker completes a replacement in the same way, and
renames the text index with it.

Source: Kafka LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load,
LocalLog.replaceSegments.
"""

import logging
from collections.abc import Iterable

from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError
from logfs.log import names
from logfs.log.indexes.index import MARK_BYTES, OFFSET_INDEX, decode_offset_entry
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.loading.context import Loader
from logfs.log.names import FileKind, FileSuffix, SegmentFileName
from logfs.log.segments.batches import BatchWalk
from logfs.log.segments.table import SegmentState
from logfs.log.writing.reservation import NO_BOOT
from logfs.records._reading import header_ok, last_offset
from logfs.records.layout import HEADER_BYTES
from logfs.types import MAX_OFFSET

logger = logging.getLogger(__name__)


def resolve_swaps(
    disk: Disk, directory: str, files: Iterable[SegmentFileName], *, read_only: bool
) -> tuple[list[SegmentFileName], list[SegmentFileName]]:
    """Complete an interrupted replacement; in a read-only store only say what it would give.

    Args:
        disk: The data directory.
        directory: The partition directory.
        files: The files of its segments, with any suffix.
        read_only: Nothing is changed.

    Returns:
        The remaining files under their final names; and, only in a read-only store, those that
        still have the suffix ``.swap``.
    """
    by_suffix: dict[FileSuffix, list[SegmentFileName]] = {suffix: [] for suffix in FileSuffix}
    for file in files:
        by_suffix[file.suffix].append(file)
    cleaned = by_suffix[FileSuffix.CLEANED]
    first_cleaned = min((file.base_offset for file in cleaned), default=MAX_OFFSET + 1)
    swaps = [f for f in by_suffix[FileSuffix.SWAP] if f.base_offset < first_cleaned]
    unfinished = [f for f in by_suffix[FileSuffix.SWAP] if f.base_offset >= first_cleaned]
    start, stop = _replaced(disk, directory, swaps)
    kept = [f for f in by_suffix[FileSuffix.NONE] if not start <= f.base_offset < stop]
    replaced = [f for f in by_suffix[FileSuffix.NONE] if start <= f.base_offset < stop]
    if not read_only:
        _remove(disk, directory, by_suffix[FileSuffix.DELETED])
        # Before the .cleaned files: without one, a .swap is taken for complete.
        _remove(disk, directory, unfinished)
        if unfinished:
            disk.sync_directory(directory)
        _remove(disk, directory, cleaned)
        if swaps:
            logger.info("%s: a compaction was interrupted and is completed", directory)
            _remove(disk, directory, replaced)
            disk.sync_directory(directory)
            take_suffix_off(disk, directory, swaps)
    remaining = {_plain(file) for file in swaps}.union(kept)
    return sorted(remaining), swaps if read_only else []


def take_pending(loader: Loader) -> None:
    """Accept each pending entry of the segment table whose files are in place.

    They are if the text index contains the mark of the entry. Then that segment includes the
    records of segments that are gone. Otherwise the compaction was undone, and the entry is void.

    The accepted entries are written at once. Recovery may replace the text index by one without a
    mark, and may be stopped before it writes the whole table.
    """
    table = loader.table
    if table is None or not table.state.pending:
        return
    taken = []
    for entry in table.state.pending.values():
        text_index = loader.known_segment(entry).file_name(FileKind.TEXT_INDEX)
        if _mark_of(loader.context.disk, text_index) == entry.boot:
            taken.append(entry._replace(state=SegmentState.SEALED, boot=NO_BOOT))
    table.state.pending.clear()
    table.entries.update((entry.base_offset, entry) for entry in taken)
    if taken:
        loader.has_changed = True
        if not loader.context.read_only:
            with loader.deferring():
                table.put(*taken)
                table.sync()


def _mark_of(disk: Disk, text_index: str) -> bytes | None:
    try:
        return disk.open(text_index).pread(MARK_BYTES, TEXT_INDEX.header_bytes - MARK_BYTES)
    except FileNotFoundError:
        return None


def _replaced(disk: Disk, directory: str, swaps: list[SegmentFileName]) -> tuple[int, int]:
    """Return the range of base offsets that the ``.swap`` files replace."""
    bases = [file.base_offset for file in swaps if file.kind is FileKind.LOG]
    start, stop = MAX_OFFSET, 0
    for base_offset in bases:
        start = min(start, base_offset)
        stop = max(stop, _next_offset(disk, directory, base_offset))
    return start, stop


def _next_offset(disk: Disk, directory: str, base_offset: int) -> int:
    """Return the offset after the last batch of a segment whose files have the suffix ``.swap``."""
    log = disk.open(_name(directory, SegmentFileName(base_offset, FileKind.LOG, FileSuffix.SWAP)))
    end = log.size()
    next_offset = base_offset
    try:
        for window in BatchWalk(log, _last_indexed(disk, directory, base_offset, log), end):
            next_offset = last_offset(window.buffer, 0, window.stop) + 1
    except CorruptRecordError as error:
        logger.warning("%s: compacted segment %d: %s", directory, base_offset, error)
    return next_offset


def _last_indexed(disk: Disk, directory: str, base_offset: int, log: File) -> int:
    """Return the file position of the last batch with an index entry; 0 if there is none."""
    index = SegmentFileName(base_offset, FileKind.OFFSET_INDEX, FileSuffix.SWAP)
    try:
        entries = disk.read(_name(directory, index), None)
    except FileNotFoundError:
        return 0
    count = len(entries) // OFFSET_INDEX.entry_bytes
    if not count:
        return 0
    position = decode_offset_entry(entries, count - 1, base_offset).position
    head = log.pread(HEADER_BYTES, position) if position > 0 else b""
    return position if header_ok(head, 0, log.size() - position) else 0


def _plain(file: SegmentFileName) -> SegmentFileName:
    return file._replace(suffix=FileSuffix.NONE)


def _name(directory: str, file: SegmentFileName) -> str:
    return f"{directory}/{names.format_segment_file(*file)}"


def _remove(disk: Disk, directory: str, files: list[SegmentFileName]) -> None:
    for file in files:
        disk.remove(_name(directory, file))


def put_in_place(disk: Disk, directory: str, files: list[SegmentFileName]) -> None:
    """Rename ``.cleaned`` files to ``.swap``; once this returns, a stop completes the replacement.

    The last segment comes first. Its names are durable before the next segment is renamed.
    """
    for base_offset in sorted({file.base_offset for file in files}, reverse=True):
        for file in files:
            if file.base_offset == base_offset:
                _rename(disk, directory, file, FileSuffix.SWAP)
        disk.sync_directory(directory)


def take_suffix_off(disk: Disk, directory: str, swaps: list[SegmentFileName]) -> None:
    """Give ``.swap`` files their final names, after the files that they replace are removed.

    Each ``.log`` in ascending order, every rename durable before the next; then the other files. A
    start takes a file without the suffix in the range of a ``.log.swap`` for one of an old segment.
    """
    for file in sorted(swaps):
        if file.kind is FileKind.LOG:
            _rename(disk, directory, file, FileSuffix.NONE)
            disk.sync_directory(directory)
    for file in swaps:
        if file.kind is not FileKind.LOG:
            _rename(disk, directory, file, FileSuffix.NONE)
    disk.sync_directory(directory)


def _rename(disk: Disk, directory: str, file: SegmentFileName, suffix: FileSuffix) -> None:
    disk.rename(_name(directory, file), _name(directory, file._replace(suffix=suffix)))
