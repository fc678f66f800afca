"""The head names segments, each only after the store has its objects.

Objects can be lost: by a rule of the bucket, by another program, or because a proxy has answered a
PUT in the place of the store. A bucket can go back in time: a replica that lags, or old versions
that were restored. Then its head is an older one, and later objects are gone. While the local files
are there, objects are stored again, and then the head names the segments again.
"""

import itertools
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from logfs.errors import DivergedError, RemoteStorageError
from logfs.log.partition import PartitionLog
from logfs.log.remote.entries import TieredEntry
from logfs.log.remote.head import Head
from logfs.log.segments.segment import Segment
from logfs.services.tiering.copying import (
    SegmentToCopy,
    Throttle,
    check_same,
    epochs_below,
    put_again,
    start_of,
)
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
    writer.confirm()
    return restore(writer, log, rows, throttle)


def restore(
    writer: HeadWriter, log: PartitionLog, rows: Sequence[TieredEntry], throttle: Throttle
) -> int:
    """Store what the store has lost of tiered segments, and then let the head name them again.

    Args:
        writer: The writer of the head; it owns it.
        log: The partition.
        rows: The segments. Objects of those without local files are not looked for.
        throttle: Called before bytes are sent.

    Returns:
        The segments that were stored again.

    Raises:
        DivergedError: The head names other segments.
        FencedError, RemoteStorageError, OSError: See ``secure``.
    """
    count = _store_all_again(writer, log, rows, throttle)
    unnamed = [row for row in rows if not _is_named(writer.head(), row)]
    if unnamed:
        done = commit(writer, log, unnamed, throttle)
        count += done.stored_again
        if len(done.named) < len(unnamed):
            raise DivergedError(
                f"{writer.store.url}/{writer.place.head}: it does not name the segment at offset "
                f"{unnamed[0].base_offset} that was copied. Nothing is copied or dropped any more"
            )
    return count


class Committed(NamedTuple):
    """What a change of the head has done.

    Attributes:
        named: The segments that the head names; the log has dropped the others meanwhile.
        stored_again: Segments of before that the store had lost, and that were stored again.
    """

    named: list[TieredEntry]
    stored_again: int


class _OlderHeadError(Exception):
    """The head lacks segments whose objects were not looked for."""


def commit(
    writer: HeadWriter, log: PartitionLog, copied: Sequence[TieredEntry], throttle: Throttle
) -> Committed:
    """Let the head name segments whose objects are stored, and noted ones that it has lost.

    The objects of the latter are looked for first, and stored again: a head that names an object
    which is not there would break every reader.

    Raises:
        FencedError: Another process writes the partition to the store.
        DivergedError: The head names another segment at an offset of one of these.
        RemoteStorageError: An object of a lost segment is gone, and cannot be stored again.
        OSError: The store or the disk failed; the head may name them.
    """
    stored_again = 0
    looked_for: set[bytes] = {entry.segment_id for entry in copied}
    while True:
        lost = lost_entries(writer, log, writer.head())
        unseen = [row for row in lost if row.segment_id not in looked_for]
        stored_again += _store_all_again(writer, log, unseen, throttle)
        looked_for.update(row.segment_id for row in unseen)
        try:
            return Committed(_name(writer, log, copied, looked_for), stored_again)
        except _OlderHeadError:
            continue  # with fewer that were not looked for


def _name(
    writer: HeadWriter,
    log: PartitionLog,
    copied: Sequence[TieredEntry],
    looked_for: Collection[bytes],
) -> list[TieredEntry]:
    """Change the head; _OlderHeadError: it lacks noted segments that are not ``looked_for``."""
    ours = {entry.base_offset: entry for entry in copied}
    named: dict[int, TieredEntry] = {}

    def add(head: Head) -> Head:
        named.clear()
        if head.next_offset is None:
            head = replace(head, start=start_of(log))  # tiered storage was off for a while
        named.update((e.base_offset, e) for e in head.entries if e.base_offset in ours)
        lost = {row.base_offset: row for row in _not_named(log, head)}
        if any(row.segment_id not in looked_for for row in lost.values()):
            raise _OlderHeadError
        done = head.next_offset or -1
        lost.update(
            (entry.base_offset, entry)
            for entry in copied
            if entry.base_offset >= done and entry.next_offset > head.start.offset
        )
        added = [entry for _, entry in sorted(lost.items())]
        named.update((entry.base_offset, entry) for entry in added)
        if not added:
            return head
        epochs = tuple(epochs_below(log, added[-1].next_offset))
        return replace(head, entries=(*head.entries, *added), leader_epochs=epochs)

    writer.change(add)
    for base_offset, entry in ours.items():
        if base_offset in named:
            check_same(entry, named[base_offset], f"{writer.store.url}/{writer.place.head}")
    return [named[base_offset] for base_offset in ours if base_offset in named]


def _store_all_again(
    writer: HeadWriter, log: PartitionLog, rows: Iterable[TieredEntry], throttle: Throttle
) -> int:
    count = sum(_store_again(writer, log, row, throttle) for row in rows)
    if count:
        logger.warning(
            "%s: the object store had lost objects of %d segments; they are stored again",
            log.topic_partition, count,
        )  # fmt: skip
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
    rows = _not_named(log, head)
    tier = log.tier
    for row in rows:
        if tier is not None and row.base_offset not in tier.local and _missing(writer, row):
            raise RemoteStorageError(
                f"{writer.store.url}/{writer.place.head}: it does not name the segment at offset "
                f"{row.base_offset} that was copied, and its objects are gone. Nothing is copied "
                "or dropped until they are there again"
            )
    return rows


def _not_named(log: PartitionLog, head: Head) -> list[TieredEntry]:
    """Return the noted segments that begin after the end of a head."""
    noted = {} if log.tier is None else log.tier.entries
    end = head.next_offset or -1
    return [
        row
        for base_offset, row in noted.items()
        if base_offset >= end and row.next_offset > head.start.offset
    ]


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
