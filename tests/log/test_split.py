"""Segments that span more than 2^31 offsets, and replacements that a stop has interrupted."""

from collections.abc import Sequence

import pytest

from logfs.log.loading.swaps import put_in_place, resolve_swaps, take_suffix_off
from logfs.log.names import FileKind, FileSuffix, SegmentFileName, parse_segment_file
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.compression import Compression
from logfs.records.record import Record
from logfs.types import View
from tests.fakes import START_MS, FakeDisk
from tests.log.damage import cut_copies, kinds_of_losses, start
from tests.log.legacy import foreign
from tests.log.support import DIRECTORY, TP, Bench, contents, lines_of, log_name, text_of
from tests.records.messages import wrapper

pytestmark = pytest.mark.allow_log(
    "are no whole batch",
    "cannot be used: unsupported magic",
    "could not be loaded:",
    "is split into segments at",
    "restart at 0",
    "the one before it is used",
)

FAR = 2**31


def batch(offset: int, *values: bytes) -> bytes:
    records = [Record(offset + n, START_MS, None, value) for n, value in enumerate(values)]
    return encode_batch(records, BatchFields())


NEAR = [batch(5, b"one", b"two"), batch(7, b"three")]
MIDDLE = [batch(5 + FAR, b"four"), batch(9 + FAR, b"five")]
LAST = [batch(10 + 3 * FAR, b"six")]
SPANNING = b"".join([*NEAR, *MIDDLE, *LAST])
LINES = [b"one", b"two", b"three", b"four", b"five", b"six"]
SPLIT = {
    log_name(5): b"".join(NEAR),
    log_name(5 + FAR): b"".join(MIDDLE),
    log_name(10 + 3 * FAR): b"".join(LAST),
}


def logs_in(bench: Bench) -> dict[str, bytes]:
    return {name: bench.file(name) for name in bench.names(".log")}


@pytest.mark.parametrize("base_offset", [0, 5])
def test_a_segment_that_spans_too_much_is_split(base_offset: int) -> None:
    bench = foreign((base_offset, SPANNING))
    bench.disk.touch_times(f"{DIRECTORY}/{log_name(base_offset)}", 12_345_000)
    start(bench)
    assert logs_in(bench) == SPLIT
    assert bench.disk.stat(f"{DIRECTORY}/{log_name(5 + FAR)}").mtime_ms == 12_345_000
    assert [name for name in bench.names() if name.endswith((".swap", ".cleaned"))] == []
    assert bench.log.losses == []
    assert lines_of(bench.log) == LINES
    assert bench.log.log_start_offset == 5
    assert bench.log.log_end_offset == 11 + 3 * FAR
    bench.write(b"seven")
    for again in (bench.restart, bench.kill, bench.crash):
        again()
        assert lines_of(bench.log) == [*LINES, b"seven"]
    assert bench.log.losses == []


def test_a_segment_far_before_its_first_batch_is_renamed() -> None:
    bench = start(foreign((0, b"".join(MIDDLE))))
    assert logs_in(bench) == {log_name(5 + FAR): b"".join(MIDDLE)}
    assert lines_of(bench.log) == [b"four", b"five"]
    bench = start(foreign((0, b"".join(MIDDLE + LAST))))
    assert list(logs_in(bench)) == [log_name(5 + FAR), log_name(10 + 3 * FAR)]
    assert lines_of(bench.log) == LINES[3:]


def test_old_messages_are_split_by_their_first_offset() -> None:
    records = [Record(FAR - 2 + n, START_MS, None, b"%d" % n) for n in range(4)]
    inside = wrapper(1, Compression.GZIP, records)
    bench = start(foreign((0, batch(0, b"zero") + inside)))
    assert logs_in(bench) == {log_name(0): batch(0, b"zero"), log_name(FAR - 2): inside}
    assert lines_of(bench.log) == [b"zero", b"0", b"1", b"2", b"3"]


def test_segments_after_it_stay() -> None:
    behind = batch(20 + 3 * FAR, b"behind")
    for is_clean in (False, True):
        bench = foreign((5, SPANNING), (20 + 3 * FAR, behind))
        if is_clean:
            bench.disk.replace(".kafka_cleanshutdown", b"{}")
        start(bench)
        assert logs_in(bench) == SPLIT | {log_name(20 + 3 * FAR): behind}
        assert lines_of(bench.log) == [*LINES, b"behind"]


def test_a_torn_tail_goes_from_the_last_piece_only() -> None:
    bench = start(foreign((5, SPANNING + LAST[0][:-1])))
    assert logs_in(bench) == SPLIT
    assert kinds_of_losses(bench) == ["cut"]
    assert list(cut_copies(bench).values()) == [LAST[0][:-1]]


@pytest.mark.parametrize("position", [0, 62])
def test_damage_that_resembles_a_far_offset_is_truncated_and_not_split(position: int) -> None:
    wild = bytearray(LAST[0])
    wild[position] ^= 0x40
    wild[-1] ^= 0x01
    bench = start(foreign((5, b"".join(NEAR) + wild)))
    assert logs_in(bench) == {log_name(5): b"".join(NEAR)}
    assert kinds_of_losses(bench) == ["cut"]
    assert bench.log.log_end_offset == 8


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_stop_at_any_step_of_a_split_loses_nothing(seed: int | None) -> None:
    disk = foreign((5, SPANNING)).disk
    points: list[FakeDisk] = []
    bench = Bench(disk=disk.after_kill())  # gives the topic a name in its own store
    disk.before = lambda operation, _name, _size: points.append(
        disk.after_kill() if seed is None else disk.after_crash(seed)
    )
    bench.open(disk)
    disk.before = None
    shapes = set()
    for point in points:
        shapes.add(tuple(name for name in contents(point) if ".log" in name))
        start(bench, point)
        assert logs_in(bench) == SPLIT
        assert text_of(bench.log, View.TSV) == b"".join(b"\\N\t%s\n" % line for line in LINES)
        assert [loss for loss in bench.log.losses if loss.kind != "positions"] == []
    assert len(shapes) > 6


def test_a_full_disk_keeps_the_segment_as_it_is() -> None:
    bench = foreign((5, SPANNING))
    bench.disk.fail_next_write(f"*{log_name(5 + FAR)}.cleaned", 10, 28)
    bench.store = bench.open()
    assert "could not be loaded" in str(bench.log.offline)
    assert logs_in(bench) == {log_name(5): SPANNING}
    assert bench.names(".cleaned") == []
    bench.store.close(bench.now_ms)
    start(bench)
    assert logs_in(bench) == SPLIT


def test_a_read_only_store_shows_it_as_it_is() -> None:
    bench = foreign((5, SPANNING))
    before = contents(bench.disk)
    log = bench.open(read_only=True).partition(*TP)
    assert lines_of(log) == LINES
    assert log.log_end_offset == 11 + 3 * FAR
    assert contents(bench.disk) == before


# Replacements


def file(base_offset: int, kind: FileKind, suffix: FileSuffix) -> SegmentFileName:
    return SegmentFileName(base_offset, kind, suffix)


def resolve(disk: FakeDisk) -> None:
    parsed = [parse_segment_file(name) for name, _ in disk.list("p")]
    resolve_swaps(disk, "p", [one for one in parsed if one is not None], read_only=False)


def replaced(disk: FakeDisk, files: dict[str, bytes]) -> dict[str, bytes]:
    """What is left of some files once the loader has looked at them."""
    if files:
        disk.make_directory("p")
    for name, data in files.items():
        disk.replace(f"p/{name}", data)
    resolve(disk)
    return {name.removeprefix("p/"): data for name, data in contents(disk).items()}


OLD = {
    log_name(0): b"old 0",
    f"{0:020}.index": b"i0",
    f"{5:020}.log": b"old 5",
    f"{7:020}.snapshot": b"s",
    f"{8:020}.log": b"next",
    f"{8:020}.snapshot": b"s8",
    "logfs.segments": b"table",
}


def test_an_incomplete_replacement_is_undone() -> None:
    new = {
        f"{0:020}.log.cleaned": b"x",
        f"{0:020}.index.cleaned": b"x",
        f"{0:020}.textindex.cleaned": b"x",
        f"{5:020}.log.swap": NEAR[0],
        f"{9:020}.log.deleted": b"x",
        f"{9:020}.snapshot.deleted": b"x",
    }
    assert replaced(FakeDisk(), OLD | new) == OLD


def test_a_complete_replacement_is_finished() -> None:
    new = {
        f"{0:020}.log.swap": batch(2, b"a") + batch(7, b"b"),
        f"{0:020}.index.swap": b"new index",
        f"{0:020}.textindex.swap": b"new text index",
        f"{20:020}.log.cleaned": b"x",
    }
    left = {name: data for name, data in OLD.items() if name == "logfs.segments" or "8" in name}
    assert replaced(FakeDisk(), OLD | new) == left | {
        f"{0:020}.log": new[f"{0:020}.log.swap"],
        f"{0:020}.index": b"new index",
        f"{0:020}.textindex": b"new text index",
    }


def test_a_swap_without_its_log_is_the_rest_of_a_replacement() -> None:
    new = {f"{0:020}.index.swap": b"new", f"{0:020}.timeindex.swap": b"new"}
    assert replaced(FakeDisk(), OLD | new) == OLD | {
        f"{0:020}.index": b"new",
        f"{0:020}.timeindex": b"new",
    }


@pytest.mark.parametrize("bad", [b"", b"garbage that is long enough to be a header"])
def test_a_swap_without_records_replaces_its_own_name(bad: bytes) -> None:
    left = replaced(FakeDisk(), OLD | {f"{5:020}.log.swap": bad})
    assert left == OLD | {f"{5:020}.log": bad}


def stops_of(disk: FakeDisk) -> list[FakeDisk]:
    points: list[FakeDisk] = []
    disk.before = lambda operation, _name, _size: points.append(disk.after_kill())
    resolve(disk)
    return points


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("bases", [[0], [0, 5]])
def test_a_stop_at_any_step_leaves_the_old_or_the_new(
    bases: Sequence[int], seed: int | None
) -> None:
    kinds = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TEXT_INDEX)
    new = [file(base, kind, FileSuffix.CLEANED) for base in bases for kind in kinds]
    disk = FakeDisk()
    disk.make_directory("p")
    disk.sync_directory("")

    def put(name: str, data: bytes) -> None:
        disk.replace(f"p/{name}", data)

    for base in (0, 3, 5):
        put(log_name(base), b"old")
        put(f"{base:020}.index", b"old index")
        put(f"{base:020}.textindex", b"old text")
    put(log_name(8), b"next")
    for base, data in zip(bases, [batch(0, b"a"), batch(7, b"b")][-len(bases) :], strict=True):
        put(f"{base:020}.log.cleaned", data)
        put(f"{base:020}.index.cleaned", b"new index")
        put(f"{base:020}.textindex.cleaned", b"new text")
    before = replaced(disk.after_kill(), {})
    points: list[FakeDisk] = []
    disk.before = lambda operation, _name, _size: points.append(
        disk.after_kill() if seed is None else disk.after_crash(seed)
    )
    put_in_place(disk, "p", new)
    for base in (0, 3, 5):
        for name in (log_name(base), f"{base:020}.index", f"{base:020}.textindex"):
            disk.remove(f"p/{name}")
    disk.sync_directory("p")
    take_suffix_off(disk, "p", [row._replace(suffix=FileSuffix.SWAP) for row in new])
    disk.before = None
    after = replaced(disk, {})
    assert set(after) == {log_name(8), *(f"{b:020}{k.value}" for b in bases for k in kinds)}
    ended = [replaced(point, {}) for point in points]
    # A stop inside the loader's own work is one more.
    for point in points[-6:]:
        ended += [replaced(one, {}) for one in stops_of(point)]
    assert all(one in (before, after) for one in ended)
    assert before in ended
    assert after in ended
