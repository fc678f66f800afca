"""Two data directories with one id: one of them owns the store, the other one knows it for good.

The clone of a machine has the disk, the id and the notes of its original. Until one of them writes,
nothing tells them apart; from then on only that one is the owner.
"""

import contextlib
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from logfs.errors import DivergedError, FencedError, LogfsError, RemoteStorageError
from logfs.log.names import OWNED
from logfs.log.remote.head import Head
from logfs.log.remote.reading import read_entries
from logfs.services.retention.logs import apply_retention
from logfs.services.tiering.ownership import OwnedVersions
from logfs.services.tiering.removing import SHORTEST_DELAY_MS
from tests.fakestate import Stopped
from tests.log.support import text_of
from tests.long import Limits
from tests.remote.test_tiering_stops import add_line
from tests.remote.tiering import TIERED, Stop, TieredBench, no_throttle

RESTARTS: list[Stop] = [TieredBench.restart, TieredBench.kill, TieredBench.crash]


def filled() -> TieredBench:
    bench = TieredBench()
    bench.fill(20)
    bench.tier_all()
    return bench


def work(bench: TieredBench) -> None:
    """Do what the daemon does at each look."""
    bench.tiering.run_once(no_throttle, bench.now_ms)
    bench.log.remove_due_files(bench.now_ms)


@pytest.mark.expect_log("fenced")
@pytest.mark.allow_log("snapshot")
@pytest.mark.parametrize("restart", RESTARTS)
def test_a_fenced_daemon_still_knows_it_after_a_restart(restart: Stop) -> None:
    bench = filled()
    clone = bench.clone()
    text = clone.fill(20, first=20)
    work(clone)
    mine = bench.fill(20, first=100)
    with pytest.raises(FencedError):
        work(bench)
    for _ in range(3):
        before = dict(bench.objects.objects)
        restart(bench)
        with pytest.raises(FencedError, match="take-over"):
            work(bench)
        assert bench.objects.objects == before
        assert text_of(bench.log).endswith(mine)
    for _ in range(3):
        restart(clone)
        work(clone)
        assert text_of(clone.log).endswith(text)


@pytest.mark.expect_log("fenced")
def test_a_clone_does_not_fence_an_original_that_has_written_since() -> None:
    bench = filled()
    clone = bench.clone()
    bench.store.alter_topic("t", {"retention.bytes": "400"})
    apply_retention(bench.log, bench.now_ms)
    work(bench)  # no new segment: only the log start moves
    epoch = bench.head.epoch
    with pytest.raises(FencedError, match="a copy of this data directory has written"):
        work(clone)
    clone.restart()
    with pytest.raises(FencedError):
        work(clone)
    bench.fill(20, first=20)
    work(bench)
    assert bench.head.epoch == epoch


@pytest.mark.expect_log("fenced")
def test_a_fenced_daemon_makes_no_new_head_in_the_place_of_a_lost_one() -> None:
    bench = filled()
    clone = bench.clone()
    clone.fill(20, first=20)
    work(clone)
    bench.restart()
    with pytest.raises(FencedError):
        work(bench)
    del bench.objects.objects[bench.place.head]
    bench.restart()
    with pytest.raises(FencedError, match="the head is gone since"):
        work(bench)
    assert bench.place.head not in bench.objects.objects
    clone.fill(20, first=40)
    with contextlib.suppress(RemoteStorageError):
        work(clone)
    work(clone)
    assert len(clone.head.entries) == len(clone.log.snapshot.segments) - 1


@pytest.mark.expect_log("fenced")
def test_after_a_take_over_the_other_one_is_fenced() -> None:
    bench = filled()
    clone = bench.clone()
    bench.tiering.begin(takes_over=True)
    work(bench)
    bench.restart()
    work(bench)
    with pytest.raises(FencedError):
        work(clone)
    clone.restart()
    clone.tiering.begin(takes_over=True)
    clone.restart()
    work(clone)
    clone.restart()
    work(clone)
    bench.fill(20, first=20)
    for _ in range(2):
        with pytest.raises(FencedError):
            work(bench)
        bench.restart()


def test_a_directory_of_an_earlier_version_owns_its_partitions() -> None:
    bench = filled()
    bench.store.close(bench.now_ms)
    bench.disk.remove(f"t-0/{OWNED}")
    bench.write_head_as_earlier_versions()
    bench.store = bench.open()
    bench.fill(20, first=20)
    work(bench)
    assert bench.disk.exists(f"t-0/{OWNED}")
    bench.restart()
    work(bench)
    assert bench.head.epoch == 3


@pytest.mark.allow_log(": fenced", "the one before it is used", "could not be written")
@pytest.mark.parametrize("seed", range(12))
def test_two_clones_that_are_stopped_at_any_moment_never_fight(seed: int) -> None:
    """Both write, work, lose replies, are killed and started; at each step at most one owns."""
    Pair(Random(seed)).run(60)


@pytest.mark.long
@pytest.mark.allow_log(": fenced", "the one before it is used", "could not be written")
def test_many_clones_that_are_stopped_at_any_moment(limits: Limits, counts: Counter[str]) -> None:
    for number in range(400):
        if limits.is_over:
            break
        Pair(Random(limits.seed + number)).run(60)
        counts["pairs of clones"] += 1


class Pair:
    """A daemon and the clone of its machine, and all that they have acknowledged."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        bench = TieredBench({**TIERED, "retention.bytes": "3000"})
        lines: list[bytes] = []
        for _ in range(chance.randint(0, 20)):
            add_line(bench, lines)
        for _ in range(chance.randint(0, 2)):
            work(bench)
        self.benches = [bench, bench.clone()]
        self.lines = [list(lines), list(lines)]
        self.owners: list[TieredBench] = []

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step(self._chance.randrange(2))
        for bench in self.benches * 3:
            bench.kill()
            self._work(bench)
        assert len(self.owners) == 1
        self._check()

    def _step(self, number: int) -> None:
        bench, action = self.benches[number], self._chance.randrange(7)
        if action < 3:
            for _ in range(self._chance.randint(1, 6)):
                add_line(bench, self.lines[number])
            bench.log.maintain()
        elif action == 3:
            self._chance.choice(RESTARTS)(bench)
        elif action == 4:
            bench.objects.lose_reply_of("swap")
        elif action == 5:
            change = self._chance.randrange(6)
            stop = self._chance.choice([bench.objects.stop_before, bench.objects.stop_after])
            stop(change)
        else:
            bench.disk.stop_before(self._chance.randrange(1, 60))
        if action > 2:
            self._work(bench)
            bench.now_ms += self._chance.choice([0, SHORTEST_DELAY_MS + 1])

    def _work(self, bench: TieredBench) -> None:
        before = self._nonce(bench)
        try:
            apply_retention(bench.log, bench.now_ms)
            bench.store.checkpoint()
            work(bench)
            is_stopped = False
        except Stopped:
            is_stopped = True
        except (FencedError, DivergedError):
            is_stopped = False
            assert not self.owners or bench is not self.owners[-1]
        except (LogfsError, OSError):
            is_stopped = False
        bench.objects.heal()
        bench.disk.live_on()
        if self._nonce(bench) != before and (not self.owners or bench is not self.owners[-1]):
            self.owners.append(bench)
            assert len(self.owners) == 1, "the partition has gone from one to the other"
        if is_stopped:
            bench.kill()

    @staticmethod
    def _nonce(bench: TieredBench) -> bytes | None:
        return bench.head.nonce if bench.place.head in bench.objects.objects else None

    def _check(self) -> None:
        """See that the owner reads all its lines, and the loser what it has not given up."""
        owner = self.owners[-1]
        for bench, acknowledged in zip(self.benches, self.lines, strict=True):
            log = bench.log
            start = log.log_start_offset
            if bench is owner:
                found = text_of(log).splitlines(keepends=True)
                assert found[: len(acknowledged) - start] == acknowledged[start:]
        for entry in read_entries(owner.objects, owner.head):
            place = owner.place
            data = owner.objects.objects[place.log(entry.base_offset, entry.segment_id)]
            assert len(data) == entry.size_bytes


def head_of(bench: TieredBench, nonce: int, counter: int) -> Head:
    """Return a version of the head of a bench."""
    return replace(bench.head, is_noted=True, nonce=nonce.to_bytes(16, "big"), counter=counter)


def test_a_note_has_the_known_version_and_what_was_tried_since() -> None:
    bench = filled()
    head = head_of(bench, 1, 100)
    owned = OwnedVersions(bench.disk, "t-0")
    owned.confirm(head)
    tried = [head_of(bench, n, 101) for n in range(2, 60)]
    for one in tried:
        assert owned.begin_change(one.nonce)
    for found in (owned, OwnedVersions(bench.disk, "t-0")):
        assert found.has_written(head)
        assert all(found.has_written(version) for version in tried[-20:])
        assert not found.has_written(head_of(bench, 70, 101))
        assert not found.has_written(head_of(bench, 70, 100))
        assert found.has_written(head_of(bench, 70, 99))  # an older one was put in its place
    owned.confirm(tried[-1])
    owned.begin_change(head_of(bench, 80, 102).nonce)
    known = OwnedVersions(bench.disk, "t-0")
    assert not known.has_written(tried[-2])
    assert known.has_written(tried[-1])
    assert known.has_written(head_of(bench, 80, 102))


def test_a_torn_note_is_the_one_before() -> None:
    bench = filled()
    owned = OwnedVersions(bench.disk, "t-0")
    owned.begin_change(bench.head.nonce)
    owned.lose()
    data = bytearray(bench.disk.read(f"t-0/{OWNED}"))
    for start in (0, 512):
        torn = bytearray(data)
        torn[start + 40 : start + 512] = bytes(472)
        bench.disk.replace(f"t-0/{OWNED}", torn)
        found = OwnedVersions(bench.disk, "t-0")
        assert not found.has_written(head_of(bench, 1, 1000))
        found.lose()
        assert OwnedVersions(bench.disk, "t-0").is_lost


@pytest.mark.expect_log("is a copy")
def test_a_refused_copy_sends_no_request_and_keeps_its_records() -> None:
    bench = filled()
    clone = bench.clone()
    clone.tiering._refusal = "this data directory is a copy"
    more = clone.fill(20, first=20)
    bench.objects.asked.clear()
    with pytest.raises(FencedError, match="is a copy"):
        work(clone)
    assert not bench.objects.asked
    assert text_of(clone.log).endswith(more)
    bench.fill(20, first=20)
    work(bench)
