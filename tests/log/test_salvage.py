"""A salvage copies every batch that can be used, and says of each other one that it is missing."""

import random

import pytest

from logfs.errors import BackupError
from logfs.log.losses import CUT
from logfs.records.record import Record
from logfs.services.salvage.directory import salvage
from tests.fakes import START_MS, FakeDisk
from tests.fakestate import Stopped
from tests.log import salvaging, test_base_offsets
from tests.log.damage import filled
from tests.log.legacy import foreign
from tests.log.salvaging import batches_of, logs_of, opened, salvage_one, salvaged, split
from tests.log.support import DIRECTORY, Bench, contents, lines_of, log_name
from tests.records.messages import message

LINES = [b"line %02d" % n + b"." * (n % 7) for n in range(12)]


def segmented() -> Bench:
    """A stopped partition of several segments, each with several batches."""
    bench = Bench({"internal.segment.bytes": "400"})
    bench.write(*LINES)
    bench.store.close(bench.now_ms)
    return bench


def one_segment() -> Bench:
    bench = Bench()
    bench.write(*LINES)
    bench.store.close(bench.now_ms)
    return bench


def test_what_is_sound_is_copied_byte_for_byte() -> None:
    bench = segmented()
    before = contents(bench.disk)
    one, copy = salvage_one(bench.disk)
    assert (one.gone, one.notes) == ([], [])
    assert (one.records, one.start_offset, one.end_offset) == (12, 0, 12)
    assert logs_of(copy) == logs_of(bench.disk)
    assert contents(bench.disk) == before
    again = opened(copy)
    assert lines_of(again.log) == LINES
    assert again.log.losses == []
    assert copy.read(f"{DIRECTORY}/partition.metadata") == bench.file("partition.metadata")


@pytest.mark.parametrize("how", salvaging.DAMAGES, ids=lambda how: how.__name__)
@pytest.mark.parametrize("seed", range(40))
def test_every_batch_that_damage_leaves_is_copied(how: salvaging.Damaging, seed: int) -> None:
    rng = random.Random(seed)
    bench = segmented()
    logs = logs_of(bench.disk)
    name = rng.choice(sorted(logs))
    damage = how(logs[name], rng)
    bench.put(name, damage.data)
    one, copy = salvage_one(bench.disk)
    copied = batches_of(logs_of(copy).values())
    whole = batches_of(logs.values())
    intact = [damage.intact if other == name else split(data) for other, data in logs.items()]
    for batch in (batch for batches in intact for batch in batches):
        assert batch in copied
    # The base offset and the leader epoch have no checksum.
    bodies = [batch[17:] for batch in whole]
    numbers = [bodies.index(batch[17:]) for batch in copied]
    assert numbers == sorted(set(numbers))
    offsets = [int.from_bytes(batch[:8], "big") for batch in copied]
    assert offsets == sorted(set(offsets))
    for offset in set(range(len(LINES))) - set(offsets):
        assert any(
            gone.first_offset <= offset < (gone.next_offset or len(LINES)) for gone in one.gone
        )
    assert lines_of(opened(copy).log) == [LINES[number] for number in numbers]


def test_a_salvage_says_which_offsets_are_missing_and_keeps_their_bytes() -> None:
    bench = one_segment()
    (name,) = logs_of(bench.disk)
    data = bytearray(bench.file(name))
    begin = data.index(LINES[4])
    data[begin : begin + 4] = b"XXXX"
    bench.put(name, bytes(data))
    one, copy = salvage_one(bench.disk)
    (gone,) = one.gone
    assert (gone.first_offset, gone.next_offset) == (4, 5)
    assert (gone.after_ms, gone.before_ms) == (START_MS, START_MS)
    assert gone.why.startswith("checksum differs")
    kept = copy.read(f"{DIRECTORY}/{gone.kept_as}")
    assert kept == bytes(data[gone.position : gone.position + gone.size_bytes])
    again = opened(copy)
    assert lines_of(again.log) == [*LINES[:4], *LINES[5:]]
    (loss,) = again.log.losses
    assert (loss.kind, loss.offset, loss.file) == (CUT, 4, gone.kept_as)


@pytest.mark.parametrize("blocks", [{0}, {1}, {2, 3}, {1, 4}, {5}, {0, 1, 2, 3, 4, 5, 6}])
def test_what_is_beside_blocks_that_the_disk_cannot_read_is_copied(blocks: set[int]) -> None:
    disk = salvaging.FailingDisk()
    disk.blocks = set()
    bench = Bench(disk=disk)
    lines = [b"%03d" % number + b"x" * 500 for number in range(50)]
    bench.write(*lines)
    bench.store.close(bench.now_ms)
    data = bench.file(log_name(0))
    disk.blocks = blocks
    size = salvaging.BLOCK_BYTES
    ranges = [range(block * size, (block + 1) * size) for block in blocks]
    expected, at = [], 0
    for batch in split(data):
        span = range(at, at + len(batch))
        if not any(max(span[0], r[0]) <= min(span[-1], r[-1]) for r in ranges):
            expected.append(batch)
        at += len(batch)
    one, copy = salvage_one(disk)
    assert batches_of(logs_of(copy).values()) == expected
    assert all("the disk cannot read" in gone.why for gone in one.gone)
    assert one.records == len(expected)


@pytest.mark.parametrize("how", test_base_offsets.DAMAGES)
@pytest.mark.parametrize("offset", [1, 2, 4, 5, 8, 9])
def test_a_base_offset_that_its_neighbours_prove_is_repaired(offset: int, how: str) -> None:
    bench = test_base_offsets.stopped("a clean stop")
    before = test_base_offsets.damage(bench, offset, how)
    one, copy = salvage_one(bench.disk)
    assert logs_of(copy) == before
    assert one.gone == []
    (note,) = one.notes
    assert f"those around it prove that it is {offset}, so it was repaired" in note


@pytest.mark.parametrize(
    "wrong",
    [{1: -4, 7: 9}, {4: 1004, 10: 1010}, {2: 13, 4: 45}, {0: 52, 7: 9}, {4: 4 + (1 << 40), 8: 9}],
)
def test_all_base_offsets_that_are_proven_wrong_in_a_segment_are_repaired(
    wrong: dict[int, int],
) -> None:
    bench = one_segment()
    before = logs_of(bench.disk)
    batches = split(before[log_name(0)])
    for offset, damaged in wrong.items():
        batches[offset] = damaged.to_bytes(8, "big", signed=True) + batches[offset][8:]
    bench.put(log_name(0), b"".join(batches))
    one, copy = salvage_one(bench.disk)
    assert logs_of(copy) == before
    assert (one.gone, one.records, len(one.notes)) == ([], len(LINES), len(wrong))


def test_segments_that_are_missing_are_told() -> None:
    bench = segmented()
    logs = sorted(logs_of(bench.disk))
    bench.disk.remove(f"{DIRECTORY}/{logs[1]}")
    one, _ = salvage_one(bench.disk)
    (gone,) = one.gone
    first, following = int(logs[1][:20]), int(logs[2][:20])
    assert (gone.first_offset, gone.next_offset) == (first, following)
    assert (gone.size_bytes, gone.why) == (0, "no batch has these offsets")


def test_offsets_that_compaction_has_removed_are_not_missing() -> None:
    batches = split(logs_of(one_segment().disk)[log_name(0)])
    bench = foreign((0, b"".join(batches[:2] + batches[5:])))
    one, _ = salvage_one(bench.disk)
    assert [(gone.first_offset, gone.next_offset) for gone in one.gone] == [(2, 5)]
    bench.disk.replace("cleaner-offset-checkpoint", b"0\n1\nt 0 12\n")
    one, copy = salvage_one(bench.disk)
    assert one.gone == []
    assert batches_of(logs_of(copy).values()) == batches[:2] + batches[5:]


def test_a_segment_that_a_compaction_was_about_to_replace() -> None:
    bench = segmented()
    logs = logs_of(bench.disk)
    first, second = sorted(logs)[:2]
    bench.put(f"{first}.swap", split(logs[first])[0] + split(logs[second])[-1])
    bench.disk.remove(f"{DIRECTORY}/{first}")
    _, copy = salvaged(bench.disk)
    copied = batches_of(logs_of(copy).values())
    rest = [batch for name in sorted(logs)[2:] for batch in split(logs[name])]
    assert copied == [split(logs[first])[0], split(logs[second])[-1], *rest]


def test_offsets_too_far_apart_for_a_segment_are_copied_into_two() -> None:
    first = split(logs_of(one_segment().disk)[log_name(0)])
    far = [(int.from_bytes(b[:8], "big") + (1 << 32)).to_bytes(8, "big") + b[8:] for b in first]
    bench = foreign((0, b"".join([*first[:2], *far[2:5]])))
    one, copy = salvage_one(bench.disk)
    assert logs_of(copy) == {
        log_name(0): b"".join(first[:2]),
        log_name((1 << 32) + 2): b"".join(far[2:5]),
    }
    assert [(gone.first_offset, gone.next_offset) for gone in one.gone] == [(2, (1 << 32) + 2)]


def test_messages_of_old_formats_are_found_after_damage() -> None:
    records = [Record(offset, START_MS, None, b"value %d" % offset) for offset in range(6)]
    messages = [message(1, record) for record in records]
    data = bytearray(b"".join(messages))
    begin = len(messages[0])
    data[begin : begin + 12] = b"\xff" * 12
    _, copy = salvage_one(foreign((0, bytes(data))).disk)
    assert logs_of(copy) == {log_name(0): b"".join([messages[0], *messages[2:]])}


def test_an_unfinished_line_is_copied() -> None:
    bench = Bench()
    bench.write(b"whole")
    assert bench.writer().write(b"half", bench.now_ms) == 4
    bench.store.close(bench.now_ms)
    _, copy = salvage_one(bench.disk)
    again = opened(copy)
    assert lines_of(again.log) == lines_of(opened(bench.disk).log)


def test_a_damaged_small_file_is_left_out() -> None:
    bench = segmented()
    bench.put("leader-epoch-checkpoint", b"nonsense")
    one, copy = salvage_one(bench.disk)
    (note,) = one.notes
    assert note.startswith("t-0/leader-epoch-checkpoint is left out: ")
    assert lines_of(opened(copy).log) == LINES


def test_a_directory_is_whole_after_every_interruption() -> None:
    bench = segmented()
    for changes in range(200):
        copy = FakeDisk()
        copy.stop_before(changes)
        try:
            salvaged(bench.disk, copy)
        except Stopped:
            copy.kill()
        else:
            break
        if copy.exists("logfs.backup"):
            with pytest.raises(BackupError, match="interrupted here"):
                opened(copy)
        elif any(name == DIRECTORY for name, _ in copy.list("")):
            assert lines_of(opened(copy).log) == LINES
            continue
        salvaged(bench.disk, copy)
        assert lines_of(opened(copy).log) == LINES
    else:
        pytest.fail("a salvage makes more than 200 changes")
    assert changes > 10


def test_a_full_disk_ends_a_salvage_which_can_be_repeated() -> None:
    bench = segmented()
    copy = FakeDisk()
    copy.fail_next_write("*.log", 28)
    with pytest.raises(OSError, match="No space"):
        salvaged(bench.disk, copy)
    done, _ = salvaged(bench.disk, copy)
    assert done.is_whole
    assert logs_of(copy) == logs_of(bench.disk)


def test_a_preview_writes_nothing() -> None:
    bench = filled()
    bench.disk.kill()
    before = contents(bench.disk)
    done = salvage(bench.disk, "/damaged", None, (), START_MS, lambda _: None)
    assert (done.partitions[0].records, contents(bench.disk)) == (12, before)
