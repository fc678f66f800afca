"""The result of a salvage of one partition: the copy, and the missing records."""

from dataclasses import dataclass, field
from typing import NamedTuple

from logfs.types import TopicPartition


class Gone(NamedTuple):
    """A part of a partition that is not in the copy.

    Attributes:
        file: The damaged file, relative to the data directory.
        position, size_bytes: The bytes that were left out; 0 bytes if only offsets are missing.
        why: The problem.
        first_offset: The first offset that is missing.
        next_offset: The offset at which the records continue; None if no record follows, so that
            the number of those that are missing is not known.
        after_ms: The largest timestamp of the batch before; None if there is none.
        before_ms: The timestamp of the first record after; None if there is none.
        kept_as: The file in the partition directory of the copy that holds the bytes; None if all
            of them are zeros, or if nothing is written.
    """

    file: str
    position: int
    size_bytes: int
    why: str
    first_offset: int
    next_offset: int | None
    after_ms: int | None = None
    before_ms: int | None = None
    kept_as: str | None = None


@dataclass(slots=True)
class SalvagedPartition:
    """A salvaged partition.

    Attributes:
        start_offset, end_offset: The first offset, and the offset after the last record.
        size_bytes: Bytes of batches.
        gone: The missing parts, in the order of the log.
        notes: Other differences from the source, a sentence each.
    """

    topic_partition: TopicPartition
    segments: int = 0
    records: int = 0
    size_bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0
    gone: list[Gone] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
