"""The points of a followed log that the checkpoint files of its directory name."""

from logfs.log.reading.lookup import positions_of_offset
from logfs.log.segments.snapshot import LogPoint, Snapshot


def with_points(snapshot: Snapshot, start_offset: int, high_watermark: int | None) -> Snapshot:
    """Return a snapshot that begins at a log start offset and has a high watermark.

    Args:
        snapshot: The log; what lies before its start stays gone.
        start_offset: From log-start-offset-checkpoint.
        high_watermark: From replication-offset-checkpoint; None if it is not named there.

    Raises:
        CorruptRecordError: What an offset is in cannot be read.
        FileNotFoundError: It has just been deleted.
    """
    start = snapshot.start
    if start_offset > start.offset:
        start = _point(snapshot, start_offset)
    watermark = snapshot.watermark
    if high_watermark is None:
        watermark = None
    elif watermark is None or watermark.offset != high_watermark or start != snapshot.start:
        watermark = _point(snapshot, max(high_watermark, start.offset))
    return snapshot._replace(start=start, watermark=watermark)


def _point(snapshot: Snapshot, offset: int) -> LogPoint:
    offset = min(offset, snapshot.end.offset)
    return LogPoint(offset, positions_of_offset(snapshot, offset))
