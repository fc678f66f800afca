"""Compactions that a stop has interrupted: which files count, and putting them in their place.

    .cleaned   still being written: all of it goes, and so does a ``.swap`` at or behind the first
    .swap      whole: the segments it replaces go, and the suffix is taken off
    .deleted   replaced, or given up: goes

A ``.swap`` replaces the segments from its base offset up to behind its own last record. What lies
behind that, and was compacted away as a whole, is still there as it was: no harm is done.

A broker does the same when it opens the directory, and takes the text index along.

Source: Kafka LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load.
"""

import logging
from collections.abc import Iterable

from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptRecordError
from logfs.log import names
from logfs.log.indexes.index import MARK_BYTES, OFFSET_INDEX, decode_offset_entry
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.loading.recovery import Loader
from logfs.log.loading.suffixes import take_suffix_off
from logfs.log.names import FileKind, FileSuffix, SegmentFileName
from logfs.log.reading.window import SEQUENTIAL_BYTES, Window
from logfs.log.segments.table import SegmentState
from logfs.log.writing.lease import NO_BOOT
from logfs.records._native import header_ok, last_offset

logger = logging.getLogger(__name__)

_HEADER_BYTES = 61


def resolve_swaps(
    disk: Disk, directory: str, files: Iterable[SegmentFileName], *, read_only: bool
) -> tuple[list[SegmentFileName], list[SegmentFileName]]:
    """Finish what was interrupted, or say what that would leave.

    Args:
        disk: The data directory.
        directory: Of the partition.
        files: The files of its segments, whatever their suffix.
        read_only: Nothing is changed.

    Returns:
        The files that are left, as they will be called; and those that are still called ``.swap``,
        which there only are in a store that is read-only.
    """
    by_suffix: dict[FileSuffix, list[SegmentFileName]] = {suffix: [] for suffix in FileSuffix}
    for file in files:
        by_suffix[file.suffix].append(file)
    cleaned = by_suffix[FileSuffix.CLEANED]
    first_cleaned = min((file.base_offset for file in cleaned), default=names.MAX_OFFSET + 1)
    swaps = [f for f in by_suffix[FileSuffix.SWAP] if f.base_offset < first_cleaned]
    unfinished = [f for f in by_suffix[FileSuffix.SWAP] if f.base_offset >= first_cleaned]
    start, stop = _replaced(disk, directory, swaps)
    kept = [f for f in by_suffix[FileSuffix.NONE] if not start <= f.base_offset < stop]
    replaced = [f for f in by_suffix[FileSuffix.NONE] if start <= f.base_offset < stop]
    if not read_only:
        _remove(disk, directory, by_suffix[FileSuffix.DELETED])
        # In this order: without a .cleaned a .swap counts.
        _remove(disk, directory, unfinished)
        if unfinished:
            disk.sync_directory(directory)
        _remove(disk, directory, cleaned)
        if swaps:
            logger.info("%s: a compaction was interrupted and is completed", directory)
            _remove(disk, directory, replaced)
            disk.sync_directory(directory)
            take_suffix_off(disk, directory, swaps)
    left = {_plain(file) for file in swaps}.union(kept)
    return sorted(left), swaps if read_only else []


def take_pending(loader: Loader) -> None:
    """Decide for each pending entry of the table whether it describes the files in place.

    It does if its mark stands in the text index; then the segments that are not there any more are
    part of that one. Otherwise the compaction was undone, and the entry means nothing.

    The table says so before recovery replaces the text index by one without a mark: it may be
    stopped before it writes the table.
    """
    table = loader.table
    if table is None or not table.state.pending:
        return
    taken = []
    for entry in table.state.pending.values():
        text_index = loader.known_segment(entry).file_name(FileKind.TEXT_INDEX)
        if _mark_of(loader.loading.disk, text_index) == entry.boot:
            taken.append(entry._replace(state=SegmentState.SEALED, boot=NO_BOOT))
    table.state.pending.clear()
    table.entries.update((entry.base_offset, entry) for entry in taken)
    if taken:
        loader.has_changed = True
        if not loader.loading.read_only:
            with loader.deferring():
                table.put(*taken)
                table.sync()


def _mark_of(disk: Disk, text_index: str) -> bytes | None:
    try:
        return disk.open(text_index).pread(MARK_BYTES, TEXT_INDEX.header_bytes - MARK_BYTES)
    except FileNotFoundError:
        return None


def _replaced(disk: Disk, directory: str, swaps: list[SegmentFileName]) -> tuple[int, int]:
    """Return the range of base offsets that segments take whose files are called ``.swap``."""
    bases = [file.base_offset for file in swaps if file.kind is FileKind.LOG]
    start, stop = names.MAX_OFFSET, 0
    for base_offset in bases:
        start = min(start, base_offset)
        stop = max(stop, _next_offset(disk, directory, base_offset))
    return start, stop


def _next_offset(disk: Disk, directory: str, base_offset: int) -> int:
    """Return the offset behind the last batch of a segment whose files are called ``.swap``."""
    log = disk.open(_name(directory, SegmentFileName(base_offset, FileKind.LOG, FileSuffix.SWAP)))
    end = log.size()
    position, next_offset, window = (
        _last_indexed(disk, directory, base_offset, log),
        base_offset,
        Window(),
    )
    while position < end:
        try:
            window.load(log, position, end, SEQUENTIAL_BYTES, True)
        except CorruptRecordError as error:
            logger.warning("%s: compacted segment %d: %s", directory, base_offset, error)
            break
        next_offset = last_offset(window.buffer, 0, window.stop) + 1
        position = window.file_end
    return next_offset


def _last_indexed(disk: Disk, directory: str, base_offset: int, log: File) -> int:
    """Return where the last batch stands that has an index entry; 0 if none has."""
    index = SegmentFileName(base_offset, FileKind.OFFSET_INDEX, FileSuffix.SWAP)
    try:
        entries = disk.read(_name(directory, index), None)
    except FileNotFoundError:
        return 0
    count = len(entries) // OFFSET_INDEX.entry_bytes
    if not count:
        return 0
    position = decode_offset_entry(entries, count - 1, base_offset).position
    head = log.pread(_HEADER_BYTES, position) if position > 0 else b""
    return position if header_ok(head, 0, log.size() - position) else 0


def _plain(file: SegmentFileName) -> SegmentFileName:
    return file._replace(suffix=FileSuffix.NONE)


def _name(directory: str, file: SegmentFileName) -> str:
    return f"{directory}/{names.format_segment_file(*file)}"


def _remove(disk: Disk, directory: str, files: list[SegmentFileName]) -> None:
    for file in files:
        disk.remove(_name(directory, file))
