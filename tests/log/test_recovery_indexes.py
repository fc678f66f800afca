"""Loading with damaged indexes, with a damaged segment table, with a corrupt sealed segment."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from logfs.errors import CorruptRecordError
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.log.reading.reader import TextReader
from logfs.log.segments.table import ENTRY_BYTES
from logfs.services.retention.trimming import trim
from logfs.types import Positions, View
from tests.fakes import START_MS
from tests.fakestate import Stopped
from tests.log.damage import (
    LINES,
    TABLE,
    filled,
    kinds_of_losses,
    segmented,
    start,
)
from tests.log.support import (
    DIRECTORY,
    TP,
    Bench,
    batches_in,
    end_of,
    kept_runs_of,
    lines_of,
    log_name,
    records_in,
)
from tests.log.verifying import check
from tests.records.oracle import Batch, IndexModel

pytestmark = pytest.mark.allow_log(
    "could not be loaded:",
    "has lost",
    "it stays where it is",
    "restart at 0",
    "the one before it is used",
    "the segment is scanned instead",
)

# Indexes


@pytest.fixture
def indexed() -> Bench:
    """Three segments with an index entry for nearly every batch; closed cleanly."""
    lines = [b"%03d" % n + b"x" * (n % 11) for n in range(40)]
    bench = Bench({"internal.segment.bytes": "1200", "index.interval.bytes": "0"})
    for line in lines:
        bench.now_ms += 10
        bench.write(line)
    bench.restart()
    return bench


def everything(bench: Bench) -> list[object]:
    """Whole views, and look-ups of every offset."""
    log = bench.log
    offsets = range(log.log_end_offset + 1)
    return [
        [kept_runs_of(log, view) for view in View],
        [positions_of_offset(log.snapshot, offset) for offset in offsets],
        [offset_for_time(log.snapshot, START_MS + ms) for ms in range(0, 420, 5)],
        [read_at(bench, position) for position in range(0, 400, 7)],
    ]


def read_at(bench: Bench, position: int) -> bytes:
    reader = TextReader(View.TEXT, lambda: bench.log.snapshot)
    out = memoryview(bytearray(12))
    reader.seek(position)
    return bytes(out[: reader.read_into(out, 1 << 40)])


INDEXES = [".index", ".timeindex", ".textindex"]


@pytest.mark.parametrize("suffix", INDEXES)
@pytest.mark.parametrize("damage", [None, b"", b"\xff" * 24, b"\x7f" * 96, b"ab"])
@pytest.mark.parametrize("stop", [Bench.restart, Bench.kill])
def test_indexes_are_hints(
    indexed: Bench, suffix: str, damage: bytes | None, stop: Callable[[Bench], object]
) -> None:
    wanted = everything(indexed)
    indexed.store.close(indexed.now_ms)
    for name in indexed.names(suffix):
        if damage is None:
            indexed.disk.remove(f"{DIRECTORY}/{name}")
        else:
            indexed.put(name, damage)
    indexed.store = indexed.open()
    assert everything(indexed) == wanted
    stop(indexed)
    assert everything(indexed) == wanted
    assert indexed.log.losses == []


@pytest.mark.parametrize(
    ("suffix", "header", "size"), [(".index", 0, 8), (".timeindex", 0, 12), (".textindex", 16, 32)]
)
def test_an_entry_that_points_to_another_batch_is_ignored(
    indexed: Bench, suffix: str, header: int, size: int
) -> None:
    wanted = everything(indexed)
    indexed.store.close(indexed.now_ms)
    place = slice(8, 12) if suffix == ".timeindex" else slice(4, 8)
    for name in indexed.names(suffix):
        data = bytearray(indexed.file(name))
        for at in range(header, len(data) - size, size):
            here = slice(at + place.start, at + place.stop)
            data[here] = data[here.start + size : here.stop + size]
        indexed.put(name, bytes(data))
    indexed.store = indexed.open()
    assert everything(indexed) == wanted


def predicted(data: bytes, base_offset: int) -> dict[str, bytes]:
    """The index files of a segment, by sections 3 and 4 of the format."""
    model = IndexModel(base_offset, 0)
    records = records_in(data)
    for position, b in batches_in(data):
        visible = [r for r in records if b.base_offset <= r.offset <= b.last_offset]
        part = data[position : position + b.size_bytes]
        epoch = b.partition_leader_epoch
        model.add(Batch(part, b.base_offset, b.last_offset, b.max_timestamp, epoch, visible))
    header = b"LFTI" + (1).to_bytes(4, "big") + bytes(8)
    return {
        ".index": model.offset_index,
        ".timeindex": model.time_index + model.time_entry(),
        ".textindex": header + model.text_index,
    }


def index_files(bench: Bench) -> dict[str, bytes]:
    return {name: bench.file(name) for suffix in INDEXES for name in bench.names(suffix)}


def test_a_clean_stop_leaves_indexes_as_kafka_would(indexed: Bench) -> None:
    indexed.store.close(indexed.now_ms)
    wanted: dict[str, bytes] = {}
    for name in indexed.names(".log"):
        files = predicted(indexed.file(name), int(name[:20]))
        wanted |= {name[:20] + suffix: data for suffix, data in files.items()}
    assert index_files(indexed) == wanted
    assert len(wanted) >= 9


def test_a_rebuild_gives_the_indexes_that_appends_gave(indexed: Bench) -> None:
    indexed.store.close(indexed.now_ms)
    before = index_files(indexed)
    indexed.disk.remove(".kafka_cleanshutdown")
    for name in before:
        indexed.disk.remove(f"{DIRECTORY}/{name}")
    indexed.store = indexed.open()
    assert index_files(indexed) == before


# The segment table


def lost_table(bench: Bench) -> str:
    (loss,) = [loss for loss in bench.log.losses if loss.kind == "positions"]
    assert bench.log.snapshot.segments[0].bases == Positions()
    return loss.detail


def test_positions_start_again_without_a_table() -> None:
    bench = segmented()
    start(bench)
    bench.log.advance_log_start_offset(7, bench.now_ms)
    generation, lines = bench.log.generation, lines_of(bench.log)
    bench.store.close(bench.now_ms)
    bench.disk.remove(f"{DIRECTORY}/{TABLE}")
    start(bench)
    assert "is gone" in lost_table(bench)
    assert bench.log.generation != generation
    assert lines_of(bench.log) == lines
    generation = bench.log.generation
    bench.kill()
    assert bench.log.generation == generation
    assert len(bench.log.losses) == 1


def test_a_table_that_does_not_decode_is_a_lost_one() -> None:
    bench = filled()
    bench.put(TABLE, b"XX" + bench.file(TABLE)[2:])
    start(bench)
    assert "does not decode" in lost_table(bench)
    assert lines_of(bench.log) == LINES


def test_a_damaged_entry_after_a_clean_stop_is_a_lost_table() -> None:
    bench = segmented()
    start(bench).store.close(bench.now_ms)
    data = bytearray(bench.file(TABLE))
    data[-3 * ENTRY_BYTES // 2] ^= 1
    bench.put(TABLE, bytes(data))
    start(bench)
    assert "has lost entries" in lost_table(bench)
    assert lines_of(bench.log) == LINES


def test_a_table_that_a_power_cut_left_zeros_in_is_whole_at_later_starts() -> None:
    bench = segmented()
    start(bench)
    bench.restart()
    end = end_of(bench.log, View.TEXT)
    bench.put(TABLE, bench.file(TABLE) + bytes(ENTRY_BYTES))
    bench.new_boot()
    bench.kill()
    bench.restart()
    assert kinds_of_losses(bench) == []
    assert end_of(bench.log, View.TEXT) == end
    assert lines_of(bench.log) == LINES


def test_a_power_cut_may_keep_only_the_second_entry_of_a_roll_after_a_clean_stop() -> None:
    bench = Bench()
    bench.write(*LINES)
    bench.restart()
    whole = len(bench.file(TABLE))
    bench.log.roll(bench.now_ms)
    data = bytearray(bench.file(TABLE))
    assert len(data) == whole + 2 * ENTRY_BYTES
    data[whole : whole + ENTRY_BYTES] = bytes(ENTRY_BYTES)
    bench.put(TABLE, bytes(data))
    end, generation = end_of(bench.log, View.TEXT), bench.log.generation
    bench.crash()
    assert bench.log.losses == []
    assert (end_of(bench.log, View.TEXT), bench.log.generation) == (end, generation)
    assert lines_of(bench.log) == LINES


@pytest.mark.parametrize("size", range(1, 2 * ENTRY_BYTES, 45))
def test_a_torn_entry_loses_nothing(size: int) -> None:
    bench = segmented()
    whole = bench.file(TABLE)
    bench.put(TABLE, whole[:-size])
    bench.new_boot()
    start(bench)
    assert lines_of(bench.log) == LINES
    begin = kept_runs_of(bench.log, View.TEXT)
    assert b"".join(data for _, data in begin) == b"".join(line + b"\n" for line in LINES)
    assert begin[0][0] == 0
    assert bench.log.snapshot.end.positions.text >= sum(len(line) + 1 for line in LINES)
    assert kinds_of_losses(bench) == []


def test_a_newer_table_keeps_the_partition_offline() -> None:
    bench = filled()
    table = bench.file(TABLE)
    bench.put(TABLE, table[:4] + (2).to_bytes(4, "big") + table[8:])
    bench.store = bench.open()
    assert "version 2" in str(bench.log.offline)
    assert bench.file(TABLE)[4:8] == (2).to_bytes(4, "big")


# A corrupt sealed segment


def damaged_inside(at: int) -> tuple[Bench, int]:
    """A clean partition with one bad batch in its first segment; returns its offset too."""
    bench = Bench({"internal.segment.bytes": "1000", "index.interval.bytes": "300"})
    bench.write(*LINES, *LINES)
    bench.store.close(bench.now_ms)
    data = bytearray(bench.file(log_name(0)))
    position, batch = batches_in(bytes(data))[5]
    data[position + at] ^= 0x10
    bench.put(log_name(0), bytes(data))
    return start(bench), batch.base_offset


@pytest.mark.parametrize("at", [65, 17, 10], ids=["record", "crc", "length"])
def test_a_corrupt_batch_stays_and_everything_else_is_read(at: int) -> None:
    bench, bad = damaged_inside(at)
    lines = [line + b"\n" for line in LINES + LINES]
    begin = sum(map(len, lines[:bad]))
    end = begin + len(lines[bad])
    text = b"".join(lines)
    reader = TextReader(View.TEXT, lambda: bench.log.snapshot)
    out = memoryview(bytearray(len(text)))
    assert reader.read_into(out, len(text)) == begin
    assert out[:begin] == text[:begin]
    for position in range(begin, end):
        reader.seek(position)
        with pytest.raises(CorruptRecordError):
            reader.read_into(out, len(text))
    for position in behind_damage(at, end, text):
        reader.seek(position)
        got = reader.read_into(out[:20], len(text))
        assert out[:got] == text[position : position + 20]


def behind_damage(at: int, end: int, text: bytes) -> Iterator[int]:
    """Positions that can be told; where a length is damaged, from the next index entry on."""
    yield from range(end if at != 10 else end + 60, len(text))


@pytest.mark.parametrize("at", [65, 17], ids=["record", "crc"])
def test_offsets_after_a_corrupt_batch_are_found(at: int) -> None:
    bench, bad = damaged_inside(at)
    position = 0
    for offset, line in enumerate(LINES + LINES):
        found = positions_of_offset(bench.log.snapshot, offset)[View.TEXT]
        assert found == position, f"offset {offset}, {bad} is bad"
        position += len(line) + 1


def test_a_corrupt_batch_is_reported_and_keeps_its_place_when_indexes_are_rebuilt() -> None:
    bench, bad = damaged_inside(65)
    before = [positions_of_offset(bench.log.snapshot, o) for o in range(bad + 1, 24)]
    bench.store.close(bench.now_ms)
    for suffix in (".index", ".timeindex", ".textindex"):
        bench.disk.remove(f"{DIRECTORY}/{log_name(0)[:20]}{suffix}")
    start(bench)
    assert kinds_of_losses(bench) == ["corrupt"]
    assert [positions_of_offset(bench.log.snapshot, o) for o in range(bad + 1, 24)] == before
    assert bench.names(".cut") == []


@pytest.mark.allow_log(
    "[loss: cut,",
    "it is done once there is room",
    "the loss is noted there later",
    "the one before it is used",
)
@pytest.mark.parametrize("room", [None, 0, 100])
def test_a_second_stop_after_a_sealed_segment_was_lost_in_part(room: int | None) -> None:
    """The table says how the segment was sealed, and the next one has gone with the power."""
    bench = Bench()
    bench.write(b"a", b"b")
    bench.log.flush()
    bench.store.checkpoint()
    bench.write(b"c")
    bench.log.roll(bench.now_ms)
    bench.disk.open(f"{DIRECTORY}/logfs.segments").sync()
    bench.disk.crash(None)
    bench.new_boot()
    for changes in range(200):
        disk = bench.disk.after_kill()
        disk.stop_before(changes)
        disk.space_bytes = None if room is None else disk.used_bytes + room
        try:
            bench.open(disk)
        except Stopped:
            pass
        else:
            changes = -1
        disk = disk.after_kill()
        disk.space_bytes = None
        log = bench.open(disk).partition(*TP)
        assert lines_of(log) == [b"a", b"b"]
        assert {loss.kind for loss in log.losses} == {"cut"}
        if changes < 0:
            return
    raise AssertionError("it was always stopped")


def use_nothing(bench: Bench) -> None:
    """Leave the log as the start left it."""


def append_one(bench: Bench) -> None:
    bench.write(b"after")


def go_on_after_a_gap(bench: Bench) -> None:
    """Seal the segment without an append."""
    bench.log.replication.continue_at(10, bench.now_ms)
    bench.store.checkpoint()


def roll_and_flush(bench: Bench) -> None:
    bench.log.roll(bench.now_ms)
    bench.write(b"after")
    bench.log.flush()
    bench.store.checkpoint()


@pytest.mark.parametrize("use", [use_nothing, append_one, roll_and_flush, go_on_after_a_gap])
@pytest.mark.parametrize("stop", [Bench.kill, Bench.crash])
@pytest.mark.parametrize("ends_cleanly", [True, False])
def test_indexes_that_a_start_has_rebuilt_outlive_a_later_power_cut(
    use: Callable[[Bench], None], stop: Callable[[Bench], object], ends_cleanly: bool
) -> None:
    bench = Bench({"index.interval.bytes": "0"})
    bench.write(b"one", b"two", b"three")
    bench.log.flush()
    stop(bench)
    use(bench)
    lines = lines_of(bench.log)
    if ends_cleanly:
        bench.store.close(bench.now_ms)
    before = {name: bench.file(name) for name in bench.names("index")}
    bench.disk.crash(None)
    bench.new_boot()
    if ends_cleanly:
        assert {name: bench.file(name) for name in bench.names("index")} == before
    bench.store = bench.open()
    assert set(lines) >= set(lines_of(bench.log)) >= {b"one", b"two", b"three"}
    bench.store.close(bench.now_ms)
    damages = check(bench.disk, boot_id=bench.boot).damages
    assert [found for found in damages if found.file.endswith("index")] == []


def test_a_start_after_a_kill_syncs_the_root_and_two_files_in_each_partition() -> None:
    bench = Bench()
    for _ in range(2):
        bench.write(b"one")
        before = Counter(bench.disk.counts)
        bench.kill()
        done = bench.disk.counts - before
        assert (done["sync"], done["sync_directory"]) == (1, 2)


def test_a_segment_whose_indexes_were_rebuilt_can_be_removed_before_it_is_synced() -> None:
    bench = Bench({"index.interval.bytes": "0"})
    bench.write(b"one", b"two")
    bench.kill()
    bench.log.roll(bench.now_ms)
    bench.write(b"three")
    trim(bench.log, 2, bench.now_ms, at_once=True)
    bench.log.maintain()
    bench.log.flush()
    bench.crash()
    assert lines_of(bench.log) == [b"three"]


def test_a_removed_segment_whose_indexes_were_rebuilt_is_not_synced() -> None:
    bench = Bench({"index.interval.bytes": "0"})
    bench.write(b"one", b"two")
    log = bench.kill()
    log.replication.continue_at(10, bench.now_ms)
    trim(log, 10, bench.now_ms, at_once=True)
    log.maintain()
    log.replication.continue_at(20, bench.now_ms)
    bench.write(b"three")
    assert lines_of(bench.kill()) == [b"three"]
