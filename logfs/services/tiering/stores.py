"""Object stores of data directories, by their heads: what is in them, and what is wrong there."""

import json
from collections.abc import Collection, Iterator
from functools import partial
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from logfs.disk.remote.objects import ObjectStat, ObjectStore
from logfs.disk.vfs import Disk
from logfs.errors import (
    InvalidConfigError,
    LockedError,
    LogfsError,
    RemoteStorageError,
    UnsupportedFormatError,
)
from logfs.log.names import LOCK_FILE, TIERED, format_topic_id
from logfs.log.remote.brokerfiles import list_broker_files
from logfs.log.remote.bucket import all_places
from logfs.log.remote.checking import ObjectProblem, check_objects
from logfs.log.remote.entries import TIERED_ENTRY_BYTES
from logfs.log.remote.head import Head, decode_table
from logfs.log.remote.keys import (
    HEAD,
    STORE,
    PartitionPlace,
    parse_segment,
    parse_table,
    parse_topic_directory,
)
from logfs.log.remote.parallel import for_each
from logfs.log.remote.reading import read_entries, read_head
from logfs.records.jsontext import decode_json

OLD_MS = 24 * 3_600_000
"""Only older objects, by the clock of the store, are orphans: others may be named soon."""
_VERSION = 1
_MOST_MARKER_BYTES = 1 << 16


class StoreRow(NamedTuple):
    """A partition of a store, as its head says.

    Attributes:
        start_offset, end_offset: The offsets in the store.
        host, directory_id: The machine and the data directory that write it.
        doomed: Objects that wait to be deleted.
        latest_ms: The largest timestamp of its last segment; None: there is none.
        error: Why the head cannot be read; None if it can.
    """

    topic: str
    partition: int
    start_offset: int = 0
    end_offset: int = 0
    segments: int = 0
    size_bytes: int = 0
    epoch: int = 0
    host: str = ""
    doomed: int = 0
    topic_id: str = ""
    directory_id: str = ""
    latest_ms: int | None = None
    error: str | None = None


def check_unused(disk: Disk, data: str, url: str) -> None:
    """Refuse another store if partitions are in this one, or could be copied there meanwhile."""
    directories = [name for name, is_directory in disk.list("") if is_directory]
    if any(disk.exists(f"{name}/{TIERED}") for name in directories):
        raise InvalidConfigError(
            f"{data}: its store is {url}, and its segments are there: logfs cannot move them to "
            "another one"
        )
    if disk.is_locked(LOCK_FILE):
        raise LockedError(f"{data}: a daemon uses its store {url}: unmount it first")


def mark_store(store: ObjectStore, store_id: bytes, now_ms: int) -> None:
    """Put the marker of a store of logs in place, or check the one that is there."""
    marker = {"version": _VERSION, "id": store_id.hex(), "made_ms": now_ms}
    try:
        store.create(STORE, json.dumps(marker).encode())
    except FileExistsError:
        data, _ = store.get(STORE, _MOST_MARKER_BYTES)
        try:
            version = decode_json(data, itemgetter("version"))
        except ValueError:
            raise InvalidConfigError(f"{store.url}/{STORE}: it does not parse") from None
        if version != _VERSION:
            raise UnsupportedFormatError(
                f"{store.url}/{STORE}: version {version}, this logfs uses version {_VERSION}"
            ) from None


def rows_of(store: ObjectStore) -> Iterator[StoreRow]:
    """Return what the heads of a store say; orphans without a head are left out."""
    for place, head in heads_of(store):
        if isinstance(head, Head):
            entries = read_entries(store, head)
            end = head.next_offset
            latest_ms = entries[-1].entry.max_timestamp if entries else -1
            yield StoreRow(
                *place.topic_partition,
                head.start.offset,
                head.start.offset if end is None else end,
                len(entries),
                sum(entry.size_bytes for entry in entries),
                head.epoch,
                head.writer.host,
                len(head.doomed),
                format_topic_id(head.topic_id),
                head.writer.directory_id.hex(),
                None if latest_ms < 0 else latest_ms,
            )
        else:
            yield StoreRow(*place.topic_partition, error=str(head))


def heads_of(store: ObjectStore) -> list[tuple[PartitionPlace, Head | LogfsError]]:
    """Return the heads of a store, by topic and partition, or why one cannot be read."""
    found: dict[PartitionPlace, Head | LogfsError] = {}

    def read(place: PartitionPlace) -> None:
        try:
            read_one = read_head(store, place)
        except LogfsError as error:
            found[place] = error
            return
        if read_one is not None:
            found[place] = read_one[0]

    for_each(read, all_places(store))
    return sorted(found.items(), key=itemgetter(0))


def check_writers(
    store: ObjectStore, directory_id: str, topic_ids: Collection[UUID], data: str
) -> None:
    """Refuse a store in which another data directory writes topics that this one does not have.

    Each of them would hide the records of the other from readers, where topics have equal names.

    Args:
        store: The store.
        directory_id: The id of this directory in hexadecimal digits; "": it has none yet.
        topic_ids: The ids of its topics.
        data: Its path.

    Raises:
        InvalidConfigError: Another one writes there.
    """
    others = [
        (place.topic_partition.topic, head.writer)
        for place, head in heads_of(store)
        if isinstance(head, Head)
        and head.writer.directory_id.hex() != directory_id
        and place.topic_id not in topic_ids
    ]
    if others:
        topic, writer = others[0]
        more = len({topic for topic, _ in others}) - 1
        raise InvalidConfigError(
            f"{store.url}: another data directory, on host {writer.host}, writes the topic {topic}"
            f"{f' and {more} more' if more else ''} there: choose another prefix. To continue its "
            f"logs on this machine: 'logfs promote {store.url} DATA' with an empty DATA. To write "
            f"other topics beside it: 'logfs remote init --shared {data} {store.url}'"
        )


def check_name(store: ObjectStore, place: PartitionPlace, directory_id: bytes) -> None:
    """Refuse to begin a partition whose name another data directory has in the store.

    Raises:
        RemoteStorageError: Another one writes a partition of that name.
    """
    for name in store.list_level("").directories:
        parsed = parse_topic_directory(name)
        if parsed is None or parsed == (place.topic_partition.topic, place.topic_id):
            continue
        if parsed[0] != place.topic_partition.topic:
            continue
        found = read_head(store, PartitionPlace(place.topic_partition, parsed[1]))
        if found is not None and found[0].writer.directory_id != directory_id:
            writer = found[0].writer
            raise RemoteStorageError(
                f"{store.url}/{place.head}: another data directory, on host {writer.host}, writes "
                f"a topic of this name there ({name}), and readers would see one of the two only. "
                "Nothing is copied. Use another prefix, or another name"
            )


def find_orphans(store: ObjectStore, place: PartitionPlace, now_ms: int) -> list[ObjectStat]:
    """Return the old objects of a partition that its head does not name: interrupted copies.

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


def orphans_of(store: ObjectStore, now_ms: int) -> Iterator[ObjectStat]:
    """Return the objects that no head names and that are older than a day.

    Raises:
        InvalidConfigError: The store is not one of logfs: a broker's objects have similar names.
    """
    if STORE not in {stat.key for stat in store.list_level("").objects}:
        raise InvalidConfigError(f"{store.url}: it is no store of logfs: there is no {STORE}")
    for place in all_places(store):
        if list_broker_files(store, place, None) is None:
            yield from find_orphans(store, place, now_ms)


def check_heads(store: ObjectStore, disk: Disk, path: str) -> None:
    """See that a store has heads, or nothing yet.

    Args:
        store: The store.
        disk: The same store as a data directory.
        path: The path as the user gave it.

    Raises:
        InvalidConfigError: A broker has filled it.
    """
    if any(map(partial(_has_head, store), all_places(store))) or not disk.list(""):
        return
    if STORE not in {stat.key for stat in store.list_level("").objects}:
        raise InvalidConfigError(
            f"{store.url}: logfs has not written this store, so it has no heads that say what "
            f"belongs to it. 'logfs status {path}' shows its logs, 'logfs verify {path}' reads all"
        )


def _has_head(store: ObjectStore, place: PartitionPlace) -> bool:
    try:
        store.stat(place.head)
    except FileNotFoundError:
        return False
    return True


def problems_of(store: ObjectStore) -> Iterator[ObjectProblem]:
    """Compare the objects of a store with its heads."""
    for place, head in heads_of(store):
        if isinstance(head, Head):
            yield from check_objects(store, place, head)
        else:
            yield ObjectProblem(place.head, str(head))


def _is_known(place: PartitionPlace, stat: ObjectStat) -> bool:
    """Whether an object is of a kind that logfs makes; anything else is left alone."""
    name = stat.key.removeprefix(place.prefix)
    return name != HEAD and (parse_segment(name) is not None or parse_table(name) is not None)
