"""Records that a data directory has and its store does not: another owner continued without them.

Each promotion begins a leader epoch that no other one has, where the log of the new owner begins to
differ. So the first epoch that only one of both has tells from which offset on they differ, as
between replicas of Kafka. Bytes that are not copied from this directory are compared as well: a
copy of the directory may have written other records in the same epoch.

Source: Kafka KIP-101, OffsetsForLeaderEpoch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import local_part
from logfs.log.checkpoints import EpochEntry
from logfs.log.names import parse_topic_id
from logfs.log.partition import PartitionLog
from logfs.log.reading.lookup import timestamp_of
from logfs.log.remote.bucket import all_places
from logfs.log.remote.entries import TieredEntry
from logfs.log.remote.head import Head
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.parallel import for_each
from logfs.log.remote.reading import read_entries, read_head
from logfs.records.batch import decode_header
from logfs.services.journaling.assembly import (
    JournaledPartition,
    ReadJournal,
    assemble,
    end_offset_of,
    latest_epochs,
)
from logfs.services.journaling.healing import end_of_batch, first_difference
from logfs.services.journaling.objects import PartitionId
from logfs.services.journaling.writing import ends_in_files
from logfs.types import TopicPartition


class LogInStore(NamedTuple):
    """What a store has of a partition.

    Attributes:
        place: The place of its objects.
        entries: The segments that its head names.
        ended: What the journal has of it; None: nothing.
        leader_epochs: Those of its owner.
        end_offset: The offset after the last record in the store.
    """

    place: PartitionPlace
    entries: Sequence[TieredEntry]
    ended: JournaledPartition | None
    leader_epochs: Sequence[EpochEntry]
    end_offset: int


class DivergedLog(NamedTuple):
    """Records of a partition that are in this data directory alone.

    Attributes:
        first_offset, end_offset: They have offsets in between; the end is exclusive.
        first_ms, last_ms: The timestamps of the first and the last one; None: not known.
        is_unknown: The store has no such partition at all.
    """

    topic_partition: TopicPartition
    first_offset: int
    end_offset: int
    first_ms: int | None
    last_ms: int | None
    is_unknown: bool


def stored_logs(store: ObjectStore, journal: ReadJournal | None) -> dict[PartitionId, LogInStore]:
    """Return what a store has of each partition, by its heads and its journal, if it has one.

    Raises:
        CorruptIndexError, UnsupportedFormatError: A head does not decode.
        OSError: The store failed.
    """
    ends: Mapping[PartitionId, JournaledPartition] = {} if journal is None else assemble(journal)
    found: dict[PartitionId, LogInStore] = {}

    def read(place: PartitionPlace) -> None:
        partition = PartitionId(place.topic_id, place.topic_partition.partition)
        read_one = read_head(store, place)
        if read_one is not None:
            head = read_one[0]
            entries = read_entries(store, head)
            found[partition] = _stored(place, head, entries, ends.get(partition))

    for_each(read, all_places(store))
    for partition, end in ends.items():
        if partition not in found:
            place = PartitionPlace(end.topic_partition, partition.topic_id)
            found[partition] = _stored(place, None, (), end)
    return found


def diverged_logs(
    store: ObjectStore, stored: Mapping[PartitionId, LogInStore], logs: Iterable[PartitionLog]
) -> list[DivergedLog]:
    """Return the partitions that have records which the store does not have.

    Args:
        store: The store.
        stored: What it has.
        logs: The partitions of the data directory that are to be in the store.

    Raises:
        LogfsError, OSError: The store or the disk failed.
    """
    found = []
    for log in logs:
        if log.topic_id is None:
            continue
        topic_id, end_offset = parse_topic_id(log.topic_id), log.log_end_offset
        one = stored.get(PartitionId(topic_id, log.topic_partition.partition))
        first = 0 if one is None else _first_diverged(store, one, log)
        first = max(first, log.log_start_offset)
        if first < end_offset:
            first_ms = timestamp_of(log.snapshot, first)
            last_ms = timestamp_of(log.snapshot, end_offset - 1)
            place = log.topic_partition
            found.append(DivergedLog(place, first, end_offset, first_ms, last_ms, one is None))
    return found


def fork_of(
    local: Sequence[EpochEntry],
    local_end: int,
    stored: Sequence[EpochEntry],
    stored_end: int,
) -> int:
    """Return the first offset of which two logs may have different records, by their epochs."""
    oldest = max([one[0].epoch for one in (local, stored) if one], default=0)
    mine = [one for one in local if one.epoch >= oldest]  # the log start may have passed others
    theirs = [one for one in stored if one.epoch >= oldest]
    same = 0
    while same < min(len(mine), len(theirs)) and mine[same].epoch == theirs[same].epoch:
        same += 1
    begins = [one[same].start_offset for one in (mine, theirs) if same < len(one)]
    return min(local_end, stored_end, *begins)


def _stored(
    place: PartitionPlace,
    head: Head | None,
    entries: Sequence[TieredEntry],
    end: JournaledPartition | None,
) -> LogInStore:
    copied = None if head is None else head.next_offset
    epochs = latest_epochs(() if head is None else head.leader_epochs, end)
    end_offset = end_offset_of(copied, [] if end is None else end.after(copied))
    return LogInStore(place, entries, end, tuple(epochs), end_offset)


def _first_diverged(store: ObjectStore, stored: LogInStore, log: PartitionLog) -> int:
    fork = fork_of(
        log.state.epochs.entries, log.log_end_offset, stored.leader_epochs, stored.end_offset
    )
    mine = {} if log.tier is None else log.tier.entries
    same = [one for one in stored.entries if mine.get(one.base_offset) == one]
    copied = max((one.next_offset for one in same), default=0)
    for segment, size, _ in ends_in_files(log.snapshot, copied):
        if segment.base_offset >= fork:
            break
        data = _bytes_in_store(store, stored, segment.base_offset, size)
        if data is None or segment.is_packed or log.config.is_compacted:
            continue
        file = local_part(log.disk).open(segment.name)
        try:
            local = bytes(file.pread(len(data), 0))
        finally:
            file.close()
        if local != data and end_of_batch(local, at := first_difference(local, data)) is not None:
            return min(fork, decode_header(local, at).base_offset)
    return fork


def _bytes_in_store(
    store: ObjectStore, stored: LogInStore, base_offset: int, most: int
) -> bytes | None:
    """Return the first bytes of a segment; None: the store has no such one, or packed it."""
    for one in () if stored.ended is None else stored.ended.segments:
        if one.base_offset == base_offset:
            return one.data[:most]
    for entry in stored.entries:
        if entry.base_offset == base_offset and not entry.entry.is_packed:
            key = stored.place.log(base_offset, entry.segment_id)
            return bytes(store.get_range(key, 0, min(most, entry.size_bytes)))
    return None
