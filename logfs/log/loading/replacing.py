"""Replacements of segments that a stop has interrupted: taken back, or brought to their end.

Whoever replaces segments by others (a compaction, a split) writes the new files as ``.cleaned``,
makes them durable, renames them to ``.swap``, the last segment first, removes the old ones, and
takes ``.swap`` off. So:

* as long as a ``.cleaned`` is left, nothing old is gone: it is removed, and so is every ``.swap``
  at or behind it;
* what is ``.swap`` then is whole: what it replaces is removed, which is every file whose offset
  lies between the first of these segments and the last record in them, and the suffix taken off.

The ``.log`` files lose their suffix first, in ascending order: they are what says which files are
replaced, and files that have their names already must not be among them. Where the order counts the
directory is synced in between: of names that were not, a power cut keeps any.

Source: Kafka LogLoader.load and removeTempFilesAndCollectSwapFiles, LocalLog.replaceSegments.
"""

import logging

from logfs.disk.vfs import Disk
from logfs.errors import CorruptRecordError
from logfs.log import names
from logfs.log.names import FileKind, FileSuffix, SegmentFileName
from logfs.log.reading.window import SEQUENTIAL_BYTES, Window
from logfs.records._native import last_offset

logger = logging.getLogger(__name__)


def resolve_swaps(disk: Disk, directory: str) -> None:
    """Remove what Kafka's loader removes from a partition directory, and finish replacements.

    ``.deleted`` files go as well. A stop in the middle of this is one more interrupted replacement.

    Raises:
        OSError: The disk failed.
    """
    found = _segment_files(disk, directory)
    for file in found:
        if file.suffix is FileSuffix.DELETED:
            _remove(disk, directory, file)
    swaps = _without_unfinished(disk, directory, found)
    if not swaps:
        return
    first, behind = _replaced_offsets(disk, directory, swaps)
    for file in found:
        if file.suffix is FileSuffix.NONE and first <= file.base_offset < behind:
            logger.info("%s: %s was replaced", directory, _name(file))
            _remove(disk, directory, file)
    disk.sync_directory(directory)
    take_suffix_off(disk, directory, swaps)


def put_in_place(disk: Disk, directory: str, files: list[SegmentFileName]) -> None:
    """Rename ``.cleaned`` files to ``.swap``; when this returns the replacement will happen.

    Args:
        disk: Where they lie.
        directory: The partition directory.
        files: The new files, durable, each with the suffix ``.cleaned``.
    """
    for base_offset in sorted({file.base_offset for file in files}, reverse=True):
        for file in files:
            if file.base_offset == base_offset:
                _rename(disk, directory, file, FileSuffix.SWAP)
        disk.sync_directory(directory)


def take_suffix_off(disk: Disk, directory: str, swaps: list[SegmentFileName]) -> None:
    """Give ``.swap`` files their names; what they replace has to be gone, or has the same names."""
    for file in sorted(swaps):
        if file.kind is FileKind.LOG:
            _rename(disk, directory, file, FileSuffix.NONE)
            disk.sync_directory(directory)
    for file in swaps:
        if file.kind is not FileKind.LOG:
            _rename(disk, directory, file, FileSuffix.NONE)
    disk.sync_directory(directory)


def _segment_files(disk: Disk, directory: str) -> list[SegmentFileName]:
    parsed = (
        None if is_directory else names.parse_segment_file(name)
        for name, is_directory in disk.list(directory)
    )
    return [file for file in parsed if file is not None]


def _without_unfinished(
    disk: Disk, directory: str, found: list[SegmentFileName]
) -> list[SegmentFileName]:
    """Take back what was not whole; returns the ``.swap`` files that are."""
    cleaned = [file for file in found if file.suffix is FileSuffix.CLEANED]
    swaps = [file for file in found if file.suffix is FileSuffix.SWAP]
    unfinished = min((file.base_offset for file in cleaned), default=names.MAX_OFFSET + 1)
    for files in ([file for file in swaps if file.base_offset >= unfinished], cleaned):
        for file in files:
            _remove(disk, directory, file)
        if files:
            disk.sync_directory(directory)
    return [file for file in swaps if file.base_offset < unfinished]


def _replaced_offsets(disk: Disk, directory: str, swaps: list[SegmentFileName]) -> tuple[int, int]:
    """Return the first offset that is replaced and the one behind the last."""
    logs = [file for file in swaps if file.kind is FileKind.LOG]
    first = min((file.base_offset for file in logs), default=0)
    behind = max((_next_offset(disk, directory, file) for file in logs), default=0)
    return first, behind


def _next_offset(disk: Disk, directory: str, file: SegmentFileName) -> int:
    log, window, position = disk.open(f"{directory}/{_name(file)}"), Window(), 0
    size, found = log.size(), file.base_offset - 1
    try:
        while position < size:
            window.load(log, position, size, SEQUENTIAL_BYTES, True)
            found = last_offset(window.buffer, 0, window.stop)
            position = window.file_end
    except CorruptRecordError as error:
        logger.warning("%s/%s: %s", directory, _name(file), error)
    finally:
        log.close()
    return found + 1


def _remove(disk: Disk, directory: str, file: SegmentFileName) -> None:
    disk.remove(f"{directory}/{_name(file)}")


def _rename(disk: Disk, directory: str, file: SegmentFileName, suffix: FileSuffix) -> None:
    new = file._replace(suffix=suffix)
    disk.rename(f"{directory}/{_name(file)}", f"{directory}/{_name(new)}")


def _name(file: SegmentFileName) -> str:
    return names.format_segment_file(*file)
