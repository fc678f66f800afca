"""Packing: sealed segments become smaller, and nothing else changes; also when it is stopped."""

import errno
import hashlib

import pytest

from logfs.errors import CorruptRecordError, PolicyViolationError
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.services.packing.packer import Packed, SegmentPacker, due_segments, pack_now
from logfs.services.views.files import GrowingFile
from logfs.types import View
from tests.fakes import FakeDisk
from tests.log.compaction import leftovers, placed_lines, tools
from tests.log.foreign import Follower
from tests.log.support import Bench, batches_in, log_name

SETTINGS = {
    "logfs.sealed.compression.type": "zstd",
    "internal.segment.bytes": "2000",
    "index.interval.bytes": "200",
}


def web_log(segments: int = 3, **properties: str) -> Bench:
    """Sealed segments of lines, each its own batch, and an active one."""
    bench = Bench(SETTINGS | {name.replace("_", "."): text for name, text in properties.items()})
    for segment in range(segments):
        for n in range(15):
            bench.now_ms += 1000
            bench.write(b"10.0.0.%d GET /index.html?page=%d HTTP/1.1 200" % (n % 3, segment))
        bench.log.roll(bench.now_ms)
    bench.write(b"the active segment")
    bench.log.flush()
    bench.log.maintain()
    return bench


def pack(bench: Bench) -> Packed:
    return pack_now(bench.log, bench.now_ms, tools())


def places(bench: Bench) -> list[object]:
    """Where every line is, by position, by offset and by time."""
    log = bench.log
    snapshot = log.snapshot
    return [
        *(placed_lines(log, view) for view in View),
        [positions_of_offset(snapshot, n) for n in range(snapshot.end.offset)],
        [offset_for_time(snapshot, ms) for ms in range(bench.now_ms - 46_000, bench.now_ms, 500)],
    ]


def log_bytes(bench: Bench) -> list[int]:
    return [len(bench.file(name)) for name in bench.names(".log")]


def test_sealed_segments_become_smaller_and_every_line_stays_in_its_place() -> None:
    bench = web_log()
    before, sizes = places(bench), log_bytes(bench)
    done = pack(bench)
    assert (done.segments, done.packed, done.read_batches) == (3, 3, 45)
    assert (done.read_bytes, done.written_bytes) == (sum(sizes[:3]), sum(log_bytes(bench)[:3]))
    assert done.written_bytes < done.read_bytes / 3
    assert log_bytes(bench)[3] == sizes[3], "the active segment stays as it is"
    assert places(bench) == before
    for stop in (bench.restart, bench.kill, bench.crash):
        stop()
        assert places(bench) == before
        assert bench.log.losses == []


def test_a_segment_is_packed_once() -> None:
    bench = web_log()
    pack(bench)
    assert due_segments(bench.log) == []
    for stop in (bench.restart, bench.kill):
        assert due_segments(stop()) == []
    assert pack(bench).segments == 0


def test_a_segment_that_would_not_become_smaller_is_looked_at_once() -> None:
    bench = Bench(SETTINGS | {"max.message.bytes": "170"})
    for n in range(20):
        noise = hashlib.shake_128(b"%d" % n).digest(90).replace(b"\n", b"")
        bench.write(noise)
    bench.log.roll(bench.now_ms)
    sealed = len(bench.log.snapshot.segments) - 1
    done = pack(bench)
    assert (done.segments, done.packed) == (sealed, 0)
    assert leftovers(bench.disk) == []
    bench.log.maintain()
    assert due_segments(bench.restart()) == []


def test_segments_are_packed_after_they_are_durable() -> None:
    bench = web_log()
    bench.write(b"not durable yet")
    bench.log.roll(bench.now_ms)
    assert len(due_segments(bench.log)) == 3
    bench.log.maintain()
    assert len(due_segments(bench.log)) == 4


def test_the_background_packs_one_segment_at_a_time_the_oldest_first() -> None:
    bench = web_log()
    packer = SegmentPacker(bench.store)
    for left in (2, 1, 0):
        chosen = packer.choose(bench.now_ms)
        assert chosen is not None
        assert packer.choose(bench.now_ms) is None, "another thread has it"
        assert packer.rewrite(chosen, bench.now_ms, tools())
        assert len(due_segments(bench.log)) == left
    assert packer.choose(bench.now_ms) is None


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"logfs.sealed.compression.type": "uncompressed"}, "choose a codec"),
        ({"cleanup.policy": "compact"}, "compaction rewrites its segments"),
    ],
)
def test_other_topics_are_refused_with_the_setting(properties: dict[str, str], reason: str) -> None:
    bench = Bench(SETTINGS | properties)
    with pytest.raises(PolicyViolationError, match=reason):
        pack(bench)
    assert due_segments(bench.log) == []


@pytest.mark.slow
@pytest.mark.parametrize("boots", [0, 1])
def test_a_stop_at_any_moment_loses_nothing(boots: int) -> None:
    bench = web_log(2)
    bench.store.checkpoint()
    before = places(bench)
    states: list[FakeDisk] = []

    def look(operation: str, _name: str, _size: int) -> None:
        if operation in {"pwrite", "truncate", "sync", "rename", "remove", "sync_directory"}:
            bench.disk.before = None
            states.append(bench.disk.after_kill())
            states.extend(bench.disk.after_crash(seed) for seed in ((None, 1, 2) if boots else ()))
            bench.disk.before = look

    bench.disk.before = look
    pack(bench)
    bench.disk.before = None
    if boots:
        bench.new_boot()
    assert len(states) > 40
    for disk in states:
        bench.disk = disk
        bench.store = bench.open()
        assert bench.log.losses == []
        assert places(bench) == before
        assert leftovers(disk) == []
        pack(bench)
        assert places(bench) == before
        assert due_segments(bench.log) == []
        bench.store.close(bench.now_ms)


@pytest.mark.expect_log("No space left")
def test_a_full_disk_stops_packing_for_a_while_and_nothing_else() -> None:
    bench = web_log()
    before = places(bench)
    bench.disk.fail_next_write("*.cleaned", errno.ENOSPC)
    packer = SegmentPacker(bench.store)
    chosen = packer.choose(bench.now_ms)
    assert chosen is not None
    assert not packer.rewrite(chosen, bench.now_ms, tools())
    assert packer.choose(bench.now_ms) is None
    assert (places(bench), leftovers(bench.disk), bench.log.offline) == (before, [], None)
    assert packer.choose(bench.now_ms + 60_000) == chosen


@pytest.mark.expect_log("is not packed until the next start")
def test_a_damaged_segment_stays_and_the_others_are_packed() -> None:
    bench = web_log()
    name = bench.names(".log")[0]
    data = bytearray(bench.file(name))
    data[100] ^= 1
    bench.put(name, bytes(data))
    bench.log.snapshot.segments[0].close_files()
    packer = SegmentPacker(bench.store)
    results = []
    while (chosen := packer.choose(bench.now_ms)) is not None:
        results.append(packer.rewrite(chosen, bench.now_ms, tools()))
    assert results == [False, True, True]
    assert bench.file(name) == data
    assert not [left for left in leftovers(bench.disk) if left.endswith(".cleaned")]


@pytest.mark.parametrize("number", [1, 7, 14])
def test_an_offset_too_far_from_the_first_is_named_with_its_file(number: int) -> None:
    bench = web_log(1)
    data = bytearray(bench.file(log_name(0)))
    at = batches_in(bytes(data))[number][0]
    data[at : at + 8] = (2**31).to_bytes(8, "big")
    bench.put(log_name(0), bytes(data))
    bench.log.snapshot.segments[0].close_files()
    with pytest.raises(CorruptRecordError, match=f"{log_name(0)} at byte {at}: .* too far"):
        pack(bench)


def test_a_follower_sees_the_same_lines_before_and_after() -> None:
    bench = web_log()
    follower = Follower(bench.disk)
    lines = placed_lines(bench.log, View.TEXT)
    assert placed_lines(follower.log, View.TEXT) == lines
    pack(bench)
    follower.settle()
    assert placed_lines(follower.log, View.TEXT) == lines


def test_an_open_growing_file_reads_on() -> None:
    bench, piece = web_log(), 37
    expected = b"".join(line for _, line in placed_lines(bench.log, View.TEXT))
    file, out, seen = GrowingFile(bench.log, View.TEXT, 0), bytearray(piece), b""
    seen += bytes(out[: file.read_into(memoryview(out), 0)])
    pack(bench)
    bench.now_ms += bench.log.config.file_delete_delay_ms
    bench.log.remove_due_files(bench.now_ms)
    while got := file.read_into(memoryview(out), len(seen)):
        seen += bytes(out[:got])
    assert seen == expected
