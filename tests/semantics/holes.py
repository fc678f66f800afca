"""Logs with holes, made on a directory that is not mounted, and their retained records."""

from pathlib import Path

from logfs.log.lines.writer import LineWriter
from logfs.log.partition import PartitionLog
from logfs.types import View
from tests.mounting import now_ms, opened_store
from tests.semantics.programs import numbered

LINES_PER_BATCH = 10


class Kept:
    """What is kept of ``orders/0``: the lines and where each begins.

    Attributes:
        lines: The lines, with their newlines.
        starts: Their positions.
        end: The position after the last one.
    """

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.starts: list[int] = []
        self.end = 0

    @property
    def text(self) -> bytes:
        """What ``cat`` prints."""
        return b"".join(self.lines)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Holes, half open, the one at the beginning included."""
        ends = [0, *(s + len(line) for s, line in zip(self.starts, self.lines, strict=True))]
        return [(a, b) for a, b in zip(ends, [*self.starts, self.end], strict=True) if a != b]

    def add(self, lines: list[bytes]) -> None:
        """Note lines that were appended at the end."""
        for line in lines:
            self.lines.append(line)
            self.starts.append(self.end)
            self.end += len(line)

    def drop_first(self, count: int) -> None:
        """Note that lines at the beginning were removed."""
        del self.lines[:count], self.starts[:count]

    def drop_last(self, count: int) -> None:
        """Note that lines at the end were removed; the end stays where it is."""
        del self.lines[-count:], self.starts[-count:]


def make_holes(data: Path) -> Kept:
    """Make the topic orders: thousands of lines in many segments, with holes of many sizes.

    One is at the beginning and ends inside a batch, the others lie in the middle: two next to each
    other, one larger than any buffer, one just before the last line.
    """
    kept = Kept()
    with opened_store(data) as store:
        settings = {"internal.segment.bytes": "50000"}
        store.create_topic("orders", 1, settings, now_ms())
        log = store.partition("orders", 0)
        for kept_lines, lost_lines, size in (
            (3_000, 20, 80),
            (10, 300, 61),
            (700, 1, 200),
            (2_000, 40_000, 300),
            (900, 10, 33),
        ):
            _append(log, kept, numbered(log.log_end_offset, log.log_end_offset + kept_lines, size))
            offset = log.log_end_offset
            lost = lost_lines if lost_lines > 1 else LINES_PER_BATCH
            _append(log, kept, numbered(offset, offset + lost, size))
            log.truncate_to(offset, now_ms())
            kept.drop_last(lost)
        _append(log, kept, [b"the last line\n"])
        log.advance_log_start_offset(1_234, now_ms())
        kept.drop_first(1_234)
    return kept


def _append(log: PartitionLog, kept: Kept, lines: list[bytes]) -> None:
    writer = LineWriter(log, View.TEXT)
    for at in range(0, len(lines), LINES_PER_BATCH):
        part = b"".join(lines[at : at + LINES_PER_BATCH])
        assert writer.write(part, now_ms()) == len(part)
    writer.close(now_ms())
    kept.add(lines)
