"""One record, as every layer above the bytes sees it."""

from typing import NamedTuple

from logfs.types import NO_TIMESTAMP

Header = tuple[bytes, bytes | None]
"""Key and value of a record header. Kafka says the key is UTF-8; bytes survive what is not."""


class Record(NamedTuple):
    """One record of a partition.

    Attributes:
        timestamp: Epoch milliseconds; ``NO_TIMESTAMP`` if the record has none. In a batch with the
            LogAppendTime bit it is the batch's max timestamp.
        key: None is a null key, which differs from an empty one.
        headers: In the order they were written; keys may repeat.

    Source: Kafka Record.
    """

    offset: int
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()

    @property
    def is_tombstone(self) -> bool:
        """Whether compaction reads it as "this key is deleted"."""
        return self.key is not None and self.value is None
