"""Every reader and every kind of store has the same verdict on each batch."""

import io
import re
import subprocess
from pathlib import Path

import pytest

from logfs.errors import CorruptRecordError
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.log.reading.readable import ReadableLog
from logfs.log.reading.reader import TextReader
from logfs.log.reading.records import RecordReader
from logfs.records._reading import RecordSearch
from logfs.records.batch import encode_batch
from logfs.records.columns import Columns
from logfs.records.record import Record
from logfs.services.dumping.dump import dump_file
from logfs.services.dumping.output import DumpOptions, Findings, Streams
from logfs.services.dumping.source import DumpFile
from logfs.services.following.files import FollowedSegments
from logfs.services.scanning.ranges import OffsetRange, RangeReader
from logfs.services.scanning.stored import StoredLog
from logfs.services.views.matched_lines import LineReader
from logfs.types import IsolationLevel, View
from tests.compiling import compiled
from tests.fakes import START_MS, FakeDisk
from tests.log.foreign import Follower
from tests.log.legacy import foreign
from tests.log.support import TP, Bench, lines_of, log_name
from tests.log.verdicts import CLEAN, Directory, Seen, directories, see
from tests.log.verifying import check
from tests.records.arrow import numbers
from tests.records.oracle import lengths, renderings

SEEDS = range(150)
EVERYTHING = IsolationLevel.READ_UNCOMMITTED

pytestmark = pytest.mark.allow_log(
    "are no whole batch",
    "is split into segments at",
    "it stays where it is",
    "positions are kept in memory only",
    "positions start again at 0",
    "the log was cut before it",
)


def bytes_read(log: ReadableLog, view: View, seen: Seen, piece: int) -> list[tuple[int, bytes]]:
    """Read a view from start to end, past each place that gives an error."""
    reader, out = TextReader(view, lambda: log.snapshot), memoryview(bytearray(piece))
    end, skips = log.snapshot.end.positions[view], {at[view]: n for _, _, at, n in seen.refused}
    runs, position = [(0, b"")], reader.seek(0)
    while position < end:
        try:
            got = reader.read_into(out, end)
            assert got, f"nothing at {position} of {end}"
            runs[-1] = runs[-1][0], runs[-1][1] + bytes(out[:got])
            position = reader.position
        except CorruptRecordError as error:
            size = error.size_bytes
            log.note_corrupt(error, START_MS)
            with pytest.raises(CorruptRecordError):
                reader.read_into(out, end)
            assert size == skips[position]
            position = reader.seek(position + skips[position])
            runs.append((position, b""))
    return runs


def compare(log: ReadableLog, seen: Seen) -> None:
    """Compare what the readers of a log give with what may be seen."""
    assert log.log_end_offset == seen.next_offset
    assert log.snapshot.end.positions == seen.ends
    for view in View:
        for piece in (1 << 16, 13):
            assert bytes_read(log, view, seen, piece) == seen.bytes_of(view)
        for position, data in seen.bytes_of(view):
            for at in {0, len(data) // 2, max(len(data) - 1, 0)} if data else ():
                reader, out = TextReader(view, lambda: log.snapshot), bytearray(len(data) - at)
                reader.seek(position + at)
                got = reader.read_into(memoryview(out), position + len(data))
                assert out[:got] == data[at : at + got] != b""
    losses = [loss for loss in log.losses if loss.kind == "corrupt"]
    assert [loss.bytes for loss in losses] == [size for *_, size in seen.refused]
    for begin, records in seen.runs:
        for record in records[:: max(len(records) // 3, 1)]:
            if record.offset == log.log_start_offset:
                continue  # its address is the start of the log
            before = [one for one in records if one.offset < record.offset]
            assert positions_of_offset(log.snapshot, record.offset) == begin.plus(lengths(before))


def compare_by_offset(log: ReadableLog, seen: Seen) -> None:
    """Compare what the readers of records give, which go by offset."""
    whole = [record for record in seen.records if record.offset < seen.next_offset]
    assert offsets_of(RecordReader(lambda: log.snapshot, 0), seen) == [r.offset for r in whole]
    lines = b""
    reader = LineReader(lambda: log.snapshot, 0, EVERYTHING, RecordSearch(), View.JSONL, threads=1)
    for _ in range(200):
        try:
            more = reader.read(seen.next_offset)
        except CorruptRecordError:
            reader.offset = _after(reader.offset, seen)
            continue
        if not more and reader.offset >= seen.next_offset:
            break
        lines += more
    assert lines == renderings(View.JSONL, whole)
    for record in whole[:: max(len(whole) // 4, 1)]:
        if record.offset > log.log_start_offset:
            assert RecordReader(lambda: log.snapshot, record.offset).read()[0] == record


def _after(offset: int, seen: Seen) -> int:
    """Return the first offset of a record at or after one at which a reader has met an error."""
    return next((r.offset for r in seen.records if r.offset >= offset), seen.next_offset)


def offsets_of(reader: RecordReader, seen: Seen) -> list[int]:
    """Read on with the next record after each error; there is one where a record follows."""
    found: list[int] = []
    errors = 0
    for _ in range(200):
        try:
            records = reader.read()
        except CorruptRecordError:
            errors += 1
            reader.offset = _after(reader.offset, seen)
            continue
        if not records and reader.offset >= seen.next_offset:
            break
        found += [record.offset for record in records]
    is_followed = any(records for _, records in seen.runs[1:])
    assert errors >= is_followed
    assert not errors or seen.refused
    return found


def store(directory: Directory, kind: str, *, is_clean: bool) -> tuple[Bench, ReadableLog]:
    bench = directory.left(is_clean=is_clean)
    if kind == "followed":
        return bench, Follower(bench.disk, None).settle()
    if kind == "cached":
        Follower(bench.disk, cache := FakeDisk()).restart()
        return bench, Follower(bench.disk, cache).settle()
    bench.store = bench.open(read_only=kind == "read-only")
    if kind == "restarted":
        bench.restart()
    elif kind == "killed":
        bench.kill()
    return bench, bench.log


KINDS = ("written", "read-only", "restarted", "killed", "followed", "cached")


@pytest.mark.parametrize(
    ("kind", "is_clean"),
    [(kind, is_clean) for kind in KINDS for is_clean in (True, False) if kind != "killed"]
    + [("killed", False)],
)
def test_every_view_of_every_store_shows_the_batches_that_are_used(
    kind: str, is_clean: bool
) -> None:
    for seed in SEEDS:
        directory = directories(seed)
        seen = see(directory, is_clean=is_clean)
        _, log = store(directory, kind, is_clean=is_clean)
        try:
            compare(log, seen)
            compare_by_offset(log, seen)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def rows_of(disk: FakeDisk, start: int, end: int) -> list[int]:
    """Read a range as Spark does; raise CorruptRecordError."""
    reader = RangeReader(
        disk,
        OffsetRange(TP, start, end),
        Columns.OFFSET,
        hides_aborted=False,
        on_loss=lambda *_: None,
    )
    found: list[int] = []
    for columns in reader.columns():
        assert columns.offsets is not None
        found += numbers("q", columns.rows, columns.offsets)
    return found


def test_spark_reads_the_records_that_the_mount_shows() -> None:
    for seed in SEEDS:
        directory = directories(seed)
        seen, disk = see(directory, is_clean=True), directory.left(is_clean=True).disk
        log = StoredLog(disk, FollowedSegments(disk, 4), TP)
        log.refresh(START_MS)
        end = log.latest(EVERYTHING, START_MS)
        assert end == seen.next_offset, seed
        begun = {base for base, position, _, _ in seen.refused if position == 0}
        offset, found = log.earliest(), list[int]()
        for number, (_, records) in enumerate(seen.runs):
            if not records:
                continue
            start = records[0].offset if number else offset
            if start in begun:  # of a segment: a job that begins there meets the batch before it
                with pytest.raises(CorruptRecordError):
                    rows_of(disk, start, records[-1].offset + 1)
                found += [record.offset for record in records]
            else:
                found += rows_of(disk, start, records[-1].offset + 1)
        assert found == [record.offset for record in seen.records], seed
        if any(records for _, records in seen.runs[1:]):
            with pytest.raises(CorruptRecordError):
                rows_of(disk, offset, end)


def test_a_moment_leads_past_the_batches_that_are_refused() -> None:
    for seed in SEEDS:
        directory = directories(seed)
        seen = see(directory, is_clean=True)
        undecodable = any(one.records is None for _, made in directory.segments for one in made)
        for kind in ("written", "followed"):
            _, log = store(directory, kind, is_clean=True)
            for time in {
                record.timestamp for record in seen.records[:: len(seen.records) // 5 + 1]
            }:
                first = next(r.offset for r in seen.records if r.timestamp >= time)
                found = offset_for_time(log.snapshot, time)
                assert found == first or (undecodable and found is not None and found < first), seed


@pytest.mark.parametrize("kind", ["foreign", "written"])
def test_verify_names_the_batches_that_readers_refuse(kind: str) -> None:
    for seed in SEEDS:
        directory = directories(seed)
        seen, bench = see(directory, is_clean=True), directory.left(is_clean=True)
        expected = [(f"{base:020}.log", at) for base, at, _, _ in seen.refused]
        if kind == "written":
            bench.store = bench.open()
            log = bench.log
            expected = [
                (loss.file.rpartition("/")[2], loss.position)
                for loss in log.losses
                if loss.kind == "corrupt"
            ]
            bench.store.close(bench.now_ms)
        findings = [
            (finding.file.rpartition("/")[2], finding.position)
            for finding in check(bench.disk).findings
            if finding.file.endswith(".log") and "cannot be used" in finding.problem
        ]
        assert sorted(findings) == sorted(expected), seed


@pytest.mark.parametrize("prints_records", [False, True])
def test_a_dump_names_the_batches_whose_offsets_go_back(prints_records: bool) -> None:
    options = DumpOptions(records=prints_records, payloads=prints_records)
    for seed in SEEDS:
        directory, named, expected = directories(seed), list[str](), list[str]()
        disk = directory.left(is_clean=True).disk
        for base, batches in directory.segments:
            name, findings = f"{TP.directory}/{log_name(base)}", Findings()
            streams = Streams(io.BytesIO(), io.BytesIO())
            try:
                dump_file(DumpFile(disk, name, name, name), options, streams, findings)
            except CorruptRecordError:
                assert any(one.records is None for one in batches)
                continue
            lines = [line for line in findings.lines() if line.startswith("  Position: ")]
            found = [re.sub(r"base offset \d+ is", "it is", line) for line in lines]
            assert findings.is_damaged == bool(found)
            named += found
            after, position = base, 0
            for one in batches:
                if one.first < after:
                    expected.append(f"  Position: {position}, it is below {after}")
                else:
                    after = one.last + 1
                position += len(one.data)
        assert named == expected, seed


def test_verify_says_which_batches_the_next_start_cuts() -> None:
    for seed in SEEDS:
        directory = directories(seed)
        stay = {(base, at) for base, at, _, _ in see(directory, is_clean=False).refused}
        for finding in check(directory.left(is_clean=False).disk).findings:
            if finding.file.endswith(".log") and "cannot be used" in finding.problem:
                place = int(finding.file.rpartition("/")[2][:20]), finding.position
                cuts = finding.remedy.startswith("the next start cuts the log here")
                assert cuts == (place not in stay), seed


def test_indexes_that_are_rebuilt_lead_to_the_same_positions() -> None:
    for seed in SEEDS:
        directory = directories(seed)
        seen = see(directory, is_clean=True)
        bench, _ = store(directory, "written", is_clean=True)
        bench.store.close(bench.now_ms)
        for name in bench.names(".textindex") + bench.names(".index"):
            bench.disk.remove(f"{TP.directory}/{name}")
        bench.store = bench.open()
        compare(bench.log, seen)


def test_the_native_reader_gives_no_byte_of_a_batch_that_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = compiled("cursor", "-O1", Path(__file__).parents[1] / "fuzz" / "cursor.c")
    for seed in SEEDS[:60]:
        directory = directories(seed)
        base, batches = next((one for one in directory.segments if one[1]), (0, []))
        first = see(Directory([(base, batches)]), is_clean=True).runs[0][1]
        if (batches and batches[0].records is None) or not first:
            continue
        path.write_bytes(b"".join(one.data for one in batches))
        for view in View:
            command = [str(program), str(path), str(int(view)), str(seed), "0", "0"]
            found = subprocess.run(command, check=True, capture_output=True).stdout
            assert renderings(view, first).startswith(found), seed


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("is_own", [True, False])
def test_a_read_only_mount_shows_what_a_start_would_leave_of_a_damaged_log(
    segment: int, is_clean: bool, is_own: bool
) -> None:
    """After a wrong checksum a recovery cuts; after a clean stop what follows is read."""
    batches = [encode_batch([Record(n, START_MS, None, b"line %d" % n)]) for n in range(20)]
    batches[5 + 10 * segment] = batches[5 + 10 * segment][:-1] + b"\7"
    bench = foreign((0, b"".join(batches[:10])), (10, b"".join(batches[10:])))
    if is_own:
        sound = [encode_batch([Record(n, START_MS, None, b"line %d" % n)]) for n in range(20)]
        bench = foreign((0, b"".join(sound[:10])), (10, b"".join(sound[10:])))
        bench.store = bench.open()
        bench.store.close(bench.now_ms)
        base = 10 * segment
        bench.put(log_name(base), b"".join(batches[base : base + 10]))
        bench.disk.remove(CLEAN)
        bench.disk.replace("recovery-point-offset-checkpoint", b"0\n1\nt 0 0\n")
    if is_clean:
        bench.disk.replace(CLEAN, b"{}")
    disk = bench.disk.after_kill()
    followed = Follower(bench.disk).store.partition(*TP)
    reader = bench.open(read_only=True).partition(*TP)
    bench.store = bench.open(disk)
    damage = [loss for loss in bench.log.losses if loss.kind in ("cut", "corrupt")]
    for log in (followed, reader):
        assert log.log_end_offset == bench.log.log_end_offset
        for offset in range(20):
            expected = lines_from(bench.log, offset)
            assert lines_from(log, offset) == expected
        assert {loss.file for loss in log.losses} >= {loss.file for loss in damage}


def lines_from(log: ReadableLog, offset: int) -> bytes:
    """Read from an offset up to the end, or an error."""
    reader, out = TextReader(View.TEXT, lambda: log.snapshot), bytearray(1000)
    start, end = positions_of_offset(log.snapshot, offset).text, log.snapshot.end.positions.text
    reader.seek(start)
    try:
        return bytes(out[: reader.read_into(memoryview(out), end)]) if start < end else b""
    except CorruptRecordError:
        return b"error"


def test_a_log_that_is_followed_from_a_stop_on_continues_with_the_segments_of_a_new_start() -> None:
    bench = Bench({"internal.segment.bytes": "250"})
    bench.write(b"one")
    bench.store.close(bench.now_ms)
    follower = Follower(bench.disk)
    assert lines_of(follower.log) == [b"one"]
    bench.store = bench.open()
    lines = [b"line %d" % number for number in range(20)]
    bench.write(*lines)
    assert lines_of(follower.settle()) == [b"one", *lines]
