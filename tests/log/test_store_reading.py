"""Starts that must touch little: read-only, of some partitions, with very many segments."""

import pytest

from logfs.config import StoreConfig
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.names import FileKind, format_segment_file
from logfs.log.reading.lookup import offset_for_time
from logfs.log.reading.reader import TextReader
from logfs.log.segments.table import SegmentState, SegmentTable, TableEntry
from logfs.log.store import LogStore
from logfs.records._encoding import encode_records
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from logfs.types import Positions, TopicPartition, View
from tests.fakes import START_MS, FakeDisk
from tests.log.looking import READING, new_host, opened_by
from tests.log.support import DIRECTORY, TP, Bench, contents, lines_of, log_name

SMALL = {"internal.segment.bytes": "250"}
ONE_THREAD = StoreConfig(num_recovery_threads_per_data_dir=1)


def untidy_disk(seed: int | None) -> FakeDisk:
    """A directory with everything in it that a start would change."""
    bench = Bench(SMALL)
    for topic in ("u", "gone"):
        bench.store.create_topic(topic, 2, {}, bench.now_ms)
    bench.write(*[b"v%02d" % n for n in range(20)])
    bench.log.advance_log_start_offset(7, bench.now_ms)
    bench.log.flush()
    bench.store.checkpoint()
    bench.write(b"w")
    bench.writer().write(b"unfinished", bench.now_ms)
    bench.store.delete_topic("gone", bench.now_ms)
    disk = bench.disk.after_kill() if seed is None else bench.disk.after_crash(seed)
    for name in ("t-0/00000000000000000003.index", "t-0/00000000000000000099.index"):
        disk.open(name, write=True, create=True).truncate(0)
    if seed is None:
        disk.remove("t-0/00000000000000000015.timeindex")
        log_file = disk.open(f"{DIRECTORY}/{log_name(18)}", write=True)
        log_file.pwrite(b"junk" * 10, log_file.size())
    return disk


@pytest.mark.allow_log("are no whole batch", "unfinished line set aside")
@pytest.mark.parametrize("seed", [None, *range(12)])
def test_a_read_only_start_writes_nothing_and_shows_what_recovery_would_leave(
    seed: int | None,
) -> None:
    disk = untidy_disk(seed)
    before = contents(disk)
    disk.counts.clear()
    store = LogStore.open(disk, ONE_THREAD, new_host(), now_ms=START_MS, read_only=True)
    shown = lines_of(store.partition("t", 0))
    losses = [loss.kind for loss in store.partition("t", 0).losses]
    store.remove_due_files(START_MS + 10**9)
    store.close(START_MS)
    assert contents(disk) == before
    assert set(disk.counts) <= READING
    store = LogStore.open(disk, ONE_THREAD, new_host(), now_ms=START_MS)
    recovered = lines_of(store.partition("t", 0))
    assert recovered[: len(shown)] == shown
    assert recovered[len(shown) :] in ([], [b"unfinished"])
    if seed is None:
        assert (shown[0], shown[-1], losses) == (b"v07", b"w", ["cut"])


def test_only_the_named_partitions_are_loaded_and_only_read_only() -> None:
    bench = Bench()
    bench.store.create_topic("u", 3, {}, bench.now_ms)
    bench.store.close(bench.now_ms)
    only = {TopicPartition("u", 1), TopicPartition("no", 0)}
    with pytest.raises(ValueError, match="read-only"):
        LogStore.open(bench.disk, StoreConfig(), new_host(), now_ms=START_MS, only=only)
    seen: set[str] = set()
    bench.disk.before = lambda _operation, name, _size: seen.add(name.partition("/")[0])
    store = LogStore.open(
        bench.disk, StoreConfig(), new_host(), now_ms=START_MS, read_only=True, only=only
    )
    assert (store.topics(), store.partitions("u")) == (["u"], [1])
    assert {name for name in seen if "-" in name and "checkpoint" not in name} == {"u-1"}


# Many segments

COUNT, FIRST = 10_000, 1_000_000


def many_segments() -> FakeDisk:
    """A directory that stopped cleanly, its segments of one record each."""
    bench, entries, bases = Bench(), [], Positions()
    bench.store.close(bench.now_ms)
    bench.disk.remove(f"{DIRECTORY}/{log_name(0)}")
    options = EncodeOptions(1 << 20)
    for offset in range(FIRST, FIRST + COUNT + 1):
        record = Record(offset, START_MS + offset, None, b"value of %d" % offset)
        (batch,) = encode_records([record], offset, START_MS + offset, options).batches
        files = {
            FileKind.LOG: batch.data,
            FileKind.OFFSET_INDEX: b"",
            FileKind.TIME_INDEX: b"",
            FileKind.TEXT_INDEX: TEXT_INDEX.header,
        }
        for kind, data in files.items():
            name = f"{DIRECTORY}/{format_segment_file(offset, kind)}"
            bench.disk.open(name, write=True, create=True).pwrite(data, 0)
        lengths = Positions(batch.text_bytes, batch.tsv_bytes, batch.jsonl_bytes)
        state = SegmentState.SEALED if offset < FIRST + COUNT else SegmentState.CLOSED
        entries.append(
            TableEntry(
                offset, state, bases, bases.plus(lengths), offset + 1, len(batch.data),
                record.timestamp, record.timestamp, lengths,
            )
        )  # fmt: skip
        bases = bases.plus(lengths)
    SegmentTable.create(bench.disk, DIRECTORY, bytes(16), entries)
    return bench.disk


@pytest.mark.slow
def test_ten_thousand_segments_are_opened_one_by_one() -> None:
    disk = many_segments()
    stores: list[LogStore] = []

    def start() -> None:
        stores.append(LogStore.open(disk, ONE_THREAD, new_host(), now_ms=START_MS))

    # Where there is none, empty producer snapshots are written, as by Kafka.
    ends = range(FIRST + COUNT - 1, FIRST + COUNT + 2)
    assert opened_by(disk, start) == {
        f"{DIRECTORY}/{format_segment_file(offset, FileKind.SNAPSHOT)}" for offset in ends
    }
    log = stores[0].partition(*TP)
    assert len(log.snapshot.segments) == COUNT + 1
    wanted = FIRST + 7_777
    line = b"value of %d\n" % wanted
    out = memoryview(bytearray(len(line)))

    def read() -> None:
        reader = TextReader(View.TEXT, lambda: log.snapshot)
        reader.seek((wanted - FIRST) * len(line))
        reader.read_into(out, log.snapshot.end.positions.text)

    prefix = f"{DIRECTORY}/{wanted:020}."
    assert all(name.startswith(prefix) for name in opened_by(disk, read))
    assert bytes(out) == line
    found: list[int | None] = []
    opened = opened_by(disk, lambda: found.append(offset_for_time(log.snapshot, START_MS + wanted)))
    assert found == [wanted]
    assert all(name.startswith(prefix) for name in opened)
    assert opened_by(disk, lambda: stores[0].close(START_MS)) == set()
