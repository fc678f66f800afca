"""Objects of a partition that no head names: what interrupted copies have left.

An object that was put a moment ago may be named soon. So only objects older than ``OLD_MS`` by the
clock of the store are orphans.
"""

from collections.abc import Iterator

from logfs.disk.remote.objects import ObjectStat, ObjectStore
from logfs.log.remote.entries import TIERED_ENTRY_BYTES
from logfs.log.remote.head import Head, decode_table
from logfs.log.remote.keys import (
    HEAD,
    PartitionPlace,
    parse_segment,
    parse_table,
)
from logfs.log.remote.reading import read_head

OLD_MS = 24 * 3_600_000


def find_orphans(store: ObjectStore, place: PartitionPlace, now_ms: int) -> list[ObjectStat]:
    """Return the old objects of a partition that its head does not name.

    Args:
        store: The store.
        place: The partition.
        now_ms: The clock.

    Raises:
        CorruptIndexError, UnsupportedFormatError: The head or a table does not decode.
        OSError: The store failed.
    """
    # Listed first: what is named later than that is in the head that is read after it.
    listed = [found for found in store.list_level(place.prefix).objects if _is_known(place, found)]
    found = read_head(store, place)
    named = set() if found is None else set(named_objects(store, place, found[0]))
    return [stat for stat in listed if stat.key not in named and now_ms - stat.modified_ms > OLD_MS]


def named_objects(store: ObjectStore, place: PartitionPlace, head: Head) -> Iterator[str]:
    """Return the keys of all objects that a head names, those to be deleted included."""
    entries = list(head.entries)
    for table in head.tables:
        yield table.key
        data, _ = store.get(table.key, table.entry_count * TIERED_ENTRY_BYTES)
        entries += decode_table(data, table, f"{store.url}/{table.key}")
    for entry in entries:
        yield place.log(entry.base_offset, entry.segment_id)
        yield place.indexes(entry.base_offset, entry.segment_id)
    for row in head.doomed:
        yield row.key


def _is_known(place: PartitionPlace, stat: ObjectStat) -> bool:
    """Whether an object is of a kind that logfs makes; anything else is left alone."""
    name = stat.key.removeprefix(place.prefix)
    return name != HEAD and (parse_segment(name) is not None or parse_table(name) is not None)
