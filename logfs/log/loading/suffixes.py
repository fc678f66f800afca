"""The two renames by which new segment files replace others; what a stop leaves: see ``swaps``.

Where the order counts the directory is synced in between: of names that were not, a power cut keeps
any.

Source: Kafka LocalLog.replaceSegments.
"""

from logfs.disk.vfs import Disk
from logfs.log.names import FileKind, FileSuffix, SegmentFileName, format_segment_file


def put_in_place(disk: Disk, directory: str, files: list[SegmentFileName]) -> None:
    """Rename ``.cleaned`` files to ``.swap``; when this returns the replacement will happen.

    The last segment comes first, and its names are durable before the next one's.
    """
    for base_offset in sorted({file.base_offset for file in files}, reverse=True):
        for file in files:
            if file.base_offset == base_offset:
                _rename(disk, directory, file, FileSuffix.SWAP)
        disk.sync_directory(directory)


def take_suffix_off(disk: Disk, directory: str, swaps: list[SegmentFileName]) -> None:
    """Give ``.swap`` files their names; what they replace is gone.

    Every ``.log`` in ascending order, durably one after the other, then the other files: what is in
    the range of a ``.log.swap`` and not called so itself is taken for a file of an old segment.
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
    new = format_segment_file(*file._replace(suffix=suffix))
    disk.rename(f"{directory}/{format_segment_file(*file)}", f"{directory}/{new}")
