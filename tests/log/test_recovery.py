"""What loading makes of damaged directories: cut where Kafka cuts, copied, reported, once."""

import pytest

from logfs.config.store import DECOMPRESSED_MAX_BYTES
from logfs.log import checkpoints, names
from logfs.log.segments.table import SegmentState, SegmentTable
from logfs.records.compression import limit_decompressed
from logfs.types import Positions, TopicPartition, View
from tests.fakes import FakeDisk
from tests.log.damage import GARBAGE, LINES, cut_copies, filled, kinds_of_losses, segmented, start
from tests.log.support import (
    DIRECTORY,
    TP,
    Bench,
    batches_in,
    contents,
    kept_runs_of,
    lines_of,
    log_name,
    records_in,
    text_of,
)

pytestmark = pytest.mark.allow_log(
    "[loss: cut,",
    "are no whole batch",
    "is ignored: it is named like",
    "it stays where it is",
    "the log was cut before it",
    "the one before it is used",
)

# The end of the log


def test_every_length_of_the_log_leaves_the_whole_batches() -> None:
    bench = filled()
    pristine, name = bench.disk, log_name(0)
    data = bench.file(name)
    ends = [position + batch.size_bytes for position, batch in batches_in(data)]
    for size in range(ends[-4], len(data)):
        bench.disk = pristine.after_kill()
        bench.put(name, data[:size])
        start(bench)
        whole = [end for end in ends if end <= size]
        assert bench.file(name) == data[: whole[-1]]
        assert lines_of(bench.log) == LINES[: len(whole)]
        rest = data[whole[-1] : size]
        assert list(cut_copies(bench).values()) == ([rest] if rest.strip(b"\0") else [])
        assert kinds_of_losses(bench) == []  # on the same boot: that batch was never acknowledged


def test_a_flipped_byte_anywhere_cuts_before_its_batch() -> None:
    bench = filled()
    pristine, name = bench.disk, log_name(0)
    data = bench.file(name)
    for position, batch in batches_in(data)[-2:]:
        for at in [*range(8, 12), *range(17, batch.size_bytes, 3)]:
            damaged = bytearray(data)
            damaged[position + at] ^= 0x41
            bench.disk = pristine.after_kill()
            bench.put(name, bytes(damaged))
            start(bench)
            assert lines_of(bench.log) == LINES[: batch.base_offset]
            assert bench.file(name) == data[:position]
            assert list(cut_copies(bench).values()) == [bytes(damaged[position:])]


@pytest.mark.parametrize("tail", [bytes(20), bytes(500), GARBAGE, bytes(100) + GARBAGE])
def test_bytes_after_the_last_batch_are_truncated(tail: bytes) -> None:
    bench = filled()
    data = bench.file(log_name(0))
    bench.put(log_name(0), data + tail)
    start(bench)
    assert bench.file(log_name(0)) == data
    (loss,) = bench.log.losses
    assert (loss.kind, loss.position, loss.bytes) == ("cut", len(data), len(tail))
    assert list(cut_copies(bench).values()) == ([tail] if any(tail) else [])
    bench.write(b"later")
    assert lines_of(bench.log) == [*LINES, b"later"]


def test_positions_of_truncated_records_are_not_used_again() -> None:
    bench = filled()
    shown = kept_runs_of(start(bench).log, View.TEXT)[0][1]
    bench.disk.kill()
    bench.put(log_name(0), bench.file(log_name(0))[:-5])
    start(bench)
    assert bench.log.log_end_offset == len(LINES) - 1
    bench.write(b"later")
    first, second = kept_runs_of(bench.log, View.TEXT)
    assert shown.startswith(first[1])
    assert second[0] >= len(shown)


def without_first_segment(bench: Bench) -> tuple[list[int], Positions]:
    """Take away the first segment, and from the table all but its entry, as a power cut may.

    Returns:
        The base offsets of the other segments, and the positions that no shown size exceeded.
    """
    first, *others = bench.log.snapshot.segments
    table = SegmentTable.load(bench.disk, DIRECTORY)
    entry = table.entries[first.base_offset]
    shown = table.state.reserved
    table.rewrite([entry._replace(state=SegmentState.OPEN, ends=shown)])
    bench.disk.remove(first.name)
    bench.new_boot()
    return [segment.base_offset for segment in others], shown


def test_records_after_a_first_segment_that_is_lost_are_not_shown_at_other_positions() -> None:
    bench = filled({"internal.segment.bytes": "300"})
    bases, shown = without_first_segment(bench)
    bench.store = bench.open()
    assert lines_of(bench.log) == []
    assert bench.log.snapshot.start.positions == shown
    assert [loss.kind for loss in bench.log.losses] == ["cut"] * len(bases)
    assert sorted(bench.names(".cut")) == [names.format_cut_file(base, 0) for base in bases]


def test_positions_of_a_lost_first_segment_are_not_used_again() -> None:
    """The segments after it were flushed, and only the table has lost their entries."""
    bench = filled({"internal.segment.bytes": "300"})
    (base, *_), shown = without_first_segment(bench)
    points = {TopicPartition("t", 0): base}
    checkpoints.write_offsets(bench.disk, names.RECOVERY_POINT_CHECKPOINT, points)
    bench.store = bench.open()
    begin = bench.log.snapshot.start
    assert begin.offset == base
    assert begin.positions == shown


def test_a_loss_is_reported_once() -> None:
    bench = filled()
    bench.put(log_name(0), bench.file(log_name(0)) + GARBAGE)
    start(bench)
    before = bench.log.losses
    assert len(before) == 1
    assert bench.kill().losses == before
    assert bench.restart().losses == before


def test_segments_after_a_truncated_tail_are_set_aside() -> None:
    bench = segmented()
    logs = {name: bench.file(name) for name in bench.names(".log")}
    first, second, *later = sorted(logs)
    position = batches_in(logs[second])[-1][0]
    bench.put(second, logs[second][:-1])
    start(bench)
    kept = records_in(logs[first]) + records_in(logs[second][:position])
    assert lines_of(bench.log) == [record.value for record in kept]
    copies = set(cut_copies(bench).values())
    assert copies == {logs[second][position:-1], *(logs[name] for name in later)}
    assert kinds_of_losses(bench) == ["cut"] * (1 + len(later))
    assert [name for name in bench.names(".log") if name in later] == []
    bench.write(b"later")
    assert lines_of(bench.kill())[-1] == b"later"
    assert len(bench.log.losses) == 1 + len(later)


def test_a_stop_anywhere_in_recovery_changes_nothing() -> None:
    bench = segmented()
    name = sorted(bench.names(".log"))[1]
    bench.put(name, bench.file(name)[:-1])
    shown = sum(len(line) + 1 for line in LINES)
    points: list[FakeDisk] = []
    disk = bench.disk.after_kill()
    disk.before = lambda operation, _name, _size: points.append(disk.after_kill())
    bench.open(disk)
    disk.before = None
    wanted = None
    for point in [disk.after_kill(), *points]:
        start(bench, point)
        copies = sorted(cut_copies(bench).values())
        losses = {(x.kind, x.file, x.position, x.bytes) for x in bench.log.losses}
        found = lines_of(bench.log), copies, losses, len(bench.log.losses)
        wanted = wanted or found
        assert found == wanted
        assert bench.log.snapshot.end.positions.text >= shown


# Read-only


def test_a_read_only_store_writes_nothing_and_shows_what_recovery_leaves() -> None:
    bench = segmented()
    name = sorted(bench.names(".log"))[1]
    bench.put(name, bench.file(name)[:-1])
    for leftover in ("00000000000000000099.log.deleted", "00000000000000000099.log.cleaned"):
        bench.put(leftover, b"x")
    bench.new_boot()
    disk = bench.disk
    before = contents(disk)
    log = bench.open(disk, read_only=True).partition(*TP)
    shown = [kept_runs_of(log, view) for view in View], log.snapshot.end.offset
    assert [loss.kind for loss in log.losses] == ["cut"] * len(log.losses) != []
    assert contents(disk) == before
    start(bench)
    assert shown == ([kept_runs_of(bench.log, v) for v in View], bench.log.snapshot.end.offset)
    assert bench.log.snapshot.end.positions == log.snapshot.end.positions


def test_a_read_only_store_opens_a_directory_without_segments() -> None:
    disk = FakeDisk()
    disk.make_directory("t-0")
    log = Bench(disk=filled().disk).open(disk, read_only=True).partition(*TP)
    assert log.offline is None
    assert text_of(log) == b""
    assert contents(disk) == {}


# Files beside the log


def test_files_that_kafka_removes_go_and_unknown_files_stay() -> None:
    bench = filled()
    gone = [f"{0:020}.log.deleted", f"{0:020}.index.cleaned", f"{77:020}.index"]
    gone.append(f"{0:020}.snapshot")
    stays = ["notes.txt", "logfs.future"]
    for name in gone + stays:
        bench.put(name, b"x")
    start(bench)
    assert set(bench.names()) >= set(stays)
    assert set(bench.names()).isdisjoint(gone)
    assert lines_of(bench.log) == LINES


def test_checkpoints_of_a_clean_stop() -> None:
    bench = start(filled())
    bench.log.advance_log_start_offset(5, bench.now_ms)
    bench.store.close(bench.now_ms)
    rows = {
        "recovery-point-offset-checkpoint": b"0\n1\nt 0 12\n",
        "replication-offset-checkpoint": b"0\n1\nt 0 12\n",
        "log-start-offset-checkpoint": b"0\n1\nt 0 5\n",
    }
    assert {name: bench.disk.read(name) for name in rows} == rows
    assert checkpoints.has_clean_shutdown(bench.disk)
    assert lines_of(start(bench).log) == LINES[5:]


def test_the_clean_shutdown_marker_is_removed_before_anything_is_loaded() -> None:
    bench = start(filled())
    bench.store.close(bench.now_ms)
    seen: list[bool] = []

    def look(_operation: str, name: str, _size: int) -> None:
        if name.startswith(DIRECTORY):
            seen.append(bench.disk.is_durable(".kafka_cleanshutdown"))

    bench.disk.before = look
    bench.open()
    assert seen
    assert not any(seen)


def test_a_log_that_ends_below_its_start_begins_there() -> None:
    bench = start(filled())
    bench.log.advance_log_start_offset(10, bench.now_ms)
    shown = bench.log.snapshot.end.positions
    bench.store.checkpoint()
    assert checkpoints.read_offsets(bench.disk, "log-start-offset-checkpoint")[
        TopicPartition("t", 0)
    ]
    bench.disk.kill()
    bench.put(log_name(0), bench.file(log_name(0))[:300])
    start(bench)
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (10, 10)
    bench.write(b"later")
    assert bench.kill().log_start_offset == 10
    ((position, data),) = kept_runs_of(bench.log, View.TEXT)
    assert data == b"later\n"
    assert position >= shown.text


@pytest.mark.expect_log("is ignored: it is named like a segment file")
@pytest.mark.parametrize(
    "name",
    ["x.log", "42.index", "x.timeindex", "x.txnindex", "x.snapshot", "x.swap", "x.cleaned",
     f"{2**63:020}.log", f"{0:020}.log.txt.swap"],
)  # fmt: skip
def test_names_that_stop_a_broker_are_ignored_with_a_warning(name: str) -> None:
    bench = filled()
    bench.put(name, b"x")
    start(bench)
    assert bench.file(name) == b"x"
    assert lines_of(bench.log) == LINES


def test_other_names_and_directories_are_ignored_silently() -> None:
    bench = filled()
    names = ["lost+found", "remote-log-index-cache", "__cluster_metadata-0", "t-00", "notes",
             f"t-1.{1:032x}-stray", f"t-2.{2:032x}-future", f"t-3.{3:032x}-delete"]  # fmt: skip
    for name in names:
        bench.disk.make_directory(name)
        bench.disk.replace(f"{name}/{log_name(0)}", b"somebody's")
    bench.disk.make_directory(f"{DIRECTORY}/{9:020}.index")
    for name in ("README", "x.deleted", "x.checkpoint.deleted", "logs", f"{0:020}.log.bak"):
        bench.put(name, b"x")
    start(bench)
    assert bench.store.topics() == ["t"]
    assert bench.store.partitions("t") == [0]
    assert lines_of(bench.log) == LINES
    assert f"{0:020}.log.bak" in bench.names()
    left = {name for name, is_directory in bench.disk.list("") if is_directory}
    assert left == {DIRECTORY, *names[:-1]}


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".textindex"])
@pytest.mark.parametrize("is_clean", [False, True])
def test_a_missing_index_is_rebuilt(suffix: str, is_clean: bool) -> None:
    # A broker leaves a missing .timeindex empty after a clean stop, and finds less by time.
    bench = Bench({"index.interval.bytes": "0"})
    bench.write(*LINES)
    bench.restart()
    before = bench.file(log_name(0)[:-4] + suffix)
    if is_clean:
        bench.store.close(bench.now_ms)
    else:
        bench.disk.kill()
    bench.disk.remove(f"{DIRECTORY}/{log_name(0)[:-4]}{suffix}")
    start(bench)
    assert bench.file(log_name(0)[:-4] + suffix) == before
    assert lines_of(bench.log) == LINES
    assert bench.log.losses == []


@pytest.mark.parametrize("number", [0, 5, 11])
def test_a_batch_of_unknown_magic_but_right_checksum_stays(number: int) -> None:
    bench = filled()
    data = bytearray(bench.file(log_name(0)))
    position, _ = batches_in(bytes(data))[number]
    data[position + 16] = 6
    bench.put(log_name(0), bytes(data))
    start(bench)
    assert bench.file(log_name(0)) == data
    assert bench.log.log_end_offset == len(LINES)
    assert kinds_of_losses(bench) == ["corrupt"]
    assert cut_copies(bench) == {}
    bench.write(b"later")
    bench.kill()
    assert bench.file(log_name(0)).startswith(data)
    data[position + 65] ^= 1  # now its checksum differs as well
    bench = filled()
    bench.put(log_name(0), bytes(data))
    start(bench)
    assert kinds_of_losses(bench) == ["cut"]
    assert bench.log.log_end_offset == number


def test_a_batch_that_is_too_large_to_be_decompressed_stays() -> None:
    """Another limit lets it in, so nothing is cut."""
    properties = {"compression.type": "zstd", "max.message.bytes": "4194304"}
    bench = filled(properties, [b"before", b"v" * (2 << 20), b"behind"])
    data = bench.file(log_name(0))
    limit_decompressed(1 << 20)
    try:
        start(bench)
        assert bench.file(log_name(0)) == data
        assert kinds_of_losses(bench) == ["corrupt"]
        assert "logfs.decompressed.max.bytes" in bench.log.losses[0].detail
        assert cut_copies(bench) == {}
    finally:
        limit_decompressed(DECOMPRESSED_MAX_BYTES)
    position, _ = batches_in(data)[1]
    bench = filled(properties, [b"before", b"v" * (2 << 20), b"behind"])
    bench.put(log_name(0), data[: position + 70] + b"?" + data[position + 71 :])
    start(bench)
    assert kinds_of_losses(bench) == ["cut"]


def test_a_segment_that_was_cut_is_scanned_if_the_table_has_it_longer() -> None:
    """A start cuts a log after a power cut, and is killed before there is room for the table."""
    bench = Bench()
    bench.write(b"durable")
    bench.log.flush()
    bench.store.checkpoint()
    bench.write(b"lost")
    bench.log.roll(bench.now_ms)
    bench.write(b"lost too")
    _, (second, _) = batches_in(bench.file(log_name(0)))
    bench.put(log_name(0), bench.file(log_name(0))[:second])
    for name, _ in bench.disk.list(DIRECTORY):
        if name.startswith(f"{2:020}"):
            bench.disk.remove(f"{DIRECTORY}/{name}")
    bench.put(log_name(1), b"")
    assert lines_of(bench.kill()) == [b"durable"]
    bench.write(b"more")
    assert lines_of(bench.log) == [b"durable", b"more"]
