"""Records as the lines that ``logfs tail`` prints: rendered, and saying where they are from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from logfs.library.reading import Cursor
from logfs.library.rendering import rendered
from logfs.records.record import Record
from logfs.types import TopicPartition, View

_RENDERED_RECORDS = 4096


class Printed(NamedTuple):
    """A record, rendered, and the time by which it is merged."""

    time_ms: int
    text: bytes


@dataclass
class Followed:
    """One partition.

    Attributes:
        cursor: Everything before it was printed.
        end: Where what was there at the start ends.
        highest_ms: The largest timestamp so far.
    """

    name: TopicPartition
    cursor: Cursor
    end: int
    view: View
    highest_ms: int = -1

    def render(self, records: list[Record], *, has_prefix: bool) -> Iterator[Printed]:
        """Render records, the next ones of the partition."""
        for begin in range(0, len(records), _RENDERED_RECORDS):
            some = records[begin : begin + _RENDERED_RECORDS]
            lines = rendered(some, self.view)
            if has_prefix:
                lines = self._prefixed(lines)
            for record, line in zip(some, lines, strict=True):
                self.highest_ms = max(self.highest_ms, record.timestamp)
                yield Printed(self.highest_ms, line)

    def _prefixed(self, lines: list[bytes]) -> list[bytes]:
        topic, number = self.name
        if self.view is View.JSONL:
            begin = f'{{"topic":"{topic}","partition":{number},'.encode()
            return [begin + line[1:] for line in lines]
        prefix = f"{self.name}: ".encode()
        return [prefix + line for line in lines]
