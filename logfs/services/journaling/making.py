"""The directories of partitions, made from their heads and from what the journal has.

Segments that a head names are named by the segment table and ``logfs.tiered``; the bytes of those
that only the journal has are written. Nothing is synced.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import RemotePart
from logfs.disk.remote.treedisk import MadeFile
from logfs.disk.vfs import Disk
from logfs.log import names
from logfs.log.checkpoints import EpochEntry, format_leader_epochs, format_partition_metadata
from logfs.log.names import FileKind, format_segment_file
from logfs.log.remote.headfiles import HeadFiles
from logfs.log.remote.rows import TieredRows
from logfs.log.segments.table import SegmentState, TableEntry, encode_table
from logfs.log.topics import format_topic_config
from logfs.services.journaling.assembly import JournaledPartition, JournaledSegment
from logfs.types import Positions


class PartitionFiles:
    """Writes partition directories.

    Args:
        store: The store.
        disk: The local disk of the data directory.
    """

    def __init__(self, store: ObjectStore, disk: Disk) -> None:
        self._store = store
        self._disk = disk

    def make_directory(self, directory: str) -> None:
        """Make a directory, or empty that of an interrupted attempt."""
        if not self._disk.exists(directory):
            self._disk.make_directory(directory)
        for name, _ in self._disk.list(directory):
            if name != names.OWNED:
                self._disk.remove(f"{directory}/{name}")

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file."""
        file = self._disk.open(name, write=True, create=True)
        try:
            file.truncate(0)
            if data:
                file.pwrite(data, 0)
        finally:
            file.close()

    def write_headed(
        self, directory: str, files: HeadFiles, segments: Sequence[JournaledSegment]
    ) -> None:
        """Write a partition that has a head, and the segments after those that it names."""
        for name in (names.PARTITION_METADATA, names.TOPIC_CONFIG):
            found = files.find(name)
            if isinstance(found, MadeFile):
                self.write(f"{directory}/{name}", found.data)
        self.write(f"{directory}/{names.SEGMENT_TABLE}", table_of(files, segments))
        if files.entries:
            place, generation = files.place, files.head.generation
            TieredRows(self._disk, directory, place.topic_id, generation).restore(files.entries)
            self._copy_snapshot(directory, files)
        self._write_logs(directory, segments, files.active.base_offset)

    def write_journaled(
        self,
        directory: str,
        topic_id: UUID,
        end: JournaledPartition,
        segments: Sequence[JournaledSegment],
    ) -> None:
        """Write a partition that has no head yet: the journal alone has it."""
        facts = end.facts
        self.write(f"{directory}/{names.PARTITION_METADATA}", format_partition_metadata(topic_id))
        if facts.config is not None:
            self.write(f"{directory}/{names.TOPIC_CONFIG}", format_topic_config(facts.config))
        table = encode_table(facts.generation, open_entries(segments))
        self.write(f"{directory}/{names.SEGMENT_TABLE}", table)
        self._write_logs(directory, segments, segments[0].base_offset)

    def write_epochs(self, directory: str, entries: Iterable[EpochEntry]) -> None:
        """Write the leader epochs of a partition."""
        name = f"{directory}/{names.LEADER_EPOCH_CHECKPOINT}"
        self.write(name, format_leader_epochs(entries))

    def _copy_snapshot(self, directory: str, files: HeadFiles) -> None:
        """Copy the state of the producers at the end of the last segment in the store."""
        name = format_segment_file(files.active.base_offset, FileKind.SNAPSHOT)
        found = files.find(name)
        if isinstance(found, RemotePart):
            data = self._store.get_range(found.key, found.start, found.size)
            self.write(f"{directory}/{name}", bytes(data))

    def _write_logs(self, directory: str, segments: Sequence[JournaledSegment], base: int) -> None:
        for base_offset, data in [(one.base_offset, one.data) for one in segments] or [(base, b"")]:
            self.write(f"{directory}/{format_segment_file(base_offset, FileKind.LOG)}", data)


def table_of(files: HeadFiles, segments: Sequence[JournaledSegment]) -> bytes:
    """Return the segment table of a partition with a head, and with segments after it."""
    active = files.active
    after = open_entries(segments) or [opened(active.base_offset, active.bases)]
    return encode_table(files.head.generation, [*(one.entry for one in files.entries), *after])


def open_entries(segments: Sequence[JournaledSegment]) -> list[TableEntry]:
    """Return the entries of segments that the journal has."""
    return [opened(one.base_offset, one.bases) for one in segments]


def opened(base_offset: int, bases: Positions) -> TableEntry:
    """Return the entry of a segment that the loader scans."""
    return TableEntry(base_offset, SegmentState.OPEN, bases, bases)
