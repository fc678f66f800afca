"""What a dump prints: its options, its streams, and the findings of its checks.

Findings are printed after all files, in the words of Kafka's tool:

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

    Batches that readers refuse in <path>                       not among those of Kafka's tool
      Position: <n>, <problem>

Findings of a kind are in the order of the files (in Kafka's tool, of a hash table).

Source: Kafka DumpLogSegments.main, TimeIndexDumpErrors.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

MAX_INT32 = 2**31 - 1

Parse = Callable[[int, bytes | None, bytes | None], tuple[bytes | None, bytes | None]]
"""(offset, key, value) -> key and value to print; None: print nothing."""


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The tool's options, with its defaults.

    Attributes:
        records: Print a line for every record (``--deep-iteration``).
        payloads: Print key and value of every record (``--print-data-log``).
        metadata: Print the other fields of a record (not ``--skip-record-metadata``).
        parse: Turns keys and values into text; None if they are text.
        verify_only: Check an index without printing it.
        sanity_only: Check only that an index is not obviously wrong.
        max_message_bytes: How much of the log is read for a batch that an index points to.
        max_bytes: How much of a ``.log`` is read.
    """

    records: bool = False
    payloads: bool = False
    metadata: bool = True
    parse: Parse | None = None
    verify_only: bool = False
    sanity_only: bool = False
    max_message_bytes: int = 5 * 1024 * 1024
    max_bytes: int = MAX_INT32


Pairs = dict[str, list[tuple[int, int]]]
"""Absolute path -> pairs of numbers, in the order of the file."""


@dataclass(slots=True)
class Findings:
    """Collects damage and harmless differences in all files of a dump.

    Attributes:
        is_damaged: There is damage. Not damage are the missing offsets and empty batches that
            compaction leaves, and the zeros in the indexes of a running broker.
    """

    is_damaged: bool = False
    _mismatches: Pairs = field(default_factory=dict)
    _timestamp_mismatches: Pairs = field(default_factory=dict)
    _out_of_order: Pairs = field(default_factory=dict)
    _not_found: Pairs = field(default_factory=dict)
    _gaps: Pairs = field(default_factory=dict)
    _refused: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def index_mismatch(self, path: str, indexed: int, found: int, *, is_harmless: bool) -> None:
        """Add an offset index entry that differs from the last offset of its batch."""
        self.is_damaged |= not is_harmless
        self._mismatches.setdefault(path, []).append((indexed, found))

    def timestamp_mismatch(self, path: str, indexed: int, found: int, *, is_harmless: bool) -> None:
        """Add a time index entry that differs from the timestamp of its batch."""
        self.is_damaged |= not is_harmless
        self._timestamp_mismatches.setdefault(path, []).append((indexed, found))

    def out_of_order(self, path: str, timestamp: int, before: int) -> None:
        """Add a time index entry that is not larger than the one before it."""
        self.is_damaged = True
        self._out_of_order.setdefault(path, []).append((timestamp, before))

    def not_found(self, path: str, indexed: int, found: int, *, is_harmless: bool) -> None:
        """Add a time index entry with an offset that is not the last offset of a batch."""
        self.is_damaged |= not is_harmless
        self._not_found.setdefault(path, []).append((indexed, found))

    def refused(self, path: str, position: int, problem: str) -> None:
        """Add a batch whose checksum is right and that no reader uses."""
        self.is_damaged = True
        self._refused.setdefault(path, []).append((position, problem))

    def gaps(self, path: str, pairs: Sequence[tuple[int, int]]) -> None:
        """Add pairs of offsets of neighbouring records that are not consecutive."""
        if pairs:
            self._gaps.setdefault(path, []).extend(pairs)

    def lines(self) -> Iterator[str]:
        """Yield the lines for stderr."""
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
        yield from _section(
            "Batches that readers refuse in {}", "  Position: {}, {}", self._refused
        )


def _section(
    title: str, line: str, found: Mapping[str, Sequence[tuple[object, object]]]
) -> Iterator[str]:
    for path, pairs in found.items():
        yield title.format(path)
        for pair in pairs:
            yield line.format(*pair)


def _reversed(found: Pairs) -> Pairs:
    return {path: pairs[::-1] for path, pairs in found.items()}


class BinaryStream(Protocol):
    """The methods of a binary stream that a dump needs."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Write all of some bytes."""

    def flush(self) -> None:
        """Write what is buffered."""


class Streams(NamedTuple):
    """The output of a dump. ``out`` is buffered: flush it before an error is printed."""

    out: BinaryStream
    err: BinaryStream

    def print(self, line: str) -> None:
        """Print a line to ``out``."""
        self.out.write(encoded(line) + b"\n")

    def complain(self, line: str) -> None:
        """Print a line to ``err``, after all that was printed before."""
        self.out.flush()
        self.err.write(encoded(line) + b"\n")
        self.err.flush()


def encoded(text: str) -> bytes:
    """Return the bytes of a text; those of a path come back as they were."""
    return text.encode("utf-8", "surrogateescape")
