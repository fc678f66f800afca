"""A log that is compacted, and beside it what Kafka's rules leave, worked out batch by batch.

The rules are those of ``tests.records.compacting``; here they are applied to the whole log: which
keys are known, which segments are cleaned, what is left of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

from logfs.log.partition import PartitionLog
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.log.reading.readable import ReadableLog
from logfs.records.batch import decode_header
from logfs.records.record import Record
from logfs.services.compaction.cleaner import LogCleaner
from logfs.services.compaction.dirtyrange import DirtyRange, find_dirty_range
from logfs.services.compaction.rounds import Cleaned, clean
from logfs.services.compaction.tools import CleaningTools
from logfs.types import View
from tests.fakes import START_MS, FakeDisk
from tests.log.gaps import HoledLog
from tests.log.support import DIRECTORY, batches_in, kept_runs_of, records_in
from tests.records.compacting import Keys, Round

SLOT_BYTES = 24
ROOMY = 1 << 20
_IDS = count(1)
SMALL = {"internal.segment.bytes": "600", "index.interval.bytes": "100"}
VALUES = (b"a value", b"two\nlines\t", b"", b"x" * 30)
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def tools(map_bytes: int = ROOMY, piece_bytes: int = 64) -> CleaningTools:
    return CleaningTools(
        new_id=lambda: next(_IDS).to_bytes(8, "little") * 2,
        clock_s=lambda: 0.0,
        map_bytes=map_bytes,
        piece_bytes=piece_bytes,
    )


def rewrite_next(cleaner: LogCleaner, now_ms: int, tools: CleaningTools) -> bool:
    """Compact the dirtiest log that is due, once; return whether that succeeded."""
    chosen = cleaner.choose(now_ms)
    return chosen is not None and cleaner.rewrite(chosen, now_ms, tools)


def dirty_range_of(log: PartitionLog, first_dirty: int, now_ms: int) -> DirtyRange:
    return find_dirty_range(log.snapshot, log.config, first_dirty, now_ms)


@dataclass
class Expected:
    """What a round has to leave: the batches of all sealed segments, and where it ends."""

    batches: list[bytes]
    offsets: set[int]
    end_offset: int


class CompactedLog(HoledLog):
    """A partition that is compacted.

    Attributes:
        first_dirty: Where the last round ended.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(COMPACT | dict(properties))
        self.first_dirty = 0

    def segments(self) -> list[tuple[int, list[bytes]]]:
        """Base offset and batches of each segment."""
        found = []
        for name in self.bench.names(".log"):
            data = self.bench.file(name)
            rows = [data[at : at + header.size_bytes] for at, header in batches_in(data)]
            found.append((int(name[:20]), rows))
        return found

    def expected(self, limit: int = 1 << 60) -> Expected:
        """Apply the rules."""
        *sealed, (stop, _) = self.segments()
        keys = Keys(limit)
        dirty = [row for row in sealed if not row[1] or _end(row) > self.first_dirty]
        for (_, batches), next_base in zip(
            dirty, [*(base for base, _ in dirty[1:]), stop], strict=True
        ):
            for batch in batches:
                if not keys.is_full:
                    keys.put_batch(batch, self.first_dirty)
            if not keys.is_full:
                keys.latest_offset = next_base - 1
        round_ = Round(
            keys,
            self.bench.now_ms,
            self.log.config.delete_retention_ms,
            upper_bound=stop,
        )
        left: list[bytes] = []
        for base, batches in sealed:
            if base <= keys.latest_offset:
                filtered = (round_.filtered(batch)[0] for batch in batches)
                left += [batch for batch in filtered if batch is not None]
            else:
                left += batches
        return Expected(
            left, {r.offset for r in records_in(b"".join(left))}, keys.latest_offset + 1
        )

    def clean(self, limit: int = 1 << 60) -> Cleaned:
        """Compact once, and have the model follow; ``limit``: keys that the map takes."""
        expected = self.expected(limit)
        done = self.clean_only(limit)
        assert done.end_offset == expected.end_offset
        self.first_dirty = done.end_offset
        *sealed, _ = self.segments()
        assert [batch for _, batches in sealed for batch in batches] == expected.batches
        active = self.log.snapshot.active.base_offset
        self.model.records = [
            k
            for k in self.model.records
            if k.record.offset >= active or k.record.offset in expected.offsets
        ]
        return done

    def clean_only(self, limit: int = 1 << 60) -> Cleaned:
        map_bytes = ROOMY if limit > ROOMY else SLOT_BYTES * (limit + 1)
        factor = 0.9 if limit > ROOMY else limit / (limit + 1) + 1e-9
        dirt = dirty_range_of(self.log, self.first_dirty, self.bench.now_ms)
        work = replace(tools(map_bytes), load_factor=factor)
        return clean(self.log, dirt, self.bench.now_ms, work)


def _end(row: tuple[int, list[bytes]]) -> int:
    return decode_header(row[1][-1]).last_offset + 1


def placed_lines(log: ReadableLog, view: View) -> list[tuple[int, bytes]]:
    """Every kept line of a view with the position at which it is."""
    lines = []
    for begin, data in kept_runs_of(log, view):
        at = begin
        for line in data.splitlines(keepends=True):
            lines.append((at, line))
            at += len(line)
    return lines


def leftovers(disk: FakeDisk) -> list[str]:
    """Files of the partition that a finished compaction does not leave."""
    suffixes = (".cleaned", ".swap", ".deleted", ".tmp")
    return [name for name, _ in disk.list(DIRECTORY) if name.endswith(suffixes)]


def records(first: int, count: int, keys: int = 5) -> list[Record]:
    """Records with few keys, some of them tombstones."""
    return [
        Record(
            0,
            START_MS + n,
            b"k\t%d" % (n * 7 % keys),
            None if n % 11 == 3 else VALUES[n % 4],
            ((b"h", b"%d" % n),) if n % 5 == 0 else (),
        )
        for n in range(first, first + count)
    ]


def filled(count: int = 60, per_batch: int = 3, keys: int = 5, **properties: str) -> CompactedLog:
    log = CompactedLog(SMALL | {name.replace("_", "."): text for name, text in properties.items()})
    for first in range(0, count, per_batch):
        log.append(records(first, min(per_batch, count - first), keys))
    log.roll()
    return log


def check_positions(log: CompactedLog) -> None:
    """Every survivor is found by position, by offset and by time, and nothing else is."""
    for view in View:
        assert kept_runs_of(log.log, view) == log.model.runs(view)
    snapshot = log.log.snapshot
    assert snapshot.end.positions == log.model.end
    for kept in log.model.visible:
        offset, timestamp = kept.record.offset, kept.record.timestamp
        assert positions_of_offset(snapshot, offset) == kept.positions
        assert offset_for_time(snapshot, timestamp) == log.model.offset_for_time(timestamp)
    total = sum(s.lengths.text for s in snapshot.segments[:-1])
    active = snapshot.active.bases.text
    assert total == sum(
        k.ends.text - k.positions.text for k in log.model.visible if k.positions.text < active
    )
