"""What a close left that flushed nothing is made durable, as far as flushes do not come to it.

A flush syncs the ``.log`` of the active segment and the segments that were sealed since the log was
loaded, and a clean stop the indexes that were written to since. What an earlier owner has written
and not synced would be passed over: everything but the last ``.log`` is synced when it is loaded.
"""

from logfs.log.loading.recovery import Loader
from logfs.log.names import FileKind, format_segment_file


def settle_what_was_left(loader: Loader) -> None:
    """Sync all files from the recovery point on but the last ``.log``.

    The names are durable once the segment table has been written.

    Raises:
        OSError: An fsync failed.
    """
    left, loading = loader.left, loader.loading
    if left is None or loading.read_only or loader.table is None or not loader.segments:
        return
    last = loader.segments[-1]
    if loader.table.entries.get(last.base_offset) == left:
        return  # nothing was written since a stop that flushed
    recovery_point = loader.recovery_point(last.next_offset)
    first = min(s.base_offset for s in loader.segments if s.next_offset >= recovery_point)
    for base_offset, kinds in loader.kinds.items():
        for kind in sorted(kinds) if base_offset >= first else ():
            if base_offset == last.base_offset and kind is FileKind.LOG:
                continue
            name = format_segment_file(base_offset, kind)
            file = loading.disk.open(f"{loader.directory}/{name}")
            try:
                file.sync()
            finally:
                file.close()
