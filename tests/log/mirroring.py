"""A log and a mirror of it on two disks in memory, brought up to date in pieces of any size."""

from collections.abc import Callable

from logfs.log.partition import PartitionLog
from logfs.records._reading import find_offset
from logfs.types import View
from tests.log.producing import batches_of, end, rows_in, write
from tests.log.support import Bench, text_of

SMALL = {"internal.segment.bytes": "500", "index.interval.bytes": "100"}
OTHER = {"internal.segment.bytes": "900", "index.interval.bytes": "60"}
"""The mirror's own: its segments begin elsewhere."""


def begin_epoch(bench: Bench, epoch: int) -> None:
    """Let what is appended next be of a later leader epoch."""
    log = bench.log
    log.state.epochs.assign(epoch, log.log_end_offset)
    log.state.has_new_epochs = True
    log.config = log.config


def some_source(bench: Bench, rounds: int = 3, first: int = 0) -> None:
    """Plain records, transactions, committed and not, an idempotent producer, leader epochs."""
    for number in range(first, first + rounds):
        write(bench, 2 * number, b"x" * 50, b"y" * 50, transactional=True)
        write(bench, number, b"z" * 60, producer_id=8, transactional=True)
        write(bench, number, b"idempotent", producer_id=9)
        bench.write(b"plain %d" % number)
        begin_epoch(bench, 2 * number + 1)
        end(bench, commit=number % 2 == 0)
        if number % 3 == 1:
            end(bench, commit=False, producer_id=8)
        bench.now_ms += 1


def stored(bench: Bench) -> bytes:
    """All batches of a log, one after the other."""
    return b"".join(data for _, data in batches_of(bench.disk, bench.log))


def fetch(source: bytes, offset: int, size: int) -> bytes:
    """What a broker answers: from the batch with an offset on, cut after some bytes."""
    position = find_offset(source, 0, len(source), offset)
    return source[position : position + size]


def catch_up(bench: Bench, source: bytes, sizes: Callable[[], int] = lambda: 400) -> None:
    """Append what the mirror does not have, in pieces; the first batch of a piece is whole."""
    while piece := fetch(source, bench.log.log_end_offset, max(sizes(), 300)):
        bench.log.replication.append_replica(piece, bench.now_ms)


def check_mirror(mirror: Bench, source: Bench) -> None:
    """Compare everything that a reader can see, and what continues after a promotion."""
    ours, theirs = mirror.log, source.log
    assert stored(mirror) == stored(source)
    assert ours.log_end_offset == theirs.log_end_offset
    assert rows_in(ours) == rows_in(theirs)
    assert ours.snapshot.aborted == theirs.snapshot.aborted
    assert ours.last_stable_offset == theirs.last_stable_offset
    for view in View:
        assert text_of(ours, view) == text_of(theirs, view)
    check_epochs(ours, theirs)


def check_epochs(ours: PartitionLog, theirs: PartitionLog) -> None:
    """Each record has the leader epoch that it has at the source."""
    offsets = range(ours.log_start_offset, ours.log_end_offset)
    found, expected = (
        [log.state.epochs.epoch_for_offset(offset) for offset in offsets] for log in (ours, theirs)
    )
    assert found == expected
