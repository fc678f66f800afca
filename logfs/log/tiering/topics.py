"""The objects of deleted topics go, once the directories of their partitions are due.

Until the store has forgotten a partition, its directory keeps the files that name its objects. The
local segments are removed before that.
"""

import logging

from logfs.errors import LogfsError, RemoteStorageError
from logfs.log.checkpoints import read_partition_metadata
from logfs.log.remote.catalog import DirectoryCatalog
from logfs.log.remote.head import Writer
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.reading import read_head
from logfs.log.store import LogStore
from logfs.log.tiering.heads import FirstFacts, HeadWriter
from logfs.log.tiering.removing import DroppedSegments, remove_partition
from logfs.log.topicdeletion import DeletedPartition

logger = logging.getLogger(__name__)


class DeletedTopics:
    """Removes the objects of deleted topics. One thread at a time.

    Args:
        store: The data directory.
        catalog: Its object store.
        writer: This data directory, for the heads.
    """

    def __init__(self, store: LogStore, catalog: DirectoryCatalog, writer: Writer) -> None:
        self._store = store
        self._catalog = catalog
        self._writer = writer
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
        """Go on with one partition; returns whether the store has nothing of it any more."""
        known = self._heads.get(row.directory)
        if known is None or not known[0].epoch:
            topic_id = read_partition_metadata(self._catalog.local, row.directory)
            if topic_id is None:
                logger.warning("%s: it has no topic id, its objects stay", row.directory)
                return True
            store = self._catalog.store()
            place = PartitionPlace(row.topic_partition, topic_id)
            found = read_head(store, place)
            if found is None:
                return True
            head = found[0]
            writer = HeadWriter(store, place, self._writer, self._store.new_id)
            if head.writer.directory_id != self._writer.directory_id:
                raise RemoteStorageError(
                    f"{store.url}/{place.head}: another data directory has taken over this "
                    "partition: its objects stay"
                )
            writer.fence(FirstFacts(topic_id, head.generation, head.start, head.config))
            known = self._heads[row.directory] = writer, DroppedSegments(store)
        delay_ms = self._store.config.log_segment_delete_delay_ms
        return remove_partition(*known, delay_ms, now_ms)
