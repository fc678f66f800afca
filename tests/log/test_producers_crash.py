"""Killed or without power at any step: what is known of producers is what the log says."""

from collections.abc import Callable

import pytest

from logfs.log.partition import PartitionLog
from logfs.log.reading.lookup import positions_of_offset
from logfs.services.views.files import GrowingFile
from logfs.types import IsolationLevel, View
from tests.fakes import FakeDisk
from tests.log.producing import (
    History,
    batches_of,
    check_aborted_after_trim,
    check_against_replay,
    end,
    write,
)
from tests.log.support import TP, Bench, read_all

pytestmark = pytest.mark.allow_log(
    "[loss: cut,", "it is rebuilt", "the base offset of the batch", "the one before it is used"
)
PROPERTIES = {"internal.segment.bytes": "500", "index.interval.bytes": "100"}


def some_transactions(bench: Bench, first: int = 0) -> None:
    """Three producers, one without transactions; small segments roll in between."""
    for number in range(first, first + 3):
        write(bench, 2 * number, b"x" * 50, b"y" * 50, transactional=True)
        write(bench, number, b"z" * 60, producer_id=8, transactional=True)
        write(bench, number, b"idempotent", producer_id=9)
        bench.write(b"plain")
        end(bench, commit=number % 2 == 0)
        if number % 3 == 1:
            end(bench, commit=False, producer_id=8)
        bench.now_ms += 1


def upkeep(bench: Bench) -> None:
    bench.log.flush()
    bench.log.maintain()
    bench.store.checkpoint()


def go_on(bench: Bench) -> None:
    some_transactions(bench)
    upkeep(bench)
    some_transactions(bench, 3)


def cut(bench: Bench) -> None:
    bench.log.truncate_to(bench.log.log_end_offset // 2, bench.now_ms)


def stop(bench: Bench) -> None:
    some_transactions(bench, 6)
    bench.store.close(bench.now_ms)


def recover(bench: Bench) -> None:
    bench.kill()


STEPS: dict[str, tuple[Callable[[Bench], None], Callable[[Bench], None]]] = {
    "append": (lambda bench: None, go_on),
    "truncate": (go_on, cut),
    "stop": (go_on, stop),
    "recover": (go_on, recover),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", STEPS)
@pytest.mark.parametrize("power", [False, True])
def test_a_stop_at_any_step_leaves_what_a_full_replay_finds(how: str, power: bool) -> None:
    prepare, do = STEPS[how]
    bench = Bench(PROPERTIES)
    prepare(bench)
    copies: list[FakeDisk] = []

    def before(operation: str, _name: str, _size: int) -> None:
        if operation in {"pwrite", "truncate", "rename", "remove", "open", "sync"}:
            disk = bench.disk
            seed = len(copies) if len(copies) % 3 else None
            copies.append(disk.after_crash(seed) if power else disk.after_kill())

    bench.disk.before = before
    do(bench)
    bench.disk.before = None
    assert len(copies) > 5
    if power:
        bench.new_boot()
    for disk in copies:
        log = bench.open(disk).partition(*TP)
        check(disk, log)


def check(disk: FakeDisk, log: PartitionLog) -> None:
    check_against_replay(disk, log)
    unstable = log.snapshot.unstable
    if unstable is not None:
        assert unstable.positions == positions_of_offset(log.snapshot, unstable.offset)


# An empty transaction index looks like none at all, to a broker as well.
DAMAGE = [("snapshot", b""), ("snapshot", b"\1" * 40), ("snapshot", None), ("txnindex", b"\1" * 40)]


@pytest.mark.parametrize("how", ["restart", "kill", "crash", "reload"])
@pytest.mark.parametrize(("suffix", "contents"), DAMAGE)
def test_what_is_damaged_is_recreated(how: str, suffix: str, contents: bytes | None) -> None:
    bench = Bench(PROPERTIES)
    go_on(bench)
    upkeep(bench)
    if how == "restart":
        bench.store.close(bench.now_ms)
    # All of them would look like a log that never had one.
    for name in bench.names(f".{suffix}")[suffix == "snapshot" :]:
        if contents is None:
            bench.disk.remove(f"{TP.directory}/{name}")
        else:
            bench.put(name, contents)
    if how == "restart":
        bench.store = bench.open()
    else:
        getattr(bench, how)()
    check(bench.disk, bench.log)


def test_a_log_whose_snapshots_are_all_gone_is_replayed_after_a_kill() -> None:
    bench = Bench(PROPERTIES)
    go_on(bench)
    upkeep(bench)
    for name in bench.names(".snapshot"):
        bench.disk.remove(f"{TP.directory}/{name}")
    bench.kill()
    check(bench.disk, bench.log)


def test_without_snapshots_a_clean_stop_is_taken_to_mean_that_there_are_no_producers() -> None:
    bench = Bench(PROPERTIES)
    go_on(bench)
    bench.store.close(bench.now_ms)
    for name in bench.names(".snapshot"):
        bench.disk.remove(f"{TP.directory}/{name}")
    bench.store = bench.open()
    assert bench.log.appender.last_records_of_producers() == {}
    assert bench.log.last_stable_offset == bench.log.log_end_offset
    bases = [segment.base_offset for segment in bench.log.snapshot.segments[-2:]]
    offsets = [*bases, bench.log.log_end_offset]
    assert bench.names(".snapshot") == [f"{offset:020}.snapshot" for offset in offsets]
    assert len(batches_of(bench.disk, bench.log)) > 10


def test_a_segment_that_lost_all_its_indexes_gets_its_transaction_index_back() -> None:
    bench = Bench(PROPERTIES)
    go_on(bench)
    bench.store.close(bench.now_ms)
    first = bench.names(".txnindex")[0]
    for kind in ("index", "txnindex"):
        bench.disk.remove(f"{TP.directory}/{first.partition('.')[0]}.{kind}")
    bench.store = bench.open()
    check(bench.disk, bench.log)


def test_a_power_cut_after_a_truncation_shows_no_aborted_records() -> None:
    bench = Bench(PROPERTIES)
    write(bench, 0, b"aborted", transactional=True)
    end(bench, commit=False)
    bench.write(b"plain")
    bench.log.truncate_to(2, bench.now_ms)
    before = bench.log.snapshot.aborted
    upkeep(bench)
    assert bench.crash().log_end_offset == 2
    assert bench.log.snapshot.aborted == before != ()
    check_against_replay(bench.disk, bench.log)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_an_abort_after_a_trim_and_a_crash_covers_all_that_is_left(seed: int | None) -> None:
    bench = Bench({"internal.segment.bytes": "250"})
    write(bench, 0, b"removed", transactional=True)
    bench.log.roll(bench.now_ms)
    write(bench, 1, b"kept", transactional=True)
    bench.log.flush()
    bench.log.advance_log_start_offset(1, bench.now_ms)
    bench.crash(seed)
    bench.reload()
    marker = end(bench, commit=False)
    bench.write(b"after")
    for _ in range(2):
        # The snapshot says where the transaction began, though that segment is gone.
        (aborted,) = bench.log.snapshot.aborted
        assert aborted[:3] == (7, 0, marker)
        committed = GrowingFile(bench.log, View.TEXT, 0, level=IsolationLevel.READ_COMMITTED)
        assert read_all(committed) == b"after\n"
        check_aborted_after_trim(bench.log, History(batches_of(bench.disk, bench.log)))
        bench.log.flush()
        bench.crash(seed)
