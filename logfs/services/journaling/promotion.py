"""A data directory from a store, on another machine: nothing is copied but what is not sealed.

    1  the journal is fenced: no object of the owner before is valid from here on
    2  each head is fenced, then read: the owner before names no more segments
    3  a directory is made for each partition: what the store has is named, what only the journal
       has is written
    4  the root is read again: this directory owns the store, or another one was faster

It may be stopped after any step, and be done again. What was made is made once more.

A directory may have partitions of the store already. Local files of segments that it has copied
itself stay, and are read instead of their objects; everything else is made of the store.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.vfs import Disk
from logfs.errors import LogfsError, RemoteStorageError, text_of
from logfs.log import checkpoints, names
from logfs.log.checkpointing import forget_partitions
from logfs.log.checkpoints import EpochEntry, format_leader_epochs, format_partition_metadata
from logfs.log.closing import remove_note
from logfs.log.groups.coding import OFFSETS_CONFIG, OFFSETS_TOPIC
from logfs.log.host import Host
from logfs.log.names import FileKind, format_segment_file
from logfs.log.remote.bucket import all_places
from logfs.log.remote.entries import TieredEntry
from logfs.log.remote.head import Head, WritingDirectory
from logfs.log.remote.headfiles import HeadFiles
from logfs.log.remote.keys import PartitionPlace, parse_topic_directory
from logfs.log.remote.parallel import for_each
from logfs.log.remote.reading import read_entries, read_head
from logfs.log.remote.rows import TieredRows
from logfs.log.topiccreation import new_topic_id
from logfs.log.topics import format_topic_config
from logfs.services.journaling.assembly import (
    JournaledPartition,
    JournaledSegment,
    ReadJournal,
    assemble,
    end_offset_of,
    latest_epochs,
    latest_notes,
    read_journal,
)
from logfs.services.journaling.making import PartitionFiles
from logfs.services.journaling.notes import attributes_file, offsets_logs, partition_files
from logfs.services.journaling.objects import PartitionId
from logfs.services.journaling.root import JournalRoot, begin_epoch, confirm_root, read_root
from logfs.services.tiering.heads import FirstFacts, HeadWriter
from logfs.services.tiering.ownership import OwnedVersions
from logfs.types import MAX_OFFSET, TopicPartition


class Promoted(NamedTuple):
    """What a promotion has made.

    Attributes:
        partitions: The partitions of the data directory.
        segments: Segments that stay in the store.
        end_bytes: Bytes of records that only the journal had.
        complete_ms: The owner before had sent all that was appended before this moment; 0: it had
            no journal.
        problems: Partitions that could not be made, and damaged objects, each with the reason.
    """

    partitions: list[TopicPartition]
    segments: int
    end_bytes: int
    complete_ms: int
    problems: list[str]


class MadePartition(NamedTuple):
    """One partition: start and end, where the part begins that is scanned, and its sizes."""

    start_offset: int
    end_offset: int
    recovery_point: int
    segments: int
    end_bytes: int


def check_promotable(store: ObjectStore) -> None:
    """See that a store has logs of logfs; nothing is changed.

    Raises:
        RemoteStorageError: It has none.
        OSError: The store failed.
    """
    topics = [parse_topic_directory(name) for name in store.list_level("").directories]
    if not any(topics) and read_root(store) is None:
        raise RemoteStorageError(f"{store.url}: it has no logs that could be continued")


class NextOwner(NamedTuple):
    """A data directory that is to own a store.

    Attributes:
        store: The store.
        disk: The local disk of the data directory, which has its ``logfs.remote``.
        writer: The data directory.
        new_id: Gives 16 random bytes.
    """

    store: ObjectStore
    disk: Disk
    writer: WritingDirectory
    new_id: Callable[[], bytes]

    def begin_epoch(self) -> JournalRoot:
        """Fence the owner of the journal; see ``root.begin_epoch``."""
        owned = OwnedVersions(self.disk, "")
        return begin_epoch(self.store, self.writer, owned, self.new_id, takes_over=True)

    def fence(self, place: PartitionPlace, end: JournaledPartition | None) -> Head:
        """Own the head of a partition; ``end`` is what the journal has. See ``HeadWriter.fence``.

        The directory of the partition is there.
        """
        owned = OwnedVersions(self.disk, place.topic_partition.directory)
        writer = HeadWriter(self.store, place, self.writer, self.new_id, owned)

        def first(found: Head | None) -> FirstFacts | None:
            if end is None or (found is not None and end.facts_ms < found.writer.since_ms):
                return None
            facts = end.facts
            return FirstFacts(place.topic_id, facts.generation, facts.start, facts.config)

        return writer.fence(first, takes_over=True)


class Promotion:
    """The promotion of one data directory; its records are all in the store, if it has any.

    Args:
        store: The store.
        disk: The local disk of the data directory, which has its ``logfs.remote``.
        writer: The data directory.
        new_id: Gives 16 random bytes.
    """

    def __init__(
        self,
        store: ObjectStore,
        disk: Disk,
        writer: WritingDirectory,
        new_id: Callable[[], bytes],
    ) -> None:
        self._store = store
        self._disk = disk
        self._writer = writer
        self._new_id = new_id
        self._owner = NextOwner(store, disk, writer, new_id)
        self._files = PartitionFiles(store, disk)
        self._made: dict[TopicPartition, MadePartition] = {}
        self._notes: Mapping[str, bytes] = {}
        self._offsets: list[TopicPartition] = []
        self._problems: list[str] = []

    def run(self) -> Promoted:
        """Do it; the files are not synced when this returns.

        Raises:
            RemoteStorageError: Another directory was promoted meanwhile; or the store has nothing.
            OSError: The store or the disk failed.
        """
        root = self._begin()
        journal = read_journal(self._store, root)
        self._notes = latest_notes(journal)
        ends, places = assemble(journal), all_places(self._store)
        unique = {place.topic_partition: place for place in places}.values()
        for_each(lambda place: self._make(place, ends.get(_id_of(place)), root), unique)
        self._tell_twins(set(places).difference(unique))
        headed = {_id_of(place) for place in places}
        new = [(partition, end) for partition, end in ends.items() if partition not in headed]
        for_each(lambda one: self._make_new(*one, root), new)
        self._write_notes()
        self._write_checkpoints()
        self._confirm(root)
        return self._promoted(journal)

    def finish(
        self, made: Mapping[TopicPartition, MadePartition], notes: Mapping[str, bytes]
    ) -> list[str]:
        """Write the files beside partitions that were made before; returns what could not be."""
        self._made, self._notes = dict(made), notes
        self._write_notes()
        self._write_checkpoints()
        return self._problems

    # What makes it the owner

    def _begin(self) -> JournalRoot:
        """Own the journal, and return its root."""
        return self._owner.begin_epoch()

    def _head(self, place: PartitionPlace, end: JournaledPartition | None) -> Head:
        """Own the head of a partition, and return it."""
        return self._owner.fence(place, end)

    def _begun_epochs(
        self, before: Sequence[EpochEntry], root: JournalRoot, start: int
    ) -> list[EpochEntry]:
        """Return the leader epochs with one that no earlier owner has used, from an offset on."""
        return continued_epochs(before, root, start)

    def _confirm(self, root: JournalRoot) -> None:
        """See that this directory owns the store when all is made."""
        confirm_root(self._store, root)

    # The partitions

    def _make(
        self, place: PartitionPlace, end: JournaledPartition | None, root: JournalRoot
    ) -> None:
        """Own the head of a partition, and make its directory."""
        directory = place.topic_partition.directory
        is_new = not self._disk.exists(directory)
        try:
            if is_new:
                self._disk.make_directory(directory)
            head = self._head(place, end)
            entries = read_entries(self._store, head)
        except LogfsError as error:
            if read_head(self._store, place) is not None:  # else it is what a copy has left
                self._problems.append(f"{place.topic_partition}: {text_of(error)}")
            if is_new:
                self._disk.remove_tree(directory)
            return
        self._clear(directory, entries)
        files = HeadFiles(place, head, entries, 0)
        segments = [] if end is None else end.after(head.next_offset)
        base = segments[0].base_offset if segments else files.active.base_offset
        self._files.write_headed(directory, files, segments)
        before = latest_epochs(head.leader_epochs, end)
        self._write_epochs(directory, before, root, base, segments)
        self._made[place.topic_partition] = MadePartition(
            max(head.start.offset, 0 if end is None else end.facts.start.offset),
            end_offset_of(head.next_offset or head.start.offset, segments),
            base,
            len(entries),
            _size_of(segments),
        )

    def _make_new(self, partition: PartitionId, end: JournaledPartition, root: JournalRoot) -> None:
        """Make a partition that has no head yet: the journal alone has it."""
        segments, topic_partition = end.after(None), end.topic_partition
        if not segments:
            return
        if topic_partition in self._made:
            self._problems.append(f"{topic_partition}: the journal has another topic of this name")
            return
        directory, base = topic_partition.directory, segments[0].base_offset
        self._prepare(directory, ())
        self._files.write_journaled(directory, partition.topic_id, end, segments)
        self._write_epochs(directory, end.leader_epochs, root, base, segments)
        self._made[topic_partition] = MadePartition(
            end.facts.start.offset, end_offset_of(None, segments), base, 0, _size_of(segments)
        )

    # Files

    def _prepare(self, directory: str, entries: Sequence[TieredEntry]) -> None:
        """Make a directory if it is missing, and clear it."""
        if not self._disk.exists(directory):
            self._disk.make_directory(directory)
        self._clear(directory, entries)

    def _clear(self, directory: str, entries: Sequence[TieredEntry]) -> None:
        """Remove what is made of the store; what was copied to it from here stays.

        The rows of these segments are replaced in one step, so that they are known after a stop.
        """
        try:
            rows = TieredRows.load(self._disk, directory)
        except LogfsError:
            rows = None
        known = {} if rows is None else rows.entries
        copied = {one.base_offset for one in entries if known.get(one.base_offset) == one}
        for name, _ in self._disk.list(directory):
            if not (self._stays(name, copied) or (entries and name == names.TIERED)):
                self._disk.remove(f"{directory}/{name}")

    def _stays(self, name: str, copied: Collection[int]) -> bool:
        """Whether a file is not made of the store; ``copied`` are segments that are copied."""
        file = names.parse_segment_file(name)
        if file is not None:
            is_snapshot = file.kind is FileKind.SNAPSHOT
            return not (file.suffix or is_snapshot) and file.base_offset in copied
        if name == names.MIRROR or names.is_forward_file(name):
            return not self._notes  # else these are in the store
        return name == names.OWNED or names.parse_cut_file(name) is not None

    def _write_epochs(
        self,
        directory: str,
        before: Sequence[EpochEntry],
        root: JournalRoot,
        base: int,
        segments: Sequence[JournaledSegment],
    ) -> None:
        """Write the leader epochs; the loader lets one that begins later begin at the log end."""
        entries = self._begun_epochs(before, root, MAX_OFFSET if segments else base)
        self._files.write_epochs(directory, entries)

    def _write_notes(self) -> None:
        """Write files of partitions, owners and modes, and the positions of groups."""
        directories = {one.directory for one in self._made}
        for (directory, name), data in partition_files(self._notes).items():
            if directory in directories:
                self._files.write(f"{directory}/{name}", data)
        before = self._disk.read(names.ATTRIBUTES) if self._disk.exists(names.ATTRIBUTES) else None
        attributes = attributes_file(self._notes, before, {one.topic for one in self._made})
        if attributes is not None:
            self._files.write(names.ATTRIBUTES, attributes)
        if not any(one.topic == OFFSETS_TOPIC for one in self._made):
            try:
                self._write_positions()
            except (ValueError, LogfsError) as error:
                self._problems.append(f"positions of groups: {error}")

    def _write_positions(self) -> None:
        """Write the positions of groups, as the first records of ``__consumer_offsets``."""
        ends = {one: row.end_offset for one, row in self._made.items()}
        topic_id = new_topic_id(Host("", self._new_id))
        for number, data in offsets_logs(self._notes, ends, self._writer.since_ms).items():
            one = TopicPartition(OFFSETS_TOPIC, number)
            self._prepare(one.directory, ())
            for name, contents in (
                (names.PARTITION_METADATA, format_partition_metadata(topic_id)),
                (names.TOPIC_CONFIG, format_topic_config(OFFSETS_CONFIG)),
                (names.LEADER_EPOCH_CHECKPOINT, format_leader_epochs([EpochEntry(0, 0)])),
                (format_segment_file(0, FileKind.LOG), data),
            ):
                self._files.write(f"{one.directory}/{name}", contents)
            self._offsets.append(one)

    def _write_checkpoints(self) -> None:
        disk, made = self._disk, sorted(self._made.items())
        forget_partitions(disk, {*self._made, *self._offsets})
        for name, found in (
            (names.LOG_START_OFFSET_CHECKPOINT, {one: row.start_offset for one, row in made}),
            (names.RECOVERY_POINT_CHECKPOINT, {one: row.recovery_point for one, row in made}),
        ):
            checkpoints.write_offsets(disk, name, checkpoints.read_offsets(disk, name) | found)
        checkpoints.remove_clean_shutdown(disk)
        remove_note(disk)

    # The outcome

    def _tell_twins(self, places: Iterable[PartitionPlace]) -> None:
        for place in sorted(places):
            self._problems.append(
                f"{place.topic_partition}: the store has another topic of this name, with the id "
                f"of {place.qualified.topic}: 'logfs remote fetch --topic {place.qualified.topic}' "
                "copies it into another directory"
            )

    def _promoted(self, journal: ReadJournal) -> Promoted:
        if not self._made:
            raise RemoteStorageError(f"{self._store.url}: it has no logs that could be continued")
        rows = self._made.values()
        return Promoted(
            sorted(self._made),
            sum(row.segments for row in rows),
            sum(row.end_bytes for row in rows),
            journal.written_ms,
            [*journal.problems, *self._problems],
        )


def continued_epochs(
    before: Sequence[EpochEntry], root: JournalRoot, start: int
) -> list[EpochEntry]:
    """Return the leader epochs with one that no earlier owner has used, from an offset on.

    Epochs of the journal only grow, so that it is larger than any that an earlier promotion began.
    """
    latest = (before[-1].epoch if before else 0) + root.epoch
    return [*before, EpochEntry(latest, start)]


def _id_of(place: PartitionPlace) -> PartitionId:
    return PartitionId(place.topic_id, place.topic_partition.partition)


def _size_of(segments: Sequence[JournaledSegment]) -> int:
    return sum(len(one.data) for one in segments)
