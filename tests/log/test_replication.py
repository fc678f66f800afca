"""A mirror takes over the batches of its source, over every stop in between."""

import contextlib
import errno
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError, LogfsError, MirrorError, OffsetOutOfRangeError
from logfs.log.mirrorfile import FAILED, MirrorSource
from logfs.records._reading import first_offset
from logfs.records.record import Record
from logfs.services.verifying.findings import Finding
from tests.fakes import FakeDisk
from tests.log.mirroring import (
    OTHER,
    SMALL,
    begin_epoch,
    catch_up,
    check_mirror,
    fetch,
    some_source,
    stored,
)
from tests.log.support import DIRECTORY, TP, Bench, lines_of
from tests.log.verifying import check

SOURCE = MirrorSource("cluster", "b1:9092", "t", "id")


def a_source(rounds: int = 4) -> tuple[Bench, bytes]:
    bench = Bench(SMALL)
    some_source(bench, rounds)
    return bench, stored(bench)


def test_a_mirror_has_the_bytes_epochs_and_transactions_of_its_source() -> None:
    source, data = a_source()
    mirror = Bench(OTHER)
    catch_up(mirror, data)
    check_mirror(mirror, source)
    assert len(mirror.log.snapshot.segments) >= 3
    assert max(segment.size_bytes for segment in mirror.log.snapshot.segments) <= 900
    for restart in (mirror.restart, mirror.kill):
        restart()
        check_mirror(mirror, source)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_stay_as_they_are(codec: str) -> None:
    source = Bench(SMALL | {"compression.type": codec})
    for number in range(20):
        source.append([Record(0, 7, b"k", b"value %d" % number * 5, ()) for _ in range(5)])
    mirror = Bench(OTHER)
    catch_up(mirror, stored(source))
    check_mirror(mirror, source)


def test_gaps_inside_and_between_batches_stay() -> None:
    source = Bench(SMALL)
    for _ in range(4):
        source.write(b"a", b"b", b"c")
    data = stored(source)
    third = len(data) // 12
    kept = data[: 3 * third] + data[5 * third : 6 * third] + data[9 * third :]
    mirror = Bench()
    mirror.log.replication.append_replica(kept, mirror.now_ms)
    assert stored(mirror) == kept
    assert mirror.log.log_end_offset == 12
    assert lines_of(mirror.log) == [b"a", b"b", b"c", b"c", b"a", b"b", b"c"]
    mirror.kill()
    assert stored(mirror) == kept


def test_what_the_log_has_already_is_refused() -> None:
    _, data = a_source()
    mirror = Bench()
    mirror.log.replication.append_replica(data, mirror.now_ms)
    with pytest.raises(OffsetOutOfRangeError):
        mirror.log.replication.append_replica(data, mirror.now_ms)
    assert stored(mirror) == data


def test_of_damaged_batches_only_the_sound_ones_before_them_are_appended() -> None:
    source, data = a_source()
    middle = len(fetch(data, 5, len(data)))
    at = len(data) - middle
    broken = bytearray(data)
    broken[at + 65] ^= 1
    mirror = Bench(OTHER)
    got = mirror.log.replication.append_replica(bytes(broken), mirror.now_ms)
    assert got.used_bytes == at
    with pytest.raises(CorruptRecordError, match="t/0: a batch for offset 5 is not"):
        mirror.log.replication.append_replica(bytes(broken[at:]), mirror.now_ms)
    assert mirror.log.log_end_offset == 5
    catch_up(mirror, data)
    check_mirror(mirror, source)


def test_a_batch_that_is_cut_is_left_for_the_next_call() -> None:
    _, data = a_source()
    mirror = Bench()
    got = mirror.log.replication.append_replica(data[:-1], mirror.now_ms)
    assert 0 < got.used_bytes < len(data) - 1
    assert (
        mirror.log.replication.append_replica(data[got.used_bytes :], mirror.now_ms).used_bytes > 0
    )
    with pytest.raises(CorruptRecordError):
        mirror.log.replication.append_replica(data[:30], mirror.now_ms)


def test_batches_far_from_the_log_end_begin_a_segment() -> None:
    source = Bench()
    source.write(b"a", b"b")
    data = stored(source)
    half = len(data) // 2
    far = (5 * 2**32).to_bytes(8, "big") + data[half + 8 :]
    mirror = Bench()
    mirror.log.replication.append_replica(data[:half] + far, mirror.now_ms)
    assert lines_of(mirror.log) == [b"a", b"b"]
    assert mirror.log.log_end_offset == 5 * 2**32 + 1
    mirror.kill()
    assert lines_of(mirror.log) == [b"a", b"b"]
    assert stored(mirror) == data[:half] + far


def test_an_empty_mirror_may_begin_at_any_offset() -> None:
    source, data = a_source()
    mirror = Bench(OTHER)
    mirror.log.replication.start_at(5, mirror.now_ms)
    assert (mirror.log.log_start_offset, mirror.log.log_end_offset) == (5, 5)
    mirror.kill()
    assert (mirror.log.log_start_offset, mirror.log.log_end_offset) == (5, 5)
    catch_up(mirror, data)
    assert stored(mirror) == fetch(data, 5, len(data))
    assert lines_of(mirror.log)[0] == lines_of(source.log)[5]
    with pytest.raises(OffsetOutOfRangeError):
        mirror.log.replication.start_at(10**6, mirror.now_ms)
    assert not findings(mirror)


def findings(bench: Bench) -> list[Finding]:
    """What logfs verify finds in the directory of a bench after a clean stop."""
    bench.store.close(bench.now_ms)
    found = list(check(bench.disk).findings)
    bench.store = bench.open()
    return found


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_gap_of_the_source_is_no_damage(*, is_empty: bool) -> None:
    _, data = a_source()
    mirror = Bench(OTHER)
    if not is_empty:
        mirror.log.replication.append_replica(fetch(data, 0, 700), mirror.now_ms)
    end, lines = mirror.log.log_end_offset, lines_of(mirror.log)
    positions = mirror.log.snapshot.end.positions
    later = first_offset(fetch(data, end + 7, 200), 0, 200)
    mirror.log.replication.continue_at(later, mirror.now_ms)
    assert mirror.log.snapshot.end.positions == positions
    assert mirror.log.log_end_offset == later > end
    catch_up(mirror, data)
    kept = lines_of(mirror.log)
    assert kept[: len(lines)] == lines
    for stop in (mirror.kill, mirror.restart):
        stop()
        assert lines_of(mirror.log) == kept
    assert not findings(mirror)
    mirror.log.flush()
    mirror.crash()
    assert lines_of(mirror.log) == kept


@pytest.mark.slow
@given(st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
@pytest.mark.allow_log("[loss: cut,", "it is rebuilt", "the one before it is used")
def test_a_mirror_that_is_stopped_at_random_becomes_its_source(chance: random.Random) -> None:
    stop_at_random(chance)


@pytest.mark.parametrize("seed", [62, 543, 617, 673, 835])
@pytest.mark.allow_log("[loss: cut,", "are no whole batch")
def test_a_mirror_fetches_again_what_a_power_cut_took_from_its_middle(seed: int) -> None:
    stop_at_random(random.Random(seed))


def stop_at_random(chance: random.Random) -> None:
    """Bring a mirror up to date over kills, power cuts and restarts."""
    source, mirror, data = Bench(SMALL), Bench(OTHER), b""
    mirror.log.set_mirror(SOURCE)
    for turn in range(chance.randint(1, 6)):
        some_source(source, 1, turn)
        data = stored(source)
        for _ in range(chance.randint(0, 6)):
            piece = fetch(data, mirror.log.log_end_offset, chance.randint(62, 1500))
            if len(piece) > 200:
                mirror.log.replication.append_replica(piece, mirror.now_ms)
            chance.choice([lambda: None, mirror.log.flush, mirror.log.maintain])()
            match chance.randint(0, 9):
                case 0:
                    mirror.kill()
                case 1:
                    mirror.crash(chance.randint(0, 9))
                case 2:
                    mirror.restart()
            assert without_epochs(data).startswith(without_epochs(stored(mirror)))
    catch_up(mirror, data)
    assert without_epochs(stored(mirror)) == without_epochs(data)
    if stored(mirror) == data:
        check_mirror(mirror, source)


def without_epochs(data: bytes) -> bytes:
    """Batches without leader epochs, which no checksum covers: a power cut may damage them."""
    return b"".join(batch[:12] + batch[16:] for batch in split(data))


def grow(bench: Bench, data: bytes) -> None:
    catch_up(bench, data)
    bench.log.flush()
    bench.log.maintain()
    bench.store.checkpoint()


def diverge(bench: Bench, data: bytes) -> None:
    catch_up(bench, data)
    bench.log.truncate_to(bench.log.log_end_offset // 2, bench.now_ms)
    catch_up(bench, data)


def begin_later(bench: Bench, data: bytes) -> None:
    bench.log.replication.start_at(5, bench.now_ms)
    catch_up(bench, data)


def miss_some(bench: Bench, data: bytes) -> None:
    bench.log.replication.append_replica(fetch(data, 0, 700), bench.now_ms)
    bench.log.replication.continue_at(bench.log.log_end_offset + 4, bench.now_ms)
    catch_up(bench, data)


STEPS: dict[str, Callable[[Bench, bytes], None]] = {
    "grow": grow,
    "diverge": diverge,
    "begin later": begin_later,
    "miss some": miss_some,
}


@pytest.mark.slow
@pytest.mark.allow_log("[loss: cut,", "it is rebuilt")
@pytest.mark.parametrize("how", STEPS)
@pytest.mark.parametrize("power", [False, True])
def test_a_stop_at_any_operation_loses_nothing_that_is_durable(how: str, power: bool) -> None:
    _, data = a_source(3)
    mirror = Bench(OTHER)
    copies: list[tuple[FakeDisk, int]] = []

    def before(operation: str, _name: str, _size: int) -> None:
        if operation in {"pwrite", "truncate", "rename", "remove", "open", "sync"}:
            disk, seed = mirror.disk, len(copies) if len(copies) % 3 else None
            durable = mirror.log.state.recovery_point if power else mirror.log.log_end_offset
            copies.append((disk.after_crash(seed) if power else disk.after_kill(), durable))

    mirror.disk.before = before
    STEPS[how](mirror, data)
    mirror.disk.before = None
    assert len(copies) > 10
    if power:
        mirror.new_boot()
    for disk, durable in copies:
        reopened = Bench(disk=disk)
        log = reopened.log
        kept = stored(reopened)
        assert is_run(kept, data)
        if how != "diverge":
            assert log.log_end_offset >= durable
        catch_up(reopened, data)
        assert is_run(stored(reopened), data)
        assert stored(reopened).endswith(data[-200:])
        if not power:
            assert not reopened.log.state.losses.all()


def is_run(kept: bytes, data: bytes) -> bool:
    """Whether batches are those of the source, in order; a gap may be between them."""
    at = 0
    for piece in split(kept):
        at = data.find(piece, at)
        if at < 0:
            return False
    return True


def split(data: bytes) -> list[bytes]:
    """The batches of some bytes, one by one."""
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        found.append(data[:size])
        data = data[size:]
    return found


@pytest.mark.slow
@pytest.mark.allow_log("for a test", "[loss: cut,", "it is rebuilt")
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("how", STEPS)
def test_whichever_operation_fails_the_next_start_continues(how: str, error: int) -> None:
    _, data = a_source(2)
    number = 0
    while True:
        mirror, left = Bench(OTHER), [number]

        def before(_operation: str, name: str, _size: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise OSError(error, "for a test", name)

        mirror.disk.before = before
        with contextlib.suppress(LogfsError, OSError):
            STEPS[how](mirror, data)
        mirror.disk.before = None
        if mirror.log.offline is None:
            assert is_run(stored(mirror), data)
            catch_up(mirror, data)
            assert stored(mirror).endswith(data[-200:])
        mirror.kill()
        catch_up(mirror, data)
        assert is_run(stored(mirror), data)
        assert stored(mirror).endswith(data[-200:])
        if left[0] >= 0:
            break
        number += 4


def test_on_a_full_disk_what_fits_is_appended_and_the_log_stays_intact() -> None:
    source, data = a_source()
    mirror = Bench(OTHER)
    mirror.log.replication.append_replica(fetch(data, 0, 600), mirror.now_ms)
    before = stored(mirror)
    mirror.disk.fill()
    with pytest.raises(OSError, match=str(errno.ENOSPC)) as caught:
        mirror.log.replication.append_replica(
            fetch(data, mirror.log.log_end_offset, 600), mirror.now_ms
        )
    assert caught.value.errno == errno.ENOSPC
    assert stored(mirror) == before
    mirror.disk.space_bytes = None
    catch_up(mirror, data)
    check_mirror(mirror, source)


def test_a_mirror_takes_no_records_of_its_own_until_it_is_none() -> None:
    mirror = Bench()
    mirror.log.set_mirror(SOURCE)
    for _ in range(2):
        with pytest.raises(MirrorError, match=r"t/0 is a mirror of topic t.*--promote"):
            mirror.write(b"line")
        with pytest.raises(MirrorError):
            mirror.writer().write(b"unfinished", mirror.now_ms)
        mirror.restart()
        assert mirror.log.mirror == SOURCE
    mirror.log.set_mirror(SOURCE._replace(state=FAILED, reason="made again"))
    assert mirror.kill().mirror == SOURCE._replace(state=FAILED, reason="made again")
    mirror.log.set_mirror(None)
    mirror.write(b"line")
    mirror.restart()
    assert mirror.log.mirror is None
    assert lines_of(mirror.log) == [b"line"]


def test_after_its_promotion_records_continue_in_the_latest_epoch() -> None:
    source = Bench()
    source.write(b"a")
    begin_epoch(source, 9)
    source.write(b"b")
    mirror = Bench()
    mirror.log.set_mirror(SOURCE)
    catch_up(mirror, stored(source))
    mirror.log.set_mirror(None)
    mirror.write(b"c")
    assert mirror.log.last_epoch == 9
    assert [epoch for epoch, _ in mirror.log.state.epochs.entries] == [0, 9]


@pytest.mark.allow_log("could not be loaded")
@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 1, "x": 2}'])
def test_a_mirror_file_that_does_not_parse_takes_the_partition_offline(data: bytes) -> None:
    mirror = Bench()
    mirror.put("logfs.mirror", data)
    mirror.restart()
    assert "logfs.mirror" in str(mirror.log.offline)
    assert mirror.names("logfs.mirror")
    assert mirror.disk.exists(f"{DIRECTORY}/logfs.mirror")
    assert mirror.store.partition(*TP).is_unreadable
