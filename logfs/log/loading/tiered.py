"""The tiered segments of a log that is loaded: those in ``logfs.tiered``.

They are durable: they are never scanned, recovered, truncated, synced or opened for writing. A
start sends no request, unless ``logfs.tiered`` is lost: it is rebuilt from the head.
"""

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from logfs.disk.remote.overlay import local_part
from logfs.disk.vfs import Disk
from logfs.errors import CorruptIndexError, RemoteStorageError
from logfs.log.loading.context import LoadContext, Loader
from logfs.log.names import TIERED, FileKind, group_segment_files
from logfs.log.remote.of_disk import catalog_of
from logfs.log.segments.segment import SEGMENT_FILE_KINDS
from logfs.types import Positions

if TYPE_CHECKING:
    from logfs.log.remote.catalog import TieredPartition
    from logfs.log.remote.status import RemoteStatus

logger = logging.getLogger(__name__)


def find_tiered(context: LoadContext, directory: str) -> "TieredPartition | None":
    """Return the tiered segments of a partition directory; None if ``logfs.tiered`` has none.

    Raises:
        UnsupportedFormatError: A newer logfs wrote the file.
        RemoteStorageError: There is such a file, but the data directory has no store.
        OSError: The disk failed.
    """
    catalog = catalog_of(context.disk)
    if catalog is None:
        if context.disk.exists(f"{directory}/{TIERED}"):
            raise RemoteStorageError(
                f"{directory}: some of its segments are in an object store, but the data directory "
                "has no logfs.remote, which names the store. Restore the file, or write it with "
                "'logfs remote init'"
            )
        return None
    if context.read_only:
        return catalog.partition(directory)
    try:
        return catalog.own(directory)
    except CorruptIndexError as error:
        logger.warning("%s; it is rebuilt from the object store", error)
        return None


def remote_status(disk: Disk, directory: str) -> "RemoteStatus | None":
    """Return the status of a partition that was not looked at yet; None without a store."""
    catalog = catalog_of(disk)
    if catalog is None:
        return None
    from logfs.log.remote.status import RemoteStatus

    status, fenced = RemoteStatus(catalog.url), catalog.fenced
    reason = fenced.get(directory) or fenced.get("")
    if reason is not None:
        status.fence(reason)
    return status


def rebuild_lost(loader: Loader, topic_id: UUID | None) -> bool:
    """Rebuild a lost ``logfs.tiered`` from the head of the partition; returns whether it was lost.

    It is taken for lost if it does not decode, or if segments that the segment table has are gone;
    if it has rows that decode, only if the last ones do not.

    Raises:
        RemoteStorageError: The store has no such partition.
        OSError: The store or the disk failed.
    """
    context, directory = loader.context, loader.directory
    catalog = catalog_of(context.disk)
    if catalog is None or context.read_only or topic_id is None:
        return False
    tier = loader.tier
    is_damaged = tier is None and catalog.local.exists(f"{directory}/{TIERED}")
    may_be_lost = loader.config.remote_storage_enable if tier is None else tier.rows.is_torn
    if not is_damaged and not (may_be_lost and _misses_segments(loader)):
        return False
    from logfs.log.remote.keys import PartitionPlace
    from logfs.log.remote.reading import read_entries, read_head

    place = PartitionPlace(loader.topic_partition, topic_id)
    store = catalog.store()
    found = read_head(store, place)
    if found is None:
        if not is_damaged:
            return False
        raise RemoteStorageError(
            f"{directory}/{TIERED} is damaged, and {store.url} has no head of this partition to "
            "rebuild it from. If no segment of it was ever in the store, remove the file"
        )
    head = found[0]
    entries = [e for e in read_entries(store, head) if e.base_offset not in set(loader.bases)]
    if tier is None:
        tier = loader.tier = catalog.begin(directory, place.topic_id, head.generation)
    tier.rows.restore(entries)
    logger.warning(
        "%s: %s was lost; rebuilt from %s: %d segments that only the store has",
        loader.topic_partition, TIERED, store.url, len(entries),
    )  # fmt: skip
    return True


def remove_partial(loader: Loader) -> None:
    """Remove what is left locally of segments whose ``.log`` was given up."""
    tier, local = loader.tier, local_part(loader.context.disk)
    if tier is None or loader.context.read_only:
        return
    kinds, _ = group_segment_files(local.contents(loader.directory).files)
    for base_offset in tier.entries.keys() & kinds.keys():
        rest = kinds[base_offset] & set(SEGMENT_FILE_KINDS)
        if FileKind.LOG not in rest and rest - {FileKind.TXN_INDEX}:
            segment = loader.segment(base_offset, Positions())
            for kind in rest - {FileKind.TXN_INDEX}:
                local.remove(segment.file_name(kind))


def _misses_segments(loader: Loader) -> bool:
    """Whether the segment table is lost, or has segments that are not there.

    Without a table and without segments the partition is new.
    """
    bases = set(loader.bases)
    if loader.table is None:
        return bool(bases)
    return any(base not in bases for base in loader.table.entries)
