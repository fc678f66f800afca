"""What the checks of a dump have found: said when all files are printed, in the tool's words.

    Mismatches in :<path>                                       an .index entry, newest first
      Index offset: <n>, log offset: <n>
    Found timestamp mismatch in :<path>                         a .timeindex entry
      Index timestamp: <ms>, log timestamp: <ms>
    Found out of order timestamp in :<path>
      Index timestamp: <ms>, Previously indexed timestamp: <ms>
    The following indexed offsets are not found in the log.
    Indexed offset: <n>, found log offset: <n>
    Non-consecutive offsets in <path>                           records, newest first
      <n> is followed by <n>

The files of a kind come in the order they were given (the tool's is that of a hash table). Source:
Kafka DumpLogSegments.main, TimeIndexDumpErrors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Pairs = dict[str, list[tuple[int, int]]]
"""Absolute path -> pairs of numbers, in the order of the file."""


@dataclass(slots=True)
class Findings:
    """Collects what is wrong, or only strange, in all files of a dump.

    Attributes:
        is_damaged: Something is wrong, and not only strange: compaction leaves missing offsets and
            empty batches with a timestamp, a broker that runs indexes full of zeros.
    """

    is_damaged: bool = False
    _mismatches: Pairs = field(default_factory=dict)
    _timestamp_mismatches: Pairs = field(default_factory=dict)
    _out_of_order: Pairs = field(default_factory=dict)
    _not_found: Pairs = field(default_factory=dict)
    _gaps: Pairs = field(default_factory=dict)

    def index_mismatch(self, path: str, indexed: int, found: int, *, is_harmless: bool) -> None:
        """An index entry names another last offset than the batch it points to."""
        self.is_damaged |= not is_harmless
        self._mismatches.setdefault(path, []).append((indexed, found))

    def timestamp_mismatch(self, path: str, indexed: int, found: int, *, is_harmless: bool) -> None:
        """A time index entry has another timestamp than its batch."""
        self.is_damaged |= not is_harmless
        self._timestamp_mismatches.setdefault(path, []).append((indexed, found))

    def out_of_order(self, path: str, timestamp: int, before: int) -> None:
        """A time index entry is not larger than the one before it."""
        self.is_damaged = True
        self._out_of_order.setdefault(path, []).append((timestamp, before))

    def not_found(self, path: str, indexed: int, found: int, *, is_harmless: bool) -> None:
        """A time index entry names an offset with which no batch ends."""
        self.is_damaged |= not is_harmless
        self._not_found.setdefault(path, []).append((indexed, found))

    def gaps(self, path: str, pairs: Sequence[tuple[int, int]]) -> None:
        """Offsets of neighbouring records that do not follow each other."""
        if pairs:
            self._gaps.setdefault(path, []).extend(pairs)

    def lines(self) -> Iterator[str]:
        """Yield what to print to stderr."""
        yield from _section(
            "Mismatches in :{}", "  Index offset: {}, log offset: {}", _reversed(self._mismatches)
        )
        yield from _section(
            "Found timestamp mismatch in :{}",
            "  Index timestamp: {}, log timestamp: {}",
            self._timestamp_mismatches,
        )
        yield from _section(
            "Found out of order timestamp in :{}",
            "  Index timestamp: {}, Previously indexed timestamp: {}",
            self._out_of_order,
        )
        yield from _section(
            "The following indexed offsets are not found in the log.",
            "Indexed offset: {}, found log offset: {}",
            self._not_found,
        )
        yield from _section(
            "Non-consecutive offsets in {}", "  {} is followed by {}", _reversed(self._gaps)
        )


def _section(title: str, line: str, found: Pairs) -> Iterator[str]:
    for path, pairs in found.items():
        yield title.format(path)
        for pair in pairs:
            yield line.format(*pair)


def _reversed(found: Pairs) -> Pairs:
    return {path: pairs[::-1] for path, pairs in found.items()}
