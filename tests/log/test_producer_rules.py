"""The pure parts: sequence numbers, snapshots byte for byte, leader epochs, expiry."""

import pytest

from logfs.errors import CorruptIndexError, OutOfOrderSequenceError
from logfs.log.checkpoints import EpochEntry
from logfs.log.epochs import LeaderEpochs
from logfs.log.indexes.txnindex import AbortedTransaction, decode_txn_index, encode_aborted
from logfs.log.producers.snapshots import decode_snapshot, encode_snapshot
from logfs.log.producers.state import LastRecord, ProducerEntry, ProducerState, WrittenBatch
from logfs.log.writing.producerbatches import encode_marker
from logfs.records._indexing import find_produced
from logfs.records.batch import decode_header
from logfs.records.encoded import EncodeOptions, ProducerBatch
from logfs.records.produced import (
    COMMIT,
    MAX_SEQUENCE,
    NO_MARKER,
    ProducedBatch,
    add_to_sequence,
)

TIME_MS = 1_700_000_000_000
SNAPSHOT = bytes.fromhex(
    "0001377fd3e60000000100000000000003e8000200000015000000000000000e000000040000018bcfe56805"
    "00000009ffffffffffffffff"
)
EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")
MARKER = bytes.fromhex(
    "000000000000000700000042000000030274471a4e0030000000000000018bcfe568000000018bcfe568000000"
    "0000000003e80002ffffffff000000012000000008000000010c00000000000900"
)
ABORTED = bytes.fromhex("000000000000000003e800000000000000050000000000000009000000000000000a")


def data(sequence: int, offset: int, count: int = 1, epoch: int = 0) -> ProducedBatch:
    return ProducedBatch(0, offset, offset + count - 1, TIME_MS, 7, epoch, sequence)


# Sequence numbers


@pytest.mark.parametrize(
    ("sequence", "count", "then"),
    [
        (0, 0, 0),
        (5, 3, 8),
        (MAX_SEQUENCE, 1, 0),
        (MAX_SEQUENCE - 1, 4, 2),
        (2, -4, MAX_SEQUENCE - 1),
    ],
)
def test_sequence_numbers_start_again_after_the_largest(
    sequence: int, count: int, then: int
) -> None:
    assert add_to_sequence(sequence, count) == then


def test_a_batch_may_reach_around_the_largest_sequence_number() -> None:
    state = ProducerState()
    state.apply(data(MAX_SEQUENCE - 1, 0, 4))
    assert state.find_duplicate(data(MAX_SEQUENCE - 1, 9, 4)) == (1, 3, 3, TIME_MS)
    assert state.find_duplicate(data(MAX_SEQUENCE - 1, 9, 3)) is None
    state.check(data(2, 4))
    with pytest.raises(OutOfOrderSequenceError, match=r"expected 2"):
        state.check(data(MAX_SEQUENCE, 4))


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    ProducerState().check(data(1234, 0, epoch=5))


def test_after_a_marker_with_a_new_epoch_the_sequence_begins_at_0() -> None:
    state = ProducerState([ProducerEntry(7, epoch=3)])
    state.check(data(0, 0, epoch=3))
    with pytest.raises(OutOfOrderSequenceError):
        state.check(data(1, 0, epoch=3))


def test_a_control_batch_without_a_marker_says_nothing() -> None:
    state = ProducerState()
    state.apply(data(0, 0))
    before = state.last_records()
    assert state.apply(data(-1, 1, epoch=9)._replace(control=NO_MARKER)) is None
    assert state.last_records() == before == {7: LastRecord(0, 0)}


# Expiry


def test_a_producer_is_forgotten_unless_it_has_a_transaction_open() -> None:
    state = ProducerState()
    state.apply(data(0, 0))
    state.apply(data(0, 1)._replace(producer_id=8, is_transactional=True))
    state.expire(TIME_MS + 99, 100)
    assert set(state.last_records()) == {7, 8}
    state.expire(TIME_MS + 100, 100)
    assert set(state.last_records()) == {8}


# Bytes


def test_a_snapshot_is_kafkas_byte_for_byte() -> None:
    entry = ProducerEntry(1000, 2, 9, TIME_MS + 5)
    entry.batches.append(WrittenBatch(21, 14, 4, TIME_MS + 5))
    assert encode_snapshot([entry]) == SNAPSHOT
    assert decode_snapshot(SNAPSHOT, "s") == [entry]
    assert encode_snapshot([]) == EMPTY_SNAPSHOT
    assert decode_snapshot(EMPTY_SNAPSHOT, "s") == []


@pytest.mark.parametrize(
    "torn", [b"", SNAPSHOT[:9], SNAPSHOT[:-1], SNAPSHOT + b"\0", b"\0\2" + SNAPSHOT[2:]]
)
def test_a_torn_snapshot_is_noticed(torn: bytes) -> None:
    with pytest.raises(CorruptIndexError, match="s:"):
        decode_snapshot(torn, "s")


def test_a_marker_is_kafkas_byte_for_byte() -> None:
    options = EncodeOptions(1 << 20, leader_epoch=3)
    producer = ProducerBatch(1000, 2, 0)
    batch, said = encode_marker(7, TIME_MS, options, producer, True, 9)
    assert batch.data == MARKER
    assert batch[1:] == (7, 7, TIME_MS, 0, 0, 0)
    assert find_produced(MARKER, 0, len(MARKER), 0) == [said]
    assert (said.control, said.coordinator_epoch) == (COMMIT, 9)


def test_a_marker_takes_the_time_of_the_log_if_the_topic_does() -> None:
    options = EncodeOptions(1 << 20, log_append_time=True)
    batch, _ = encode_marker(0, TIME_MS, options, ProducerBatch(1, 0, 0), False, 0)
    assert decode_header(batch.data).attributes == 0x38


def test_a_transaction_index_is_kafkas_byte_for_byte() -> None:
    entry = AbortedTransaction(1000, 5, 9, 10)
    assert encode_aborted(entry) == ABORTED
    assert decode_txn_index(ABORTED + ABORTED[:33]) == [entry]


@pytest.mark.parametrize(
    "producer",
    [
        ProducerBatch(-1, 0, 0),
        ProducerBatch(0, -1, 0),
        ProducerBatch(0, 1 << 15, 0),
        ProducerBatch(0, 0, -1),
        ProducerBatch(0, 0, 1 << 31),
    ],
)
def test_numbers_out_of_range_are_refused(producer: ProducerBatch) -> None:
    with pytest.raises(ValueError, match=r"expected|outside"):
        encode_marker(0, TIME_MS, EncodeOptions(1 << 20), producer, True, 0)


# Leader epochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*entry) for entry in entries])


@pytest.mark.parametrize(
    ("epoch", "offset", "then"),
    [
        (5, 30, [(0, 0), (2, 10), (5, 30)]),
        (2, 30, [(0, 0), (2, 10)]),  # nothing new
        (2, 5, [(0, 0), (2, 5)]),
        (3, 10, [(0, 0), (3, 10)]),  # nothing was written in epoch 2
        (1, 30, [(0, 0), (1, 30)]),  # an earlier epoch: what came later was never replicated
        (4, 0, [(4, 0)]),
    ],
)
def test_an_epoch_is_assigned_as_kafka_does(
    epoch: int, offset: int, then: list[tuple[int, int]]
) -> None:
    known = epochs((0, 0), (2, 10))
    assert known.assign(epoch, offset) == (then != [(0, 0), (2, 10)])
    assert known.entries == then
    assert known.latest == max(epoch, 2)


def test_epochs_go_with_the_records_that_were_written_in_them() -> None:
    known = epochs((0, 0), (2, 10), (3, 20), (4, 30))
    assert known.truncate_from_end(20)
    assert known.entries == [(0, 0), (2, 10)]
    assert not known.truncate_from_end(11)
    assert known.truncate_from_start(15)
    assert known.entries == [(2, 15)]
    assert not known.truncate_from_start(15)
    assert known.latest == 4
    assert known.fit(15, 18)
    assert known.entries == [(2, 15), (4, 18)]


def test_where_an_epoch_ends_and_which_one_holds_an_offset() -> None:
    known = epochs((1, 5), (3, 20))
    ends = {epoch: known.end_offset_for(epoch, 99) for epoch in range(-1, 5)}
    assert ends == {-1: None, 0: (0, 5), 1: (1, 20), 2: (1, 20), 3: (3, 99), 4: None}
    assert [known.epoch_for_offset(at) for at in (4, 5, 19, 20, 99)] == [None, 1, 1, 3, 3]
