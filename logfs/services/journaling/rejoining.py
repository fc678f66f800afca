"""A directory that owned a store becomes a good copy of it again; another one owns it.

Each log is what the store has of it. Nothing is copied but what is in no segment; local files of
segments that this directory copied itself stay. ``logfs promote`` makes it the owner again.

Before, what the directory alone has is to be kept aside; see ``diverging``.
"""

from collections.abc import Collection, Sequence

from logfs.disk.vfs import Disk
from logfs.errors import RemoteStorageError
from logfs.log.checkpoints import EpochEntry, read_partition_metadata
from logfs.log.listing import list_partitions
from logfs.log.remote.head import Head
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.reading import read_head
from logfs.services.journaling.assembly import JournaledPartition
from logfs.services.journaling.objects import PartitionId
from logfs.services.journaling.promotion import Promotion
from logfs.services.journaling.root import JournalRoot, read_root
from logfs.services.tiering.ownership import OwnedVersions
from logfs.types import TopicPartition


class Rejoining(Promotion):
    """The same steps as a promotion, of a directory that owns nothing: no owner is fenced."""

    def _begin(self) -> JournalRoot:
        """Return the root, and note durably that another directory owns it."""
        found = read_root(self._store)
        if found is None:
            raise RemoteStorageError(f"{self._store.url}: the root of its journal is gone")
        OwnedVersions(self._disk, "").lose()
        return found[0]

    def _head(self, place: PartitionPlace, end: JournaledPartition | None) -> Head:
        """Return the head of a partition as it is."""
        found = read_head(self._store, place)
        if found is None:
            raise RemoteStorageError(f"{self._store.url}/{place.head}: the head is gone")
        return found[0]

    def _begun_epochs(
        self, before: Sequence[EpochEntry], root: JournalRoot, start: int
    ) -> list[EpochEntry]:
        """Return the leader epochs of the owner."""
        return list(before)

    def _confirm(self, root: JournalRoot) -> None:
        """Do nothing: whichever directory owns the store, this one is a copy of what was there."""


def replaced_partitions(disk: Disk, stored: Collection[PartitionPlace]) -> list[TopicPartition]:
    """Return the partitions of a directory whose name the store has for another topic.

    Args:
        disk: The local disk of the data directory.
        stored: The partitions of the store.
    """
    names = {place.topic_partition for place in stored}
    ids = {PartitionId(place.topic_id, place.topic_partition.partition) for place in stored}
    found = []
    for one in list_partitions(disk):
        topic_id = read_partition_metadata(disk, one.directory)
        is_other = topic_id is None or PartitionId(topic_id, one.partition) not in ids
        if one in names and is_other:
            found.append(one)
    return found
