"""What a backup has of an object store: a copy of each head, and the objects that it needs.

The segments that only the store has stay there, and the manifest names their objects. Or the backup
gets copies of them, as local files of the segments. It needs no store then.

``logfs.head`` is a copy of the head of the partition. It replaces a head that the bucket has lost.
The entries of all segments are in ``logfs.tiered``, so nothing reads the copy.
"""

from collections.abc import Collection

from logfs.disk.link_or_copy import FileTransfer
from logfs.disk.remote.objects import ObjectStore
from logfs.errors import BackupError
from logfs.log import names
from logfs.log.manifest import BackedUp
from logfs.log.names import FileKind, format_segment_file
from logfs.log.remote.catalog import TieredPartition
from logfs.log.remote.entries import TieredEntry
from logfs.log.remote.head import MOST_HEAD_BYTES
from logfs.log.remote.rows import TieredRows
from logfs.services.backup.copying import Job


class StoreSource:
    """The object store of the directory that is backed up, for one backup.

    Args:
        objects: The store.
        transfer: Copies files that the store has into the target; None: they stay in the store.

    Attributes:
        url: Address of the store.
        needs: The objects that the backup needs, by their keys.
        warning: Why heads are not in the backup; None if all are there.
    """

    def __init__(self, objects: ObjectStore, transfer: FileTransfer | None) -> None:
        self.url = objects.url
        self.needs: list[str] = []
        self.warning: str | None = None
        self._objects = objects
        self._transfer = transfer

    def take(self, job: Job, row: BackedUp) -> None:
        """Copy the head of a partition that is in the target, and its segments if that is wanted.

        Raises:
            BackupError: The store did not give a segment that is to be copied.
            LogfsError, OSError: The target failed, or its ``logfs.tiered`` is damaged.
        """
        directory = row.topic_partition.directory
        rows = TieredRows.load(job.target, directory)
        if rows is None:
            return
        partition = TieredPartition(row.topic_partition, rows)
        entries = [entry for entry in rows.entries.values() if entry.next_offset > row.start_offset]
        self._copy_head(job, partition)
        try:
            if self._transfer is not None:
                for entry in _missing(job, directory, entries):
                    _copy_segment(job, self._transfer, partition, entry)
        except OSError as error:
            raise BackupError(f"a segment could not be copied from its store: {error}") from error
        finally:
            place = partition.place
            self.needs += [
                key(entry.base_offset, entry.segment_id)
                for entry in _missing(job, directory, entries)
                for key in (place.log, place.indexes)
            ]

    def _copy_head(self, job: Job, partition: TieredPartition) -> None:
        """Copy a head; a store that failed once is not asked for the other ones."""
        if self.warning is not None:
            return
        try:
            head, _ = self._objects.get(partition.place.head, MOST_HEAD_BYTES)
        except OSError as error:
            self.warning = str(error)
            return
        job.target.replace(f"{partition.topic_partition.directory}/{names.REMOTE_HEAD}", head)


def _missing(job: Job, directory: str, entries: Collection[TieredEntry]) -> list[TieredEntry]:
    """Return the segments that the target does not have."""
    there = {name for name, _ in job.target.list(directory)}
    return [
        entry
        for entry in entries
        if format_segment_file(entry.base_offset, FileKind.LOG) not in there
    ]


def _copy_segment(
    job: Job, transfer: FileTransfer, partition: TieredPartition, entry: TieredEntry
) -> None:
    """Copy the files of a segment, its ``.log`` last: a segment with a ``.log`` is whole."""
    directory, base = partition.topic_partition.directory, entry.base_offset
    kinds = [FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TEXT_INDEX]
    kinds += [FileKind.TXN_INDEX] if entry.lengths.txn else []
    for kind in (*kinds, FileKind.LOG):
        name = format_segment_file(base, kind)
        path = f"{directory}/{name}"
        known = (root for root in job.previous if transfer.is_copy(path, root))
        if not any(transfer.reuse(path, root) for root in known):
            transfer.copy(path)
    job.say(f"{directory}: {format_segment_file(base, FileKind.LOG)}, from the object store")
