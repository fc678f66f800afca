"""Which objects of a journal are still needed: see the rules 4 and 5 of the package. Pure."""

from collections.abc import Callable, Iterable, Iterator
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


class _Gone(NamedTuple):
    """A deleted partition, and the objects that have rows of it."""

    topic_partition: TopicPartition
    holders: set[ObjectName]


class KeptObjects:
    """The objects of a journal whose rows are needed. One thread.

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
        gone = gone_partitions(found)
        self.note_gone(lambda partition, _: partition in gone)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, name: ObjectName, one: JournalObject) -> None:
        """An object was created."""
        self._rows[name] = _held_by(one.rows)
        self._last = name
        self._told.update(one.gone)

    def oldest(self) -> Iterator[Held]:
        """Yield what holds the older half of the objects, if there are too many."""
        if len(self._rows) > MOST_KEPT:
            for name in list(self._rows)[: MOST_KEPT // 2]:
                yield from self._rows[name]

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
        names = [name for name, rows in self._rows.items() if not rows and name != self._last]
        return names + [
            name for name, modified_ms in self._others if now_ms - modified_ms > FENCE_MS
        ]

    def remove(self, name: ObjectName) -> None:
        """An object was deleted."""
        self._rows.pop(name, None)
        self._others = [one for one in self._others if one.name != name]
        for partition, one in list(self._gone.items()):
            one.holders.discard(name)
            if not one.holders:
                del self._gone[partition]
                self._told.discard(partition)


def _held_by(rows: Iterable[Row]) -> set[Held]:
    return {
        Held(SegmentId(row.id, row.base_offset), row.content, row.topic_partition) for row in rows
    }
