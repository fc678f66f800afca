"""Reading what the store says of a partition: its head, and the entries that left it for tables."""

from collections.abc import Iterator

from logfs.disk.remote.objects import ObjectStore
from logfs.log.remote.entries import TIERED_ENTRY_BYTES, TieredEntry
from logfs.log.remote.head import MOST_HEAD_BYTES, Head, decode_head, decode_table
from logfs.log.remote.keys import PartitionPlace


def read_head(store: ObjectStore, place: PartitionPlace) -> tuple[Head, str] | None:
    """Return the head of a partition and its ETag; None if the store does not have the partition.

    Raises:
        UnsupportedFormatError, CorruptIndexError: See ``decode_head``.
        OSError: The store failed.
    """
    try:
        data, stat = store.get(place.head, MOST_HEAD_BYTES)
    except FileNotFoundError:
        return None
    return decode_head(data, f"{store.url}/{place.head}"), stat.etag


def read_entries(store: ObjectStore, head: Head) -> list[TieredEntry]:
    """Return all tiered segments of a partition from its log start on, by base offset.

    One request for each table that has some of them.

    Raises:
        CorruptIndexError: A table is not the one that the head describes.
        OSError: The store failed.
    """
    return list(_entries(store, head))


def _entries(store: ObjectStore, head: Head) -> Iterator[TieredEntry]:
    for table in head.tables:
        if table.next_offset > head.start.offset:
            data, _ = store.get(table.key, table.entry_count * TIERED_ENTRY_BYTES)
            for entry in decode_table(data, table, f"{store.url}/{table.key}"):
                if entry.next_offset > head.start.offset:
                    yield entry
    yield from head.entries
