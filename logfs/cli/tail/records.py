"""The records of one partition: the form of their lines, and their order in a merge."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from logfs.cli.tail.order import backwards, with_neighbours
from logfs.library.cursor import Cursor
from logfs.records.record import Record
from logfs.records.templates import RecordTemplate
from logfs.services.views.rendering import rendered
from logfs.types import TopicPartition, View

_RENDERED_RECORDS = 4096


class Printed(NamedTuple):
    """A record, or several of one partition, rendered.

    Attributes:
        time_ms: The time by which it is merged.
        followed: The partition that it is from.
        stop: The offset after it.
        is_apart: Whether it does not follow the record that was printed before it, and a line
            between the two says so.
    """

    time_ms: int
    text: bytes
    followed: "Followed"
    stop: int
    is_apart: bool = False


@dataclass(frozen=True)
class PrintedForm:
    """The form of lines.

    Attributes:
        template: None: that of the view of a PATH.
        has_prefix: Whether a line says which partition it is from.
    """

    template: RecordTemplate | None
    has_prefix: bool

    @property
    def is_plain(self) -> bool:
        """Whether a line is that of the view."""
        return self.template is None and not self.has_prefix

    def lines(
        self, records: list[Record], name: TopicPartition, view: View, mark: str = ":"
    ) -> list[bytes]:
        """Return records of a partition as lines, one for each, with a mark after its name."""
        if self.template is None:
            lines = rendered(records, view)
        else:
            lines = [self.template.format(name, record) for record in records]
        if not self.has_prefix:
            return lines
        if view is View.JSONL and self.template is None:
            begin = f'{{"topic":"{name.topic}","partition":{name.partition},'.encode()
            return [begin + line[1:] for line in lines]
        prefix = f"{name}{mark} ".encode()
        return [prefix + line for line in lines]


@dataclass(eq=False)
class Followed:
    """One partition that is printed.

    Attributes:
        cursor: Everything before it was printed.
        end: The end of the records that were there at the start.
        root: The root of its PATH.
        highest_ms: The largest timestamp so far. A merge keeps the order of a partition: it treats
            a record as if it had this timestamp. Where the last record is first, of -timestamp.
    """

    name: TopicPartition
    cursor: Cursor
    end: int
    view: View
    root: str
    highest_ms: int = -(1 << 63)

    def present(self, form: PrintedForm, *, is_alone: bool) -> Iterator[Printed]:
        """Render what was there at the start.

        Args:
            is_alone: Nothing is merged with it: many records are given as one.
        """
        cursor = self.cursor
        if is_alone and form.is_plain:
            for text in cursor.lines(self.view, self.end):
                yield Printed(0, text, self, cursor.offset)
        while True:
            while records := cursor.read(self.end):
                yield from self.render(records, form, is_alone=is_alone)
            if cursor.offset >= self.end or not cursor.refresh():
                return

    def present_around(self, form: PrintedForm, before: int, after: int) -> Iterator[Printed]:
        """Render the wanted records that were there at the start, and those around them.

        A group has one time in a merge, so the groups of several partitions are not mixed.
        """
        is_divided = form.template is None and self.view is not View.JSONL
        for record, is_wanted, is_apart in with_neighbours(self.cursor, self.end, before, after):
            mark = ":" if is_wanted else "-"
            (line,) = form.lines([record], self.name, self.view, mark)
            if is_apart:
                self.highest_ms = max(self.highest_ms, record.timestamp)
            divides = is_apart and is_divided
            yield Printed(self.highest_ms, line, self, record.offset + 1, divides)

    def present_backwards(self, form: PrintedForm) -> Iterator[Printed]:
        """Render what was there at the start, the last record first."""
        for records in backwards(self.cursor, self.end):
            for record, line in zip(
                records, form.lines(records, self.name, self.view), strict=True
            ):
                self.highest_ms = max(self.highest_ms, -record.timestamp)
                yield Printed(self.highest_ms, line, self, record.offset + 1)

    def count(self) -> int:
        """Count the wanted records that were there at the start."""
        return sum(text.count(b"\n") for text in self.cursor.lines(View.TSV, self.end))

    def render(
        self, records: list[Record], form: PrintedForm, *, is_alone: bool = False
    ) -> Iterator[Printed]:
        """Render the next records."""
        for begin in range(0, len(records), _RENDERED_RECORDS):
            some = records[begin : begin + _RENDERED_RECORDS]
            lines = form.lines(some, self.name, self.view)
            if is_alone:
                yield Printed(0, b"".join(lines), self, some[-1].offset + 1)
                continue
            for record, line in zip(some, lines, strict=True):
                self.highest_ms = max(self.highest_ms, record.timestamp)
                yield Printed(self.highest_ms, line, self, record.offset + 1)
