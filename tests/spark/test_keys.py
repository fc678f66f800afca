"""The last offset of each key, worked out segment by segment and bucket by bucket.

Without Spark: the three steps one after the other, and the rules of Kafka's cleaner beside them.
They need numpy, which comes with Spark.
"""

from collections import defaultdict
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.log.segments.snapshot import Snapshot
from logfs.records._compaction import OffsetMap
from logfs.records.record import Record
from logfs.services.compaction.dirtyrange import DirtyRange
from logfs.services.compaction.offsetmap import Keys, find_keys
from logfs.services.compaction.rounds import Cleaned, clean
from logfs.services.compaction.tools import CleanerStats, CleaningTools
from tests.fakes import START_MS
from tests.log.compaction import (
    SMALL,
    CompactedLog,
    check_positions,
    dirty_range_of,
    records,
    tools,
)
from tests.log.support import records_in
from tests.log.transactions import ABORT, COMMIT, TransactionLog

pytestmark = pytest.mark.spark


@dataclass
class Steps:
    """Finds keys as the job does.

    Attributes:
        log: Whose.
        buckets: How many.
        keys_at_once: That fit into the map of a segment.
    """

    log: CompactedLog | TransactionLog
    buckets: int
    keys_at_once: int

    def find(
        self, snapshot: Snapshot, dirt: DirtyRange, _tools: CleaningTools, _stats: CleanerStats
    ) -> Keys:
        from logfs.spark.jobs.keys import KeyScan, mark, reduce, scan, segments_of, unpack

        job = KeyScan(bytes(range(16)), self.buckets, 24 * (2 * self.keys_at_once))
        segments = segments_of(snapshot, dirt)
        by_bucket, by_segment = defaultdict(list), defaultdict(list)
        for segment in segments:
            for bucket, blob in scan(self.log.bench.disk, segment, job):
                by_bucket[bucket].append(blob)
        assert all(0 <= bucket < self.buckets for bucket in by_bucket)
        for blobs in by_bucket.values():
            for number, blob in reduce(blobs, [segment.base_offset for segment in segments]):
                by_segment[segments[number].base_offset].append(blob)
        spans = {s.base_offset: s.next_base - s.base_offset for s in segments}
        marked = {base: mark(blobs, spans[base]) for base, blobs in by_segment.items()}
        known = OffsetMap(48, 1, bytes(16))
        known.pass_to(dirt.first_uncleanable - 1)
        return Keys(known, lambda base, _: unpack(marked.get(base), spans[base]))


class SharedOutLog(CompactedLog):
    """A log that is compacted with what the steps find."""

    steps = (4, 3)

    def clean_only(self, limit: int = 1 << 60) -> Cleaned:
        dirt = dirty_range_of(self.log, self.first_dirty, self.bench.now_ms)
        find = Steps(self, *self.steps).find
        return clean(self.log, dirt, self.bench.now_ms, tools(), find)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=3),
    st.integers(1, 7),
    st.integers(2, 20),
)
def test_what_is_left_is_what_the_rules_leave(
    rounds: list[tuple[int, int]], buckets: int, keys_at_once: int
) -> None:
    """Round after round, so that keys of the clean part come again in the dirty one."""
    log, first = SharedOutLog(SMALL), 0
    log.steps = (buckets, keys_at_once)
    for count, keys in rounds:
        for at in range(first, first + count, 3):
            log.append(records(at, min(3, first + count - at), keys))
        first += count
        log.roll()
        log.clean()  # compares with the model, batch by batch
        check_positions(log)


def test_aborted_records_hide_no_earlier_ones() -> None:
    """A transaction that spans segments is known in each of them."""
    ours, theirs = (transactional() for _ in range(2))
    for log, find in ((ours, Steps(ours, 3, 2).find), (theirs, find_keys)):
        dirt = dirty_range_of(log.log, 0, log.bench.now_ms)
        assert len(log.bench.names(".log")) > 4
        work = replace(tools(), new_id=lambda: bytes(16))
        clean(log.log, dirt, log.bench.now_ms, work, find)
    assert files_of(ours) == files_of(theirs)
    kept = [
        (record.key, record.value)
        for name in ours.bench.names(".log")
        for record in records_in(ours.bench.file(name))
        if record.key in {b"a", b"b"}
    ]
    assert kept == [(b"a", b"early"), (b"b", b"committed")]


def files_of(log: TransactionLog) -> dict[str, bytes]:
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".textindex")
    return {name: log.bench.file(name) for s in suffixes for name in log.bench.names(s)}


def transactional() -> TransactionLog:
    log = TransactionLog(SMALL | {"cleanup.policy": "compact"})

    def one(key: bytes, value: bytes) -> list[Record]:
        return [Record(0, START_MS, key, value, ())]

    log.append(one(b"a", b"early"))
    for n in range(12):
        log.produce(7, one(b"a", b"aborted %d" % n))
        log.produce(8, one(b"b", b"committed"))
        log.append(one(b"fill %d" % n, b"x" * 100))
    log.end(7, ABORT, START_MS)
    log.end(8, COMMIT, START_MS)
    log.roll()
    return log
