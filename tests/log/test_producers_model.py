"""Several producers against the plainest model: every answer, and every stop.

More of it: LOGFS_MODEL_EXAMPLES=2000 LOGFS_MODEL_STEPS=100.
"""

import os
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logfs.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    LogfsError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from logfs.log.reading.lookup import positions_of_offset
from logfs.log.writing.producerbatches import Appended
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from tests.log.producing import (
    WRAP,
    History,
    Known,
    batches_of,
    check_aborted_after_trim,
    known_in,
    rows_in,
    snapshots_in,
    txn_indexes_in,
)
from tests.log.support import DIRECTORY, Bench

EXAMPLES = int(os.environ.get("LOGFS_MODEL_EXAMPLES", "50"))
STEPS = int(os.environ.get("LOGFS_MODEL_STEPS", "40"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.allow_log(
        "[loss: cut,", "it is rebuilt", "the one before it is used", "the base offset of the batch"
    ),
]

IDS = st.integers(1, 3)
SEQUENCES = st.sampled_from(["next"] * 12 + ["repeat", "repeat", "gap", "zero", "old"])
EPOCHS = st.sampled_from([0] * 14 + [1, -1])
IS_ODD = st.sampled_from([False] * 12 + [True])
"""Transactional or not, other than the producer is used to."""
COORDINATOR_EPOCHS = st.sampled_from([0] * 12 + [1, 2])
PRODUCE = st.tuples(st.just("produce"), IDS, SEQUENCES, EPOCHS, st.integers(1, 3), IS_ODD)
END = st.tuples(st.just("end"), IDS, st.booleans(), EPOCHS, COORDINATOR_EPOCHS)
START = WRAP - 12
"""Sequence numbers start again soon."""


class ProducerMachine(RuleBasedStateMachine):
    """Every rule does one thing; the model is a replay of the batches on the disk.

    Attributes:
        remembered: By producer, how many of its last batches are surely remembered.
        is_trimmed: Records were given up: of producers before the log start nothing is sure.
    """

    def __init__(self) -> None:
        super().__init__()
        self.remembered: dict[int, int] = {}
        self.is_trimmed = False

    @initialize(size=st.sampled_from(["250", "600", "100000"]), may_trim=st.booleans())
    def create(self, size: str, may_trim: bool) -> None:
        self.may_trim = may_trim
        self.bench = Bench({"internal.segment.bytes": size, "index.interval.bytes": "100"})

    def history(self) -> History:
        return History(batches_of(self.bench.disk, self.bench.log))

    # Writing

    @rule(actions=st.lists(PRODUCE | PRODUCE | END, min_size=1, max_size=6))
    def work(self, actions: list[Any]) -> None:
        for what, *arguments in actions:
            (self.produce if what == "produce" else self.end)(*arguments)

    def produce(
        self, producer_id: int, sequence: str, epoch: int, count: int, is_odd: bool
    ) -> None:
        transactional = is_odd != (producer_id < 3)
        one = self.known(producer_id)
        batch = self.batch(producer_id, one, sequence, epoch, count, transactional)
        repeated = self.repeated(one, batch, count)
        expected: type[LogfsError] | None = None
        last = one.batches[-1][1] if one.batches else -1
        if batch.epoch < one.epoch:
            expected = InvalidProducerEpochError
        elif one.epoch >= 0 and batch.base_sequence != (
            (last + 1) % WRAP if batch.epoch == one.epoch else 0
        ):
            expected = OutOfOrderSequenceError
        elif one.open is not None and not transactional:
            expected = InvalidTxnStateError
        records = [Record(0, self.bench.now_ms, None, b"v%d" % n, ()) for n in range(count)]
        end = self.bench.log.log_end_offset
        try:
            got = self.bench.log.append_records(records, self.bench.now_ms, batch)
        except LogfsError as error:
            found = type(error)
            assert found is expected
            assert repeated is None or repeated[0] >= self.remembered.get(producer_id, 0)
            assert self.bench.log.log_end_offset == end
            return
        if got.is_duplicate:
            assert repeated is not None
            assert repeated[1] == got[:2]
        else:
            assert (expected, repeated, got) == (None, None, Appended(end, end + count - 1))
            kept = self.remembered.get(producer_id, 0) if batch.epoch == one.epoch else 0
            self.remembered[producer_id] = min(kept + 1, 5)

    def known(self, producer_id: int) -> Known:
        if self.is_trimmed:
            return known_in(self.bench.log, producer_id)
        return self.history().known.get(producer_id, Known())

    def batch(
        self,
        producer_id: int,
        one: Known,
        sequence: str,
        epoch: int,
        count: int,
        transactional: bool,
    ) -> ProducerBatch:
        last = one.batches[-1] if one.batches else (0, START - 1 if one.epoch < 0 else -1, 0, 0)
        if sequence == "repeat":
            first = last[0]
        elif sequence == "old" and len(one.batches) > 1:
            first = one.batches[max(-5, -len(one.batches))][0]
        else:
            first = {"gap": last[1] + 3, "zero": 0}.get(sequence, last[1] + 1)
        return ProducerBatch(producer_id, max(one.epoch + epoch, 0), first % WRAP, transactional)

    def repeated(
        self, one: Known, batch: ProducerBatch, count: int
    ) -> tuple[int, tuple[int, int]] | None:
        """How many batches ago the very same was written, and where."""
        wanted = (batch.base_sequence, (batch.base_sequence + count - 1) % WRAP)
        for ago, (first, last, *offsets) in enumerate(reversed(one.batches[-5:])):
            if batch.epoch == one.epoch and (first, last) == wanted:
                return ago, (offsets[0], offsets[1])
        return None

    def end(self, producer_id: int, commit: bool, bump: int, coordinator_epoch: int) -> None:
        one = self.known(producer_id)
        epoch = max(one.epoch + bump, 0)
        try:
            self.bench.log.appender.end_transaction(
                producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch,
                now_ms=self.bench.now_ms,
            )  # fmt: skip
        except InvalidProducerEpochError:
            assert epoch < one.epoch
        except TransactionCoordinatorFencedError:
            assert coordinator_epoch < one.coordinator_epoch
        else:
            assert epoch >= one.epoch
            assert coordinator_epoch >= one.coordinator_epoch
            if epoch != one.epoch:
                self.remembered[producer_id] = 0

    @rule(count=st.integers(1, 4))
    def write_lines(self, count: int) -> None:
        self.bench.write(*[b"line"] * count)

    # Upkeep

    @rule(by_ms=st.integers(1, 50))
    def wait(self, by_ms: int) -> None:
        self.bench.now_ms += by_ms

    @rule()
    def roll(self) -> None:
        self.bench.log.roll(self.bench.now_ms)

    @rule()
    def flush(self) -> None:
        self.bench.log.flush()

    @rule()
    def maintain(self) -> None:
        self.bench.log.maintain()
        self.bench.store.checkpoint()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        log = self.bench.log
        offset = data.draw(st.integers(log.log_start_offset, log.log_end_offset))
        log.truncate_to(offset, self.bench.now_ms)
        self.forget()

    @precondition(lambda self: self.may_trim)
    @rule(data=st.data())
    def advance(self, data: st.DataObject) -> None:
        log = self.bench.log
        offset = data.draw(st.integers(log.log_start_offset, log.log_end_offset))
        before = rows_in(log)
        log.advance_log_start_offset(offset, self.bench.now_ms)
        assert rows_in(log) == before
        self.is_trimmed |= offset > 0

    # Stops

    @rule()
    def restart(self) -> None:
        self.bench.restart()
        self.forget()

    @rule()
    def kill(self) -> None:
        self.bench.kill()
        self.forget()

    @rule(seed=st.none() | st.integers(0, 2**32))
    def crash(self, seed: int | None) -> None:
        self.bench.crash(seed)
        self.forget()

    @rule()
    def reload(self) -> None:
        self.bench.reload()
        self.forget()

    def forget(self) -> None:
        """A snapshot has only the last batch of each producer."""
        for producer_id in self.remembered:
            self.remembered[producer_id] = min(self.remembered[producer_id], 1)

    # Comparing

    @invariant()
    def the_log_knows_what_its_batches_say(self) -> None:
        log, history = self.bench.log, self.history()
        found = rows_in(log)
        assert tuple(txn_indexes_in(self.bench.disk, log)) == log.snapshot.aborted
        if not self.is_trimmed:
            assert found == history.rows
            assert list(log.snapshot.aborted) == history.aborted
            open_since = history.unstable
            assert log.last_stable_offset == (
                log.log_end_offset if open_since is None else open_since
            )
            return
        start = log.log_start_offset
        for producer_id, one in history.known.items():
            # A producer that wrote all its batches after the log start is known completely.
            if all(first >= start for *_, first, _ in one.batches) and len(one.batches) > 5:
                assert found[producer_id] == one.row
        check_aborted_after_trim(log, history)

    @invariant()
    def the_first_unstable_record_stands_where_a_look_up_finds_it(self) -> None:
        snapshot = self.bench.log.snapshot
        if snapshot.unstable is not None and snapshot.unstable.offset > snapshot.start.offset:
            offset, positions = snapshot.unstable
            assert positions == positions_of_offset(snapshot, offset)

    @invariant()
    def every_snapshot_is_whole(self) -> None:
        for offset in snapshots_in(self.bench.disk, DIRECTORY):
            assert offset <= self.bench.log.log_end_offset


ProducerMachine.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None
)
TestProducers = ProducerMachine.TestCase
