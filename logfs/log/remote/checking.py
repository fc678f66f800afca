"""Whether the objects of a partition are those that its head names. Reads heads, tables and lists.

What the objects contain is checked by reading them: see ``logfs.services.verifying``.
"""

from collections.abc import Iterator
from typing import NamedTuple

from logfs.disk.remote.objects import ObjectStore
from logfs.log.remote.head import Head
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.reading import read_entries


class ObjectProblem(NamedTuple):
    """An object that is not what the head says.

    Attributes:
        key: The object.
        detail: The damage, in words.
    """

    key: str
    detail: str


def check_objects(store: ObjectStore, place: PartitionPlace, head: Head) -> Iterator[ObjectProblem]:
    """Compare the objects of a partition with its head; takes a request for a thousand objects.

    Raises:
        CorruptIndexError: A table does not decode.
        OSError: The store failed.
    """
    entries = read_entries(store, head)
    sizes = {stat.key: stat.size for stat in store.list_all(place.prefix)}
    expected = head.start.offset
    for entry in entries:
        if entry.base_offset > expected:
            detail = f"offsets {expected} to {entry.base_offset - 1} are in no segment"
            yield ObjectProblem(place.head, detail)
        expected = max(expected, entry.next_offset)
        for key, size in (
            (place.log(entry.base_offset, entry.segment_id), entry.size_bytes),
            (place.indexes(entry.base_offset, entry.segment_id), sum(entry.lengths)),
        ):
            found = sizes.get(key)
            if found is None:
                yield ObjectProblem(key, "the store does not have it, and the head names it")
            elif found != size:
                yield ObjectProblem(key, f"it has {found} bytes; expected {size}")
