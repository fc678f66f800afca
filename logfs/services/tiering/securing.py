"""Before local files go: the head names their segments, and the store has their objects.

Objects can be lost: by a rule of the bucket, by another program, or because a proxy has answered a
PUT in the place of the store. While the local files are there, nothing is lost.
"""

import itertools
import logging
from collections.abc import Sequence

from logfs.errors import DivergedError, RemoteStorageError
from logfs.log.partition import PartitionLog
from logfs.log.remote.entries import TieredEntry
from logfs.log.remote.head import Head
from logfs.log.segments.segment import Segment
from logfs.services.tiering.copying import SegmentToCopy, Throttle, commit, put_again
from logfs.services.tiering.heads import HeadWriter

logger = logging.getLogger(__name__)


def secure(
    writer: HeadWriter, log: PartitionLog, segments: Sequence[Segment], throttle: Throttle
) -> int:
    """See that the store has tiered segments whose local files are to go.

    What it has lost is stored again, and named again by the head.

    Returns:
        The segments that were stored again.

    Raises:
        FencedError: Another process writes the partition to the store.
        DivergedError: The head names other segments.
        RemoteStorageError: An object is gone, and cannot be stored again.
        OSError: The store or the disk failed.
    """
    tier = log.tier
    rows = [] if tier is None else [tier.entries[segment.base_offset] for segment in segments]
    return restore(writer, log, writer.confirm(), rows, throttle)


def restore(
    writer: HeadWriter,
    log: PartitionLog,
    head: Head,
    rows: Sequence[TieredEntry],
    throttle: Throttle,
) -> int:
    """Store what the store has lost of tiered segments, and then let the head name them again.

    In this order: a head that names an object which is not there would break every reader.

    Args:
        writer: The writer of the head; it owns it.
        log: The partition.
        head: The head that the store has now.
        rows: The segments. Objects of those without local files are not looked for.
        throttle: Called before bytes are sent.

    Returns:
        The segments that were stored again.

    Raises:
        DivergedError: The head names other segments.
        FencedError, RemoteStorageError, OSError: See ``secure``.
    """
    count = sum(_store_again(writer, log, row, throttle) for row in rows)
    if count:
        logger.warning(
            "%s: the object store had lost objects of %d segments; they are stored again",
            log.topic_partition, count,
        )  # fmt: skip
    unnamed = [row for row in rows if not _is_named(head, row)]
    if unnamed and len(commit(writer, log, unnamed)) < len(unnamed):
        raise DivergedError(
            f"{writer.store.url}/{writer.place.head}: it does not name the segment at offset "
            f"{unnamed[0].base_offset} that was copied. Nothing is copied or dropped any more"
        )
    return count


def _store_again(
    writer: HeadWriter, log: PartitionLog, row: TieredEntry, throttle: Throttle
) -> bool:
    """Store the objects of a segment that the store does not have; returns whether any was lost."""
    if log.tier is None or row.base_offset not in log.tier.local:
        return False
    missing = _missing(writer, row)
    if not missing:
        return False
    pairs = itertools.pairwise(log.snapshot.segments)
    wanted = next(
        SegmentToCopy(segment, following.base_offset)
        for segment, following in pairs
        if segment.base_offset == row.base_offset
    )
    put_again(writer, log, wanted, row, missing, throttle)
    if _missing(writer, row):
        raise RemoteStorageError(
            f"{writer.store.url}/{missing[0]}: the store has confirmed this object, and "
            "does not have it. The local files stay"
        )
    return True


def lost_entries(writer: HeadWriter, log: PartitionLog, head: Head) -> list[TieredEntry]:
    """Return the last noted segments that the head does not name, if nothing of them is lost.

    A head loses its last segments if it is deleted, if an older one is put in its place, or if the
    store has confirmed a change and not made it.

    Raises:
        RemoteStorageError: The store does not have one of them, and there are no local files.
        OSError: The store failed.
    """
    tier = log.tier
    if tier is None:
        return []
    end = head.next_offset or -1
    rows = [
        row
        for base_offset, row in tier.entries.items()
        if base_offset >= end and row.next_offset > head.start.offset
    ]
    for row in rows:
        if row.base_offset not in tier.local and _missing(writer, row):
            raise RemoteStorageError(
                f"{writer.store.url}/{writer.place.head}: it does not name the segment at offset "
                f"{row.base_offset} that was copied, and its objects are gone. Nothing is copied "
                "or dropped until they are there again"
            )
    return rows


def _is_named(head: Head, row: TieredEntry) -> bool:
    if any(t.first_offset <= row.base_offset < t.next_offset for t in head.tables):
        return True
    return row.next_offset <= head.start.offset or row in head.entries


def _missing(writer: HeadWriter, row: TieredEntry) -> list[str]:
    """Return the keys of objects of a segment that the store does not have in their size."""
    place, missing = writer.place, []
    for key, size in (
        (place.log(row.base_offset, row.segment_id), row.size_bytes),
        (place.indexes(row.base_offset, row.segment_id), sum(row.lengths)),
    ):
        try:
            if writer.store.stat(key).size == size:
                continue
        except FileNotFoundError:
            pass
        missing.append(key)
    return missing
