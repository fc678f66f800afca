import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.records._indexing import IndexBuilder
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.compression import decompress
from logfs.records.record import Record
from tests.records import oracle
from tests.records.oracle import Batch, IndexModel
from tests.records.strategies import NOW_MS, joined, logs, visible

ATTRIBUTES = [
    "file_position",
    "next_offset",
    "max_timestamp",
    "offset_of_max_timestamp",
    "first_timestamp",
    "last_time_entry",
    "text",
    "tsv",
    "jsonl",
    "bytes_since_entry",
    "max_leader_epoch",
]


def state(builder: IndexBuilder) -> dict[str, int]:
    return {name: getattr(builder, name) for name in ATTRIBUTES}


def fed(data: bytes, *, base_offset: int = 0, interval: int = 0) -> IndexBuilder:
    builder = IndexBuilder(base_offset, interval, decompress)
    builder.feed(data, 0, len(data), True)
    return builder


def plain(base_offset: int, value: bytes = b"v", timestamp: int = NOW_MS) -> bytes:
    return encode_batch([Record(base_offset, timestamp, None, value)])


@given(log=logs, interval=st.sampled_from([0, 61, 100, 300]), verify=st.booleans())
def test_agrees_with_the_model(log: list[Batch], interval: int, verify: bool) -> None:
    data = joined(log)
    builder = IndexBuilder(0, interval, decompress)
    model = IndexModel(0, interval)
    for batch in log:
        model.add(batch)
    assert builder.feed(b"##" + data, 2, 2 + len(data), verify) == len(data)
    assert builder.problem is None
    assert builder.take() == (model.offset_index, model.time_index, model.text_index)
    assert builder.take() == (b"", b"", b"")
    assert (builder.text, builder.tsv, builder.jsonl) == model.lengths
    assert builder.leader_epochs == model.epochs
    assert builder.max_leader_epoch == (model.epochs[-1][0] if model.epochs else -1)
    assert builder.max_timestamp == model.max_timestamp
    assert builder.offset_of_max_timestamp == max(model.offset_of_max, 0)
    assert builder.first_timestamp == (log[0].max_timestamp if log else -1)
    assert builder.file_position == len(data)
    assert builder.next_offset == (log[-1].last_offset + 1 if log else 0)
    assert builder.batches == len(log)
    assert builder.final_time_entry() == model.time_entry()
    assert builder.final_time_entry() == b""


@given(log=logs, data=st.data())
def test_pieces_and_restarts_change_nothing(log: list[Batch], data: st.DataObject) -> None:
    whole = fed(joined(log), interval=70)
    builder = IndexBuilder(0, 70, decompress)
    taken = [b"", b"", b""]
    epochs: list[tuple[int, int]] = []
    for batch in log:
        assert builder.feed(batch.data, 0, len(batch.data), True) == len(batch.data)
        if data.draw(st.booleans()):
            taken = [a + b for a, b in zip(taken, builder.take(), strict=True)]
            epochs += builder.leader_epochs
            restored = IndexBuilder(0, 70, decompress)
            restored.restore(**state(builder))
            builder = restored
    taken = [a + b for a, b in zip(taken, builder.take(), strict=True)]
    assert state(builder) == state(whole)
    assert tuple(taken) == whole.take()
    assert epochs + builder.leader_epochs == whole.leader_epochs


@given(log=logs)
def test_adding_is_feeding(log: list[Batch]) -> None:
    builder = IndexBuilder(0, 70, decompress)
    pending = False
    for batch in log:
        pending = builder.add(
            len(batch.data),
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
            batch.leader_epoch,
            *oracle.lengths(batch.visible),
        )
    whole = fed(joined(log), interval=70)
    assert state(builder) == state(whole)
    entries = whole.take()
    assert builder.take() == entries
    assert pending == bool(entries[0])


def test_the_bytes_of_entries() -> None:
    """Reference vectors: offset 55 at 4200, and its time, in a segment that begins at 50."""
    builder = IndexBuilder(50, 4096, decompress)
    builder.add(4200, 50, 54, NOW_MS, 0, 10, 20, 30)
    assert builder.take() == (b"", b"", b"")
    assert builder.add(100, 55, 55, NOW_MS + 5, 0, 1, 1, 1)
    assert builder.take() == (
        bytes.fromhex("0000000500001068"),
        bytes.fromhex("0000018bcfe5680500000005"),
        struct.pack(">iiqqq", 5, 4200, 10, 20, 30),
    )


def test_a_counter_of_just_the_interval_makes_no_entry() -> None:
    builder = IndexBuilder(0, 100, decompress)
    builder.add(100, 0, 0, -1, 0, 1, 1, 1)
    assert not builder.add(1, 1, 1, -1, 0, 1, 1, 1)
    assert builder.add(1, 2, 2, -1, 0, 1, 1, 1)
    assert builder.take()[0] == struct.pack(">ii", 2, 101)


def test_a_restart_forgets_the_counter() -> None:
    builder = IndexBuilder(0, 100, decompress)
    builder.add(200, 0, 0, -1, 0, 1, 1, 1)
    known = state(builder)
    del known["bytes_since_entry"], known["max_leader_epoch"]
    builder.restore(**known)
    assert not builder.add(101, 1, 1, -1, 0, 1, 1, 1)
    assert builder.add(1, 2, 2, -1, 0, 1, 1, 1)


def test_a_tail_that_is_cut() -> None:
    first, second = plain(0), plain(1, b"x" * 100)
    builder = fed(first)
    for cut in range(1, len(second)):
        builder = fed(first + second[:cut])
        assert builder.file_position == len(first)
        assert builder.problem == "incomplete"
        # Kafka looks at no batch of which there is not more than its magic.
        assert builder.wanted == (len(second) if cut > 17 else 0)
    builder.feed(second, 0, len(second), True)
    assert builder.problem is None
    assert builder.wanted == 0
    assert builder.next_offset == 2


@pytest.mark.parametrize("zeros", [18, 61, 4096])
def test_a_tail_of_zeros_is_damage(zeros: int) -> None:
    builder = fed(plain(0) + bytes(zeros))
    assert builder.problem == "batch length 0 is too small"
    assert builder.batches == 1


@pytest.mark.parametrize("zeros", [1, 17])
def test_fewer_zeros_than_a_header_are_cut(zeros: int) -> None:
    assert fed(plain(0) + bytes(zeros)).problem == "incomplete"


def damaged(position: int, *new: int) -> bytes:
    data = bytearray(plain(5))
    data[position : position + len(new)] = bytes(new)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (damaged(16, 3), "unsupported magic 3"),
        (damaged(8, 0, 0, 0, 13), "batch length 13 is too small"),
        (damaged(8, 0, 0, 0, 48), "batch length 48 is too small"),
        (damaged(8, 255), "batch length -16777159 is too small"),
        (damaged(0, 255), "batch header is impossible: base offset"),
        (damaged(23, 255), "batch header is impossible"),
        (damaged(57, 255), "batch header is impossible"),
        (damaged(17, 0, 0, 0, 0), "checksum differs: stored 0x00000000, computed 0x"),
        (damaged(60, 2), "checksum differs"),
        (plain(2), "base offset 2 is below 3"),
    ],
    ids=range(10),
)
def test_why_it_stops(data: bytes, problem: str) -> None:
    first = plain(0) + plain(2)
    builder = IndexBuilder(0, 0, decompress)
    log = first + data + plain(6)
    assert builder.feed(log, 0, len(log), True) == len(first)
    assert builder.problem is not None
    assert builder.problem.startswith(problem)
    assert builder.next_offset == 3


def test_the_first_batch_must_not_be_below_the_segment() -> None:
    assert fed(plain(9), base_offset=10).problem == "base offset 9 is below 10"
    assert fed(plain(10), base_offset=10).problem is None
    assert fed(plain(10 + 2**31 - 1), base_offset=10).problem is None


def test_a_batch_too_far_for_an_index_entry_has_none() -> None:
    for stops in (False, True):
        builder = IndexBuilder(0, -1, decompress)
        builder.stops_at_far = stops
        log = plain(0) + plain(2**31) + plain(2**31 + 1)
        size = len(plain(0))
        assert builder.feed(log, 0, len(log), True) == (size if stops else len(log))
        assert builder.far_position == size
        assert (builder.problem is None) is not stops
        assert len(builder.take()[0]) == 8
        assert builder.next_offset == (1 if stops else 2**31 + 2)


def test_a_batch_after_2_gib_of_a_file_has_no_index_entry() -> None:
    builder = IndexBuilder(0, -1, decompress)
    known, size = state(builder), len(plain(0))
    builder.restore(**{**known, "file_position": 2**31 - 1 - size})
    assert builder.feed(plain(0) + plain(1), 0, 2 * size, True) == 2 * size
    assert builder.far_position == 2**31 - 1
    assert len(builder.take()[0]) == 8


def test_a_place_that_is_passed_over_has_its_length_and_no_entry() -> None:
    builder = IndexBuilder(0, -1, decompress)
    builder.pass_over(100, 7, 1, 2, 3)
    assert builder.take() == (b"", b"", b"")
    assert (builder.file_position, builder.next_offset) == (100, 7)
    assert (builder.text, builder.tsv, builder.jsonl, builder.batches) == (1, 2, 3, 0)


@pytest.mark.parametrize(("position", "new"), [(22, 3), (60, 2), (61, 0)])
def test_records_that_do_not_decode(position: int, new: int) -> None:
    """Without the CRC a batch still has to be one, or its lengths would be made up."""
    data = damaged(position, new)
    builder = IndexBuilder(0, 0, decompress)
    assert builder.feed(data, 0, len(data), False) == 0
    assert builder.problem is not None
    assert builder.problem.startswith("undecodable: ")


def test_codecs_that_do_not_exist() -> None:
    for codec in (5, 6, 7):
        builder = IndexBuilder(0, 0, decompress)
        assert builder.feed(damaged(22, codec), 0, 69, False) == 0
        assert builder.problem == f"undecodable: unknown compression codec {codec}"


@given(log=logs, tail=st.binary(max_size=150))
def test_garbage_is_not_taken_for_a_batch(log: list[Batch], tail: bytes) -> None:
    builder = fed(joined(log) + tail)
    assert builder.file_position == len(joined(log))
    assert (builder.problem is None) == (tail == b"")
    assert (builder.text, builder.tsv, builder.jsonl) == oracle.lengths(visible(log))


def test_batches_larger_than_the_gil_threshold() -> None:
    records = [Record(i, NOW_MS, b"k", b"x" * 1000) for i in range(200)]
    for fields in (BatchFields(), BatchFields(is_log_append_time=True)):
        builder = fed(encode_batch(records, fields))
        assert builder.records == 200
        assert (builder.text, builder.tsv, builder.jsonl) == oracle.lengths(records)


def test_refuses_a_range_outside_the_buffer() -> None:
    with pytest.raises(ValueError, match="not inside"):
        IndexBuilder(0, 0, decompress).feed(b"", 0, 1, True)
