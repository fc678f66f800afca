"""What is said of whole lines that are appended, before and after: their form, what became of them.

Nothing of a log is needed for that: a program that asks the daemon imports no more.
"""

from dataclasses import replace
from typing import NamedTuple

from logfs.records.encoded import EncodeOptions
from logfs.records.record import Header
from logfs.types import View


class LineForm(NamedTuple):
    """What the lines are, and what every record of them gets.

    Attributes:
        view: The rendering they are written in.
        key_delimiter: In text, what is between key and value; empty: text has no keys.
        headers: They go after those of the line.
    """

    view: View = View.TEXT
    key_delimiter: bytes = b""
    headers: tuple[Header, ...] = ()

    def options(self, usual: EncodeOptions) -> EncodeOptions:
        """Return how the lines become batches of a partition whose options these are."""
        return replace(usual, key_delimiter=self.key_delimiter, headers=self.headers)


class LineTarget(NamedTuple):
    """The target of lines, and their form.

    Attributes:
        partition: The partition; None: the key of each line decides.
        unkeyed: Lines without a key go to one partition as long as this number stays the same.
    """

    topic: str
    partition: int | None
    form: LineForm = LineForm()
    unkeyed: int = 0


class AppendedLines(NamedTuple):
    """Lines of a call that are in a partition now.

    Attributes:
        base_offset: The offset of the first of them; None if the writer does not learn it.
        last_offset: The offset of the last, inclusive; None likewise.
    """

    partition: int
    records: int
    base_offset: int | None
    last_offset: int | None


class Lines(NamedTuple):
    """What became of the lines of a call.

    Attributes:
        appended: A row of each partition that got some.
        accepted: Bytes up to where all lines are in the log. 0 after a failure while lines were
            spread over partitions: it is not known then which of them are missing.
        refusal: Why the others are not; None if all are.
    """

    appended: list[AppendedLines]
    accepted: int
    refusal: Exception | None

    @property
    def records(self) -> int:
        """Records that are in the log."""
        return sum(row.records for row in self.appended)
