"""Which objects of a journal are still needed: see the rules 4 and 5 of the package. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from logfs.services.journaling.assembly import ReadJournal, gone_partitions
from logfs.services.journaling.objects import JournalObject, ObjectName, PartitionId, Row
from logfs.types import TopicPartition

MOST_KEPT = 40
"""Objects from which on the older half is to be freed."""
FENCE_MS = 7 * 24 * 3_600_000


class SegmentId(NamedTuple):
    """A segment of a partition."""

    partition: PartitionId
    base_offset: int


class Held(NamedTuple):
    """What an object has rows of: a content of a segment.

    Attributes:
        segment: The segment.
        content: See ``Row.content``.
        topic_partition: The partition by name.
    """

    segment: SegmentId
    content: int
    topic_partition: TopicPartition


class FoundNotes(NamedTuple):
    """The notes of a data directory as they are now.

    Attributes:
        notes: Name -> contents, never empty.
        unknown: The beginnings of the names of those that could not be read: they are as before.
    """

    notes: Mapping[str, bytes] = MappingProxyType({})
    unknown: Collection[str] = ()

    def is_unknown(self, name: str) -> bool:
        """Whether a note that is not there may be there all the same."""
        return name.startswith(tuple(self.unknown))


class _Gone(NamedTuple):
    """A deleted partition, and the objects that have rows of it."""

    topic_partition: TopicPartition
    holders: set[ObjectName]


class _KeptNote(NamedTuple):
    """The last contents of a note, and the objects that have it, the last one with these."""

    data: bytes
    holders: list[ObjectName]


class KeptObjects:
    """The objects of a journal whose rows or notes are needed. One thread.

    Args:
        found: The journal as it was when the epoch began.

    """

    def __init__(self, found: ReadJournal) -> None:
        self._rows = {name: _held_by(one.rows) for name, one in found.objects.items()}
        self._last: ObjectName | None = None
        self._others = [
            one for one in found.listed
            if one.name.epoch < found.root.epoch and one.name not in found.objects
        ]  # fmt: skip
        self._gone: dict[PartitionId, _Gone] = {}
        self._told: set[PartitionId] = set()
        self._notes: dict[str, _KeptNote] = {}
        self._settled: set[ObjectName] = set()
        for name, one in found.objects.items():
            self._add_notes(name, one.notes)
        gone = gone_partitions(found)
        self.note_gone(lambda partition, _: partition in gone)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, name: ObjectName, one: JournalObject) -> None:
        """An object was created."""
        self._rows[name] = _held_by(one.rows)
        self._last = name
        self._told.update(one.gone)
        self._add_notes(name, one.notes)

    def _add_notes(self, name: ObjectName, notes: Mapping[str, bytes]) -> None:
        for note, data in notes.items():
            holders = self._notes[note].holders if note in self._notes else []
            self._notes[note] = _KeptNote(data, [*holders, name])

    def changed(self, found: FoundNotes) -> dict[str, bytes]:
        """Return the notes that the next object has to have; b"" for those that are gone.

        These are the ones that have changed, and those that hold one of too many old objects.
        """
        old = set(self._oldest_names())
        news = {
            name: data
            for name, data in found.notes.items()
            if name not in self._notes
            or self._notes[name].data != data
            or self._notes[name].holders[-1] in old
        }
        for name, known in self._notes.items():
            if known.data and name not in found.notes and not found.is_unknown(name):
                news[name] = b""
        return news

    def _oldest_names(self) -> list[ObjectName]:
        names = [name for name in self._rows if name not in self._settled]
        return names[: MOST_KEPT // 2] if len(names) > MOST_KEPT else []

    def oldest(self, is_settled: Callable[[Held, int], bool]) -> Iterator[Held]:
        """Yield what holds the older half of the objects, if there are too many.

        Args:
            is_settled: Whether something stays where it is, by the number of objects that have it.
                Objects that have nothing else are left out.
        """
        if len(self._rows) > MOST_KEPT:
            numbers = Counter(held for rows in self._rows.values() for held in rows)
            settled = {held for held, number in numbers.items() if is_settled(held, number)}
            self._settled = {name for name, rows in self._rows.items() if rows and rows <= settled}
            for name in self._oldest_names():
                yield from self._rows[name] - settled

    def note_gone(self, is_gone: Callable[[PartitionId, TopicPartition], bool]) -> None:
        """Find partitions that were deleted, of which objects still have rows."""
        for partition, (topic_partition, _) in list(self._gone.items()):
            if not is_gone(partition, topic_partition):  # it was restored
                del self._gone[partition]
                self._told.discard(partition)
        found: dict[PartitionId, _Gone] = {}
        for name, rows in self._rows.items():
            for segment, _, topic_partition in rows:
                if segment.partition not in self._gone:
                    one = found.setdefault(segment.partition, _Gone(topic_partition, set()))
                    one.holders.add(name)
        self._gone.update(
            (partition, one)
            for partition, one in found.items()
            if is_gone(partition, one.topic_partition)
        )

    @property
    def gone(self) -> list[PartitionId]:
        """Deleted partitions of which objects still have rows; each new object names them."""
        return sorted(self._gone)

    @property
    def has_news(self) -> bool:
        """Whether a deleted partition is not named by an object of this epoch yet."""
        return not self._gone.keys() <= self._told

    def release(self, is_void: Callable[[Held], bool]) -> None:
        """Forget what is needed no more."""
        for name, rows in self._rows.items():
            self._rows[name] = {held for held in rows if not is_void(held)}

    def unneeded(self, now_ms: int) -> list[ObjectName]:
        """Return the objects that may be deleted: never the last one, fences after a week."""
        needed = {self._last} | {
            one.holders[-1] for one in self._notes.values() if one.data or len(one.holders) > 1
        }  # what a note was before must not come back
        names = [name for name, rows in self._rows.items() if not rows and name not in needed]
        return names + [
            name for name, modified_ms in self._others if now_ms - modified_ms > FENCE_MS
        ]

    def remove(self, name: ObjectName) -> None:
        """An object was deleted."""
        self._rows.pop(name, None)
        self._others = [one for one in self._others if one.name != name]
        for note, known in list(self._notes.items()):
            if name in known.holders:
                known.holders.remove(name)
                if not known.holders:
                    del self._notes[note]
        for partition, one in list(self._gone.items()):
            one.holders.discard(name)
            if not one.holders:
                del self._gone[partition]
                self._told.discard(partition)


def _held_by(rows: Iterable[Row]) -> set[Held]:
    return {
        Held(SegmentId(row.id, row.base_offset), row.content, row.topic_partition) for row in rows
    }
