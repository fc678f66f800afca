"""The vocabulary shared by all layers: numbers with a meaning, and the names of things.

An *offset* is a number of records and a *file position* a number of bytes of a ``.log`` file, as in
Kafka. A *position* is a number of bytes of a rendering: the text of ``orders/0`` (or ``.tsv``,
``.jsonl``). Offsets and positions never change.
"""

from enum import IntEnum, StrEnum
from typing import NamedTuple, Never, NewType, Self

Offset = NewType("Offset", int)
FilePosition = NewType("FilePosition", int)
TimestampMs = NewType("TimestampMs", int)

NO_TIMESTAMP = -1
"""Kafka's timestamp of a record that has none. Source: Kafka RecordBatch.NO_TIMESTAMP."""

MAX_OFFSET = 2**63 - 1
"""The largest offset there is. Source: Kafka, where offsets are int64."""

MAX_PARTITIONS = 10_000
"""A topic is not given more: larger numbers are typing mistakes. One that a broker made may be."""


class Closeable:
    """Base of what a ``with`` block closes at its end."""

    def close(self) -> None:
        """Close it; again does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class View(IntEnum):
    """The renderings of a record; the number is the index into ``Positions``."""

    TEXT = 0
    TSV = 1
    JSONL = 2


class IsolationLevel(StrEnum):
    """Up to where, and what, a reader sees. The first two are Kafka's ``isolation.level``."""

    READ_UNCOMMITTED = "read_uncommitted"
    """Everything up to the log end."""
    READ_COMMITTED = "read_committed"
    """Up to the last stable offset, without the records of aborted transactions."""
    HIGH_WATERMARK = "high_watermark"
    """Everything up to the high watermark that was noted last."""

    @classmethod
    def _missing_(cls, value: object) -> Never:
        known = ", ".join(cls)
        raise ValueError(f"isolation level {value!r}: expected one of {known}")


class Positions(NamedTuple):
    """One byte position, or length, in each rendering."""

    text: int = 0
    tsv: int = 0
    jsonl: int = 0

    def plus(self, lengths: "Positions | tuple[int, int, int]") -> "Positions":
        """Return the positions moved on by the lengths of some records."""
        return Positions(self[0] + lengths[0], self[1] + lengths[1], self[2] + lengths[2])

    def minus(self, other: "Positions | tuple[int, int, int]") -> "Positions":
        """Return the lengths from ``other`` up to here."""
        return Positions(self[0] - other[0], self[1] - other[1], self[2] - other[2])

    def at_least(self, other: "Positions | tuple[int, int, int]") -> "Positions":
        """Return the larger of both, view by view."""
        (a, b, c), (x, y, z) = self, other
        if a >= x and b >= y and c >= z:
            return self
        return Positions(max(a, x), max(b, y), max(c, z))


class TopicPartition(NamedTuple):
    """A topic and the number of one of its partitions."""

    topic: str
    partition: int

    @property
    def directory(self) -> str:
        """Name of its directory below the data directory. Source: Kafka LocalLog.logDirName."""
        return f"{self.topic}-{self.partition}"

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"
