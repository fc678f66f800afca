"""The runs of aborted records in a segment, as far as they have been looked up.

Pure. ``logfs.log.reading.aborted`` finds the runs when a reader needs them. They are kept on the
segment: an aborted transaction stays aborted, and its records do not move.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from logfs.log.indexes.textindex import Gap
from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.types import Positions, View

Run: TypeAlias = tuple[Positions, Positions]
"""Half open, relative to where the segment begins."""
Columns: TypeAlias = tuple["array[int]", "array[int]", "array[int]"]
"""Numbers of the runs, view by view."""


def _columns() -> Columns:
    return array("q"), array("q"), array("q")


@dataclass(frozen=True, slots=True)
class AbortedRuns:
    """Runs of aborted records, in order, no two of which touch.

    Attributes:
        truncations: The number of truncations so far; one more may undo an abort.
        source: The aborted transactions of the snapshot for which the runs were last complete.
        known: The transactions whose records in this segment have been looked up.
    """

    truncations: int
    source: tuple[AbortedTransaction, ...] = ()
    known: frozenset[AbortedTransaction] = frozenset()
    begins: Columns = field(default_factory=_columns)
    ends: Columns = field(default_factory=_columns)

    def next_run(self, view: View, length: int) -> Gap | None:
        """Find the first run that ends after a length: the one around it, or the next."""
        number = bisect_right(self.ends[view], length)
        if number == len(self.ends[view]):
            return None
        return Gap(self.begins[view][number], self.ends[view][number])

    def runs(self, view: View) -> list[Gap]:
        """Return all runs in one view."""
        return list(map(Gap, self.begins[view], self.ends[view]))

    def with_runs(
        self,
        source: tuple[AbortedTransaction, ...],
        known: frozenset[AbortedTransaction],
        found: Iterable[Run],
    ) -> "AbortedRuns":
        """Return these runs and others that do not overlap them."""
        begins, ends = _columns(), _columns()
        for begin, end in sorted(chain(self._all(), found)):
            if ends[0] and ends[0][-1] == begin[0]:
                for view in View:
                    ends[view][-1] = end[view]
                continue
            for view in View:
                begins[view].append(begin[view])
                ends[view].append(end[view])
        return AbortedRuns(self.truncations, source, known, begins, ends)

    def _all(self) -> Iterator[Run]:
        begins, ends = zip(*self.begins, strict=True), zip(*self.ends, strict=True)
        for begin, end in zip(begins, ends, strict=True):
            yield Positions(*begin), Positions(*end)


def transaction_table(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Return transactions in the form of the native functions: see ``aborted_ranges``."""
    table = array("q")
    for transaction in sorted(transactions):
        table.extend(transaction[:3])
    return table.tobytes()
