"""Idempotent and transactional producers of a partition: what they may write, what is kept."""

import errno
import logging

import pytest

from logfs.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    TransactionCoordinatorFencedError,
)
from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.producers.state import LastRecord
from logfs.log.writing.producerbatches import Appended
from logfs.types import IsolationLevel
from tests.log.producing import end, records, write
from tests.log.support import Bench, lines_of

SMALL = {"internal.segment.bytes": "300"}


def stable_end(bench: Bench) -> int:
    return bench.log.snapshot.visible_end(IsolationLevel.READ_COMMITTED).offset


def test_a_batch_that_is_repeated_is_answered_with_its_offsets_and_not_written() -> None:
    bench = Bench()
    assert write(bench, 0, b"a", b"b") == Appended(0, 1)
    assert write(bench, 2, b"c") == Appended(2, 2)
    before = bench.file(f"{0:020}.log")
    assert write(bench, 0, b"a", b"b") == Appended(0, 1, is_duplicate=True)
    assert bench.file(f"{0:020}.log") == before
    assert lines_of(bench.log) == [b"a", b"b", b"c"]


def test_five_batches_are_remembered_and_one_after_a_restart() -> None:
    bench = Bench()
    for sequence in range(6):
        write(bench, sequence, b"x")
    assert write(bench, 1, b"x").is_duplicate
    with pytest.raises(OutOfOrderSequenceError, match=r"sequence 0 .*expected 6"):
        write(bench, 0, b"x")
    bench.restart()
    assert write(bench, 5, b"x") == Appended(5, 5, is_duplicate=True)
    with pytest.raises(OutOfOrderSequenceError):
        write(bench, 4, b"x")
    assert write(bench, 6, b"x") == Appended(6, 6)


def test_a_gap_in_the_sequence_is_refused_and_leaves_the_log_as_it_was() -> None:
    bench = Bench()
    write(bench, 0, b"a")
    with pytest.raises(OutOfOrderSequenceError):
        write(bench, 2, b"c")
    assert lines_of(bench.log) == [b"a"]
    assert write(bench, 1, b"b") == Appended(1, 1)


def test_a_new_epoch_begins_at_0_and_fences_the_old_one_off() -> None:
    bench = Bench()
    write(bench, 0, b"a")
    with pytest.raises(OutOfOrderSequenceError):
        write(bench, 1, b"b", epoch=1)
    write(bench, 0, b"b", epoch=1)
    with pytest.raises(InvalidProducerEpochError, match="epoch 0 is over"):
        write(bench, 1, b"c")


def test_a_plain_writer_and_a_producer_share_the_log() -> None:
    bench = Bench()
    bench.write(b"a")
    assert write(bench, 0, b"b") == Appended(1, 1)
    assert bench.log.append_records(records(b"c", b"d"), bench.now_ms) == Appended(2, 3)
    assert lines_of(bench.log) == [b"a", b"b", b"c", b"d"]


def test_the_records_of_a_producer_have_to_fit_one_batch() -> None:
    bench = Bench({"max.message.bytes": "150"})
    with pytest.raises(RecordTooLargeError):
        write(bench, 0, b"x" * 50, b"y" * 50)
    assert write(bench, 0, b"x" * 50) == Appended(0, 0)


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction() -> None:
    bench = Bench()
    bench.write(b"plain")
    write(bench, 0, b"first", transactional=True)
    write(bench, 0, b"second", producer_id=8, transactional=True)
    bench.write(b"more")
    assert bench.log.last_stable_offset == stable_end(bench) == 1
    assert bench.log.snapshot.unstable is not None
    assert bench.log.snapshot.unstable.positions.text == len(b"plain\n")
    assert end(bench, commit=True) == 4
    assert bench.log.last_stable_offset == 2
    assert end(bench, commit=False, producer_id=8) == 5
    assert bench.log.last_stable_offset == 6
    after = bench.log.snapshot
    assert (after.unstable, after.aborted) == (None, (AbortedTransaction(8, 2, 5, 6),))


def test_an_open_transaction_takes_no_other_records_of_its_producer() -> None:
    bench = Bench()
    write(bench, 0, b"a", transactional=True)
    with pytest.raises(InvalidTxnStateError, match="open since offset 0"):
        write(bench, 1, b"b")


def test_a_marker_of_an_older_coordinator_or_producer_is_refused() -> None:
    bench = Bench()
    write(bench, 0, b"a", transactional=True, epoch=3)
    log = bench.log
    log.appender.end_transaction(7, 3, commit=True, coordinator_epoch=5, now_ms=bench.now_ms)
    with pytest.raises(TransactionCoordinatorFencedError):
        log.appender.end_transaction(7, 3, commit=True, coordinator_epoch=4, now_ms=bench.now_ms)
    with pytest.raises(InvalidProducerEpochError):
        end(bench, commit=True, epoch=2)


def test_a_marker_with_a_new_epoch_forgets_the_batches() -> None:
    bench = Bench()
    write(bench, 0, b"a", transactional=True)
    end(bench, commit=True, epoch=1)
    assert bench.log.appender.last_records_of_producers() == {7: LastRecord(None, 1)}
    assert write(bench, 0, b"b", epoch=1, transactional=True) == Appended(2, 2)


@pytest.mark.parametrize("how", ["restart", "kill", "crash", "reload"])
def test_transactions_are_the_same_after_a_stop(how: str) -> None:
    bench = Bench(SMALL)
    for number in range(6):
        write(bench, number, b"x" * 60, transactional=True)
        write(bench, number, b"y" * 60, producer_id=8, transactional=True)
        end(bench, commit=number % 2 == 0)
        bench.now_ms += 1
    bench.log.flush()
    before = bench.log.snapshot
    last = bench.log.appender.last_records_of_producers()
    assert before.unstable is not None
    assert len(before.aborted) == 3
    assert len(bench.names(".txnindex")) >= 2
    getattr(bench, how)()
    after = bench.log.snapshot
    assert (after.aborted, after.unstable) == (before.aborted, before.unstable)
    assert bench.log.appender.last_records_of_producers() == last
    assert write(bench, 5, b"x" * 60, transactional=True).is_duplicate


def test_truncation_takes_producers_back_and_cuts_the_transaction_index() -> None:
    bench = Bench()
    write(bench, 0, b"a", transactional=True)
    end(bench, commit=False)
    write(bench, 1, b"b", transactional=True)
    end(bench, commit=False)
    bench.log.truncate_to(3, bench.now_ms)
    assert bench.log.snapshot.aborted == (AbortedTransaction(7, 0, 1, 2),)
    assert len(bench.file(f"{0:020}.txnindex")) == 34
    assert bench.log.last_stable_offset == 2
    with pytest.raises(OutOfOrderSequenceError):
        write(bench, 3, b"c", transactional=True)
    assert write(bench, 1, b"b", transactional=True).is_duplicate
    bench.log.truncate_to(0, bench.now_ms)
    assert bench.log.appender.last_records_of_producers() == {}
    assert bench.names(".txnindex") == []


def test_what_is_aborted_goes_with_the_segment_of_its_marker() -> None:
    bench = Bench(SMALL)
    write(bench, 0, b"x" * 100, transactional=True)
    end(bench, commit=False)
    bench.write(b"y" * 200, b"z" * 200)
    second = bench.log.snapshot.segments[1].base_offset
    bench.log.advance_log_start_offset(second, bench.now_ms)
    assert bench.log.snapshot.aborted == ()
    assert any(name.endswith(".txnindex.deleted") for name in bench.names())


def test_a_transaction_that_begins_below_the_log_start_holds_readers_at_the_log_start() -> None:
    bench = Bench()
    write(bench, 0, b"a", transactional=True)
    bench.write(b"b", b"c")
    bench.log.advance_log_start_offset(2, bench.now_ms)
    assert bench.log.last_stable_offset == 2


def test_a_producer_that_was_idle_for_long_is_forgotten_at_run_time_and_by_a_start() -> None:
    bench = Bench()
    write(bench, 0, b"a")
    write(bench, 0, b"b", producer_id=8, transactional=True)
    bench.now_ms += 86_400_000
    bench.store.expire_producers(bench.now_ms)
    assert set(bench.log.appender.last_records_of_producers()) == {8}
    write(bench, 9, b"c")
    bench.now_ms += 86_400_000
    bench.restart()
    assert set(bench.log.appender.last_records_of_producers()) == {8}


def test_leader_epochs_follow_the_log() -> None:
    bench = Bench()
    bench.store.close(bench.now_ms)
    bench.put("leader-epoch-checkpoint", b"0\n2\n0 0\n5 0\n")
    bench.store = bench.open()
    bench.write(b"a", b"b", b"c")
    assert bench.log.encode_options().leader_epoch == 5
    bench.log.advance_log_start_offset(1, bench.now_ms)
    assert bench.log.maintenance_due
    bench.log.maintain()
    assert bench.file("leader-epoch-checkpoint") == b"0\n1\n5 1\n"
    bench.log.truncate_to(1, bench.now_ms)
    assert bench.file("leader-epoch-checkpoint") == b"0\n1\n5 1\n"


@pytest.mark.allow_log("t/0 is offline")
def test_a_write_of_the_transaction_index_that_fails_takes_the_log_offline() -> None:
    bench = Bench()
    write(bench, 0, b"a", transactional=True)
    bench.disk.fail_next_write("*.txnindex")
    with pytest.raises(OSError, match=r"txnindex"):
        end(bench, commit=False)
    assert bench.log.offline is not None
    bench.reload()
    assert bench.log.snapshot.aborted == (AbortedTransaction(7, 0, 1, 2),)


@pytest.mark.allow_log("snapshot could not be written")
def test_a_snapshot_for_which_there_is_no_room_costs_only_time() -> None:
    bench = Bench(SMALL)
    write(bench, 0, b"x" * 200, transactional=True)
    bench.disk.fail_next_write("*.snapshot", errno.ENOSPC)
    write(bench, 1, b"y" * 200, transactional=True)
    assert bench.log.offline is None
    before = bench.log.appender.last_records_of_producers()
    bench.kill()
    assert bench.log.appender.last_records_of_producers() == before == {7: LastRecord(1, 0)}


@pytest.mark.allow_log("snapshot could not be written")
def test_a_snapshot_for_which_there_is_no_room_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(SMALL)
    write(bench, 0, b"x" * 200)
    bench.disk.fail_next_write("*.snapshot", errno.ENOSPC)
    bench.log.roll(bench.now_ms)
    bench.disk.fail_next_write("*.snapshot", errno.ENOSPC)
    bench.store.close(bench.now_ms)
    told = [record for record in caplog.records if "could not be written" in record.getMessage()]
    assert sum(record.levelno >= logging.WARNING for record in told) == 1


def test_the_files_of_a_broker_in_the_root_stay_as_they_are() -> None:
    bench = Bench()
    files = {
        "meta.properties": b"#\n#Sat Nov 21\nnode.id=1\nversion=1\ndirectory.id=abc\n",
        "bootstrap.checkpoint": b"\0\1",
        "cleaner-offset-checkpoint": b"0\n1\nother 0 5\n",
    }
    for name, data in files.items():
        bench.disk.replace(name, data)
    metadata = bench.file("partition.metadata")
    for how in ("restart", "kill", "crash"):
        bench.write(b"a")
        getattr(bench, how)()
        assert {name: bench.disk.read(name) for name in files} == files
        assert bench.file("partition.metadata") == metadata
