"""The ends of the partitions, put together from all objects of a journal."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from logfs.disk.remote.objects import ObjectStore
from logfs.errors import CorruptRecordError, LogfsError
from logfs.log.checkpoints import EpochEntry
from logfs.log.remote.parallel import for_each
from logfs.records.batch import decode_header
from logfs.services.journaling.objects import (
    JournalObject,
    ListedObject,
    ObjectName,
    PartitionFacts,
    PartitionId,
    Row,
    list_objects,
    read_object,
)
from logfs.services.journaling.root import JournalRoot
from logfs.types import Positions, TopicPartition


class JournaledSegment(NamedTuple):
    """What a journal has of one segment: its bytes from the first one on.

    Attributes:
        content: See ``Row.content``.
        next_offset: The offset after its last record if all of it is here; else -1.
    """

    base_offset: int
    bases: Positions
    content: int
    data: bytes
    next_offset: int


class JournaledPartition(NamedTuple):
    """What a journal has of one partition.

    Attributes:
        topic_partition: The partition by name.
        segments: Its segments by base offset. Those that a head names may be missing.
        leader_epochs: Those of the log, by its last row.
        facts, facts_ms: The latest facts, and when they were read, epoch milliseconds.
    """

    topic_partition: TopicPartition
    segments: list[JournaledSegment]
    leader_epochs: Sequence[EpochEntry]
    facts: PartitionFacts
    facts_ms: int

    def after(self, offset: int | None) -> list[JournaledSegment]:
        """Return the segments that continue a log at an offset, without a gap; None: from any."""
        found: list[JournaledSegment] = []
        for one in self.segments:
            if offset is None or one.base_offset == offset:
                found.append(one)
                offset = one.next_offset
        return found


def end_offset_of(copied: int | None, segments: Sequence[JournaledSegment]) -> int:
    """Return where a log ends of which a head names segments, and a journal has those after them.

    Args:
        copied: The offset after the segments of the head; None: there are none.
        segments: See ``JournaledPartition.after``.
    """
    end_offset = copied or 0
    for one in segments[-1:]:
        end_offset, at = max(end_offset, one.base_offset), 0
        with contextlib.suppress(CorruptRecordError):  # a range of bytes may end inside a batch
            while (header := decode_header(one.data, at)).size_bytes <= len(one.data) - at:
                end_offset, at = header.next_offset, at + header.size_bytes
    return end_offset


def latest_epochs(
    head: Sequence[EpochEntry], end: JournaledPartition | None
) -> Sequence[EpochEntry]:
    """Return the leader epochs of the last owner: those of a head, or those of a journal."""
    journaled = () if end is None else end.leader_epochs
    return max(head, journaled, key=lambda one: one[-1].epoch if one else -1)


class ReadJournal(NamedTuple):
    """All valid objects of a journal.

    Attributes:
        root: The root by which they are valid.
        objects: Name -> object, in their order, without fences.
        listed: Every object that is there, fences and void ones included.
        problems: What could not be read.
    """

    root: JournalRoot
    objects: Mapping[ObjectName, JournalObject]
    listed: list[ListedObject]
    problems: list[str]

    @property
    def written_ms(self) -> int:
        """The log was read at this moment for the last object; 0: there is none."""
        return max((one.written_ms for one in self.objects.values()), default=0)


def read_journal(store: ObjectStore, root: JournalRoot) -> ReadJournal:
    """Read all objects of a journal, some at a time.

    Raises:
        OSError: The store failed.
    """
    found: dict[ObjectName, JournalObject] = {}
    problems: list[str] = []

    def read(name: ObjectName) -> None:
        try:
            one = read_object(store, name)
        except FileNotFoundError:
            return  # deleted meanwhile: nothing needs it
        except LogfsError as error:
            problems.append(str(error))
            return
        if not one.fence:
            found[name] = one

    listed = list_objects(store)
    for_each(read, [one.name for one in listed if root.is_valid(one.name)])
    return ReadJournal(root, dict(sorted(found.items())), listed, sorted(problems))


def gone_partitions(journal: ReadJournal) -> set[PartitionId]:
    """Return the partitions that were deleted, and not restored since."""
    gone: set[PartitionId] = set()
    for one in journal.objects.values():
        gone.difference_update(row.id for row in one.rows)
        gone.update(one.gone)
    return gone


def latest_notes(journal: ReadJournal) -> dict[str, bytes]:
    """Return the notes of a journal as they were last; see ``notes``."""
    found: dict[str, bytes] = {}
    for one in journal.objects.values():
        found |= one.notes
    return {name: data for name, data in found.items() if data}


def assemble(journal: ReadJournal) -> dict[PartitionId, JournaledPartition]:
    """Return what a journal has of each partition that was not deleted."""
    assembly = Assembly()
    for one in journal.objects.values():
        assembly.add(one)
    return {partition: end for partition in assembly if (end := assembly.partition(partition))}


class Assembly:
    """The ends of the partitions, from the objects of a journal that were added so far.

    A reader that has written bytes to a file may let go of them: see ``take``.
    """

    def __init__(self) -> None:
        self._segments: dict[PartitionId, dict[int, _Contents]] = {}
        self._last: dict[PartitionId, Row] = {}
        self._told: dict[PartitionId, tuple[PartitionFacts, int]] = {}

    def __iter__(self) -> Iterator[PartitionId]:
        return iter(list(self._segments))

    def add(self, one: JournalObject) -> set[PartitionId]:
        """Add the next object; returns the partitions that it has rows of."""
        for gone in one.gone:
            self.forget(gone)  # later rows are of a topic that was restored
        at = 0
        for row in one.rows:
            data = one.payload[at : at + row.length]
            at += row.length
            segments = self._segments.setdefault(row.id, {})
            segments.setdefault(row.base_offset, _Contents()).add(row, data)
            self._last[row.id] = row
            if row.facts is not None:
                self._told[row.id] = row.facts, one.written_ms
        return {row.id for row in one.rows}

    def partition(self, partition: PartitionId) -> JournaledPartition | None:
        """Return what is known of a partition, without bytes that were taken; None: nothing is."""
        if partition not in self._segments or partition not in self._told:
            return None
        last, found = self._last[partition], sorted(self._segments[partition].items())
        return JournaledPartition(
            last.topic_partition,
            [one for _, contents in found if (one := contents.latest())],
            last.leader_epochs,
            *self._told[partition],
        )

    def take(self, partition: PartitionId, base_offset: int) -> None:
        """Let go of the bytes of a segment that ``partition`` has returned."""
        self._segments[partition][base_offset].take()

    def forget(self, partition: PartitionId) -> None:
        """Forget a partition, which was deleted."""
        self._segments.pop(partition, None)

    def forget_before(self, partition: PartitionId, offset: int) -> None:
        """Forget the segments before an offset: the head of the partition names them."""
        segments = self._segments.get(partition, {})
        for base_offset in [base for base in segments if base < offset]:
            del segments[base_offset]


class _Content:
    """The bytes of one content of a segment; ``size`` includes those that were taken."""

    def __init__(self, row: Row) -> None:
        self.first = row
        self.data = bytearray()
        self.size = 0
        self.next_offset = -1
        self.is_whole = False


class _Contents:
    """The contents of one segment, by their numbers."""

    def __init__(self) -> None:
        self._found: dict[int, _Content] = {}

    def add(self, row: Row, data: bytes | memoryview) -> None:
        """Add the bytes of a row; those after a gap are left out."""
        content = self._found.get(row.content)
        if content is None:
            if row.position:
                return  # its beginning was deleted: the head names the segment
            content = self._found[row.content] = _Content(row)
        if row.position != content.size:
            return
        content.data += data
        content.size += row.length
        content.next_offset = row.next_offset
        content.is_whole |= row.is_whole

    def take(self) -> None:
        """Let go of the bytes of the latest content, and of all earlier ones."""
        number = self._latest()
        self._found = {one: found for one, found in self._found.items() if one >= number}
        self._found[number].data = bytearray()

    def latest(self) -> JournaledSegment | None:
        """Return the last content of which all was sent once; without one, the first."""
        number = self._latest()
        if number < 0:
            return None
        content = self._found[number]
        first, data = content.first, bytes(content.data)
        return JournaledSegment(first.base_offset, first.bases, number, data, content.next_offset)

    def _latest(self) -> int:
        whole = [number for number, found in self._found.items() if found.is_whole]
        return max(whole) if whole else min(self._found, default=-1)
