"""The objects of deleted topics go, once the directories of their partitions are due.

Until the store has forgotten a partition, its directory keeps the files that name its objects. The
local segments are removed before that.
"""

import logging
from collections.abc import Collection

from logfs.errors import LogfsError, RemoteStorageError
from logfs.log.checkpoints import read_partition_metadata
from logfs.log.remote.catalog import DirectoryCatalog
from logfs.log.remote.head import Head, WritingDirectory
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.reading import read_head
from logfs.log.remote.rows import TieredRows
from logfs.log.store import LogStore
from logfs.log.topicdeletion import DeletedPartition
from logfs.services.tiering.heads import FirstFacts, HeadWriter
from logfs.services.tiering.ownership import OwnedVersions
from logfs.services.tiering.removing import DroppedSegments, remove_partition

logger = logging.getLogger(__name__)


class DeletedTopics:
    """Removes the objects of deleted topics. One thread at a time.

    Args:
        store: The data directory.
        catalog: Its object store.
        writer: This data directory, for the heads.
        given_up: Partitions that another process has taken over; others may be added.
        keeps: Why no objects are removed; None: they are.
    """

    def __init__(
        self,
        store: LogStore,
        catalog: DirectoryCatalog,
        writer: WritingDirectory,
        given_up: Collection[PartitionPlace] = (),
        *,
        keeps: str | None = None,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._writer = writer
        self._given_up = given_up
        self._keeps = keeps
        self._heads: dict[str, tuple[HeadWriter, DroppedSegments]] = {}
        self._told: set[str] = set()

    def remove_due(self, now_ms: int) -> bool:
        """Remove the objects that are due; returns whether the store took all requests."""
        is_done = True
        for row in self._store.deleted_tiered():
            try:
                if self._remove(row, now_ms):
                    self._heads.pop(row.directory, None)
                    self._store.forget_deleted(row)
            except (LogfsError, OSError) as error:
                is_done = False
                if row.directory not in self._told:
                    self._told.add(row.directory)
                    logger.warning("%s, of a deleted topic: %s", row.directory, error)
        return is_done

    def _remove(self, row: DeletedPartition, now_ms: int) -> bool:
        """Continue with one partition; returns whether the store has nothing of it any more."""
        known = self._heads.get(row.directory)
        if known is None or not known[0].epoch:
            topic_id = read_partition_metadata(self._catalog.local, row.directory)
            if topic_id is None:
                logger.warning("%s: it has no topic id, its objects stay", row.directory)
                return True
            if self._keeps is not None:
                raise RemoteStorageError(self._keeps)
            store = self._catalog.store()
            place = PartitionPlace(row.topic_partition, topic_id)
            found = read_head(store, place)
            if found is None:
                return True
            head = found[0]
            owned = OwnedVersions(self._catalog.local, row.directory)
            writer = HeadWriter(store, place, self._writer, self._store.new_id, owned)
            if head.writer.directory_id != self._writer.directory_id or self._is_foreign(
                row, place, head
            ):
                raise RemoteStorageError(
                    f"{store.url}/{place.head}: another data directory has taken over this "
                    "partition: its objects stay"
                )
            facts = FirstFacts(topic_id, head.generation, head.start, head.config)
            writer.fence(lambda _: facts)
            known = self._heads[row.directory] = writer, DroppedSegments(store)
        delay_ms = self._store.config.log_segment_delete_delay_ms
        return remove_partition(*known, delay_ms, now_ms)

    def _is_foreign(self, row: DeletedPartition, place: PartitionPlace, head: Head) -> bool:
        """Whether another process has the partition: a copy of this directory has the same id."""
        if place in self._given_up:
            return True
        rows = TieredRows.load(self._catalog.local, row.directory)
        end = -1 if rows is None or rows.next_offset is None else rows.next_offset
        return head.next_offset is not None and head.next_offset > end
