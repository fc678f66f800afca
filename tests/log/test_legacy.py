"""Partitions that hold messages of formats v0 and v1: read, recovered, and appended to in v2."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from logfs.errors import CorruptRecordError
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.log.reading.reader import TextReader
from logfs.records.batch import decode_header
from logfs.records.compression import Compression
from logfs.records.record import Record
from logfs.types import Positions, View
from tests.fakes import START_MS
from tests.log.damage import cut_copies, kinds_of_losses, start
from tests.log.legacy import foreign
from tests.log.support import (
    DIRECTORY,
    Bench,
    batches_in,
    kept_runs_of,
    lines_of,
    log_name,
    records_in,
    text_of,
)
from tests.records.messages import message, wrapper
from tests.records.oracle import Batch, IndexModel, lengths, renderings
from tests.records.strategies import logs, visible

pytestmark = pytest.mark.allow_log("are no whole batch", "it stays where it is")

INDEXES = (".index", ".timeindex", ".textindex")


def check_reads(bench: Bench, records: Sequence[Record]) -> None:
    """Every view, every offset and every moment, against what there should be."""
    log, snapshot = bench.log, bench.log.snapshot
    for view in View:
        assert text_of(log, view) == renderings(view, records)
    for offset in range(log.log_start_offset, log.log_end_offset + 1):
        before = [record for record in records if record.offset < offset]
        assert positions_of_offset(snapshot, offset) == Positions(*lengths(before)), offset
    for moment in {record.timestamp + late for record in records for late in (0, 1)}:
        if moment >= 0:
            expected = next((r.offset for r in records if r.timestamp >= moment), None)
            assert offset_for_time(snapshot, moment) == expected, moment
    whole = renderings(View.TEXT, records)
    reader, out = TextReader(View.TEXT, lambda: log.snapshot), memoryview(bytearray(40))
    for position in range(0, len(whole), 1 + len(whole) // 20):
        reader.seek(position)
        got = reader.read_into(out, len(whole))
        assert out[:got] == whole[position : position + 40]


@settings(max_examples=40)
@given(log=logs)
def test_a_log_of_any_formats_is_read_and_appended_to(log: list[Batch]) -> None:
    bench = start(foreign((0, b"".join(batch.data for batch in log))))
    assert bench.log.losses == []
    check_reads(bench, visible(log))
    bench.append([Record(bench.log.log_end_offset, START_MS, b"k", b"appended")])
    appended = records_in(bench.file(bench.names(".log")[-1]))[-1]
    for again in (bench.restart, bench.kill, bench.crash):
        again()
        check_reads(bench, [*visible(log), appended])
    assert bench.log.losses == []


def mixed() -> list[Batch]:
    """A log as upgrades leave it, each batch with a few records."""
    log: list[Batch] = []
    offset = 0
    for number in range(30):
        magic, codec = number // 15, Compression(number % 4)
        count = 4 if codec else 1
        records = [
            Record(o, 1000 + 10 * o if magic else -1, None, b"%03d" % o)
            for o in range(offset, offset + count)
        ]
        data = wrapper(magic, codec, records) if codec else message(magic, records[0])
        last = records[-1]
        log.append(Batch(data, offset, last.offset, last.timestamp, -1, records))
        offset = last.offset + 1
    return log


def test_indexes_are_kafkas() -> None:
    log = mixed()
    bench = start(foreign((0, b"".join(batch.data for batch in log))))
    model = IndexModel(0, 50)
    for batch in log:
        model.add(batch)
    model.time_index += model.time_entry()
    assert bench.file(log_name(0)[:-4] + ".index") == model.offset_index
    assert bench.file(log_name(0)[:-4] + ".timeindex") == model.time_index
    text_index = bench.file(log_name(0)[:-4] + ".textindex")
    assert text_index == TEXT_INDEX.header + model.text_index
    check_reads(bench, visible(log))
    bench.restart()
    before = {suffix: bench.names(suffix) for suffix in INDEXES}
    for name in (name for names in before.values() for name in names):
        data = bench.file(name)
        bench.disk.remove(f"{DIRECTORY}/{name}")
        bench.restart()
        assert bench.file(name) == data
    assert bench.log.losses == []


def test_new_batches_are_v2_and_roll_as_ever() -> None:
    log = mixed()
    data = b"".join(batch.data for batch in log)
    bench = foreign((0, data))
    bench.put("logfs.config", b"internal.segment.bytes=%d\n" % (len(data) + 200))
    start(bench)
    bench.write(b"one", b"two", b"three", b"four")
    assert bench.file(log_name(0))[: len(data)] == data
    first, last = bench.names(".log")
    new = batches_in(bench.file(first)[len(data) :]) + batches_in(bench.file(last))
    assert {header.magic for _, header in new} == {2}
    assert [header.last_offset for _, header in new] == list(range(96, 100))
    assert lines_of(bench.log)[-4:] == [b"one", b"two", b"three", b"four"]
    bench.kill()
    assert lines_of(bench.log)[-4:] == [b"one", b"two", b"three", b"four"]


def test_a_cut_or_flipped_message_is_cut_with_what_follows() -> None:
    log = mixed()
    data = b"".join(batch.data for batch in log)
    position = 0
    for number, batch in enumerate(log):
        kept = visible(log[:number])
        for damaged in (
            data[: position + len(batch.data) - 1],
            data[: position + 20] + bytes([data[position + 20] ^ 1]) + data[position + 21 :],
        ):
            bench = start(foreign((0, damaged)))
            assert bench.file(log_name(0)) == data[:position]
            assert kinds_of_losses(bench) == ["cut"]
            assert list(cut_copies(bench).values()) == [damaged[position:]]
            assert lines_of(bench.log) == [record.value for record in kept]
            assert bench.log.log_end_offset == (kept[-1].offset + 1 if kept else 0)
        position += len(batch.data)


@pytest.mark.parametrize("number", [3, 4, 13, 16, 29])
def test_a_corrupt_message_in_a_sealed_segment_stays_and_all_others_are_read(number: int) -> None:
    log = mixed()
    bench = start(foreign((0, b"".join(batch.data for batch in log))))
    bench.log.roll(bench.now_ms)
    bench.write(b"last")
    bench.store.close(bench.now_ms)
    data = bytearray(bench.file(log_name(0)))
    position = sum(len(batch.data) for batch in log[:number])
    data[position + 14] ^= 0x40
    bench.put(log_name(0), bytes(data))
    for is_rebuilt in (False, True):
        if is_rebuilt:
            bench.store.close(bench.now_ms)
            for suffix in INDEXES:
                bench.disk.remove(f"{DIRECTORY}/{log_name(0)[:-4]}{suffix}")
        start(bench)
        bad = log[number].visible
        begin = sum(len(batch.visible) for batch in log[:number]) * 4
        for record in (record for batch in log for record in batch.visible):
            found = positions_of_offset(bench.log.snapshot, record.offset)[View.TEXT]
            assert found == (begin if record in bad else 4 * record.offset)
        reader = TextReader(View.TEXT, lambda: bench.log.snapshot)
        out = memoryview(bytearray(4))
        for offset in range(bench.log.log_end_offset):
            reader.seek(4 * offset)
            if any(record.offset == offset for record in bad):
                with pytest.raises(CorruptRecordError):
                    reader.read_into(out, 10**6)
            else:
                assert reader.read_into(out, 10**6) == 4
                assert out == (b"%03d\n" % offset if offset <= log[-1].last_offset else b"last")
    assert kinds_of_losses(bench)[-1] == "corrupt"


def test_truncation_cuts_whole_wrappers() -> None:
    log = mixed()
    for offset in range(0, log[-1].last_offset + 1, 3):
        bench = start(foreign((0, b"".join(batch.data for batch in log))))
        bench.log.truncate_to(offset, bench.now_ms)
        kept = [batch for batch in log if batch.last_offset < offset]
        left = b"".join(bench.file(name) for name in bench.names(".log"))
        assert left == b"".join(batch.data for batch in kept)
        assert bench.log.log_end_offset == offset
        assert b"".join(data for _, data in kept_runs_of(bench.log, View.TEXT)) == renderings(
            View.TEXT, visible(kept)
        )
        bench.write(b"again")
        assert lines_of(bench.log)[-1] == b"again"
        bench.kill()
        assert lines_of(bench.log)[-1] == b"again"


def test_a_log_start_inside_a_wrapper() -> None:
    log = mixed()
    bench = foreign((0, b"".join(batch.data for batch in log)))
    inside = next(b for b in log if decode_header(b.data).compression and b.max_timestamp > 0)
    offset = inside.base_offset + 2
    checkpoint = f"0\n1\n{DIRECTORY.rpartition('-')[0]} 0 {offset}\n".encode()
    bench.disk.replace("log-start-offset-checkpoint", checkpoint)
    start(bench)
    assert bench.log.log_start_offset == offset
    assert lines_of(bench.log)[0] == b"%03d" % offset
    assert offset_for_time(bench.log.snapshot, 0) == offset
    assert offset_for_time(bench.log.snapshot, inside.visible[-1].timestamp) == inside.last_offset
