"""A batch that has a producer id, as the rules for producers need it: its header, its marker."""

from typing import NamedTuple

MAX_SEQUENCE = 2**31 - 1
NO_SEQUENCE = -1

DATA = -1
"""``ProducedBatch.control`` of a batch of records."""
ABORT = 0
COMMIT = 1
NO_MARKER = -2
"""The kind of a control batch that compaction emptied, or whose record is no marker."""


class ProducedBatch(NamedTuple):
    """What a batch with a producer id says.

    Attributes:
        base_offset, last_offset: The first and the last offset of its records.
        max_timestamp: The largest of its records; for a marker its own.
        producer_id, producer_epoch, base_sequence: As in its header.
        control: ``DATA``, ``ABORT``, ``COMMIT`` or ``NO_MARKER``.
        coordinator_epoch: The coordinator epoch of a marker; else -1.
    """

    file_position: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool = False
    control: int = DATA
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last record. Source: Kafka DefaultRecordBatch.lastSequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset - self.base_offset)


def add_to_sequence(sequence: int, count: int) -> int:
    """Return a sequence number moved on, or with a negative count back; 2**31 - 1 is before 0.

    Source: Kafka DefaultRecordBatch.incrementSequence, decrementSequence.
    """
    return (sequence + count) % (MAX_SEQUENCE + 1)
