"""What every kind of reader finds after a stop, compared with what programs were told.

A judgment opens the directory read-only, follows it, starts the store for writing and compares.
Then come a write, an fsync, maintenance and a power cut, and it compares again. All of it may be
stopped once more: ``Judgment.moments``.
"""

from contextlib import nullcontext

from logfs.errors import LogfsError
from logfs.log.reading.readable import ReadableLog
from logfs.services.following.listing import RACY_MS
from logfs.services.following.store import FollowedStore
from tests.fakestate import CHANGES
from tests.model.account import Account, Defect, Found, StopKind
from tests.model.machine import damage_checksums, lines_from, look_at
from tests.simulation.machine import GROUPS, Kind, Machine, Scene, T, places_of
from tests.simulation.operations import MINUTE_MS, Run
from tests.simulation.stops import Fault, Moment, Moments

_CHANGES = CHANGES - {"open"}
_COMPACTED_GAP = 16
"""More records than a sequence makes."""
_LOOKS = 3
"""Two looks of a follower have to agree on names that change."""


class Judgment:
    """One stop, and what comes after it.

    Args:
        scene: What the stop leaves; it is copied.
        fault: How it stops.
        where: Names the moment, for the seed of what a power cut keeps.

    Attributes:
        moments: Where it could have stopped again, if that is wanted.
    """

    def __init__(self, kind: Kind, scene: Scene, fault: Fault, where: str) -> None:
        copy = scene._replace(disk=scene.disk.after_kill())
        self.moments: list[Moment] = []
        self._fault = fault
        self._machine = Machine(kind, copy)
        self._machine.stop(fault.kind, fault.seed(where))
        if fault.kind.is_lossy:
            damage_checksums(self._machine.disk, _COMPACTED_GAP if kind.name == "compacted" else 0)
        self._told = self._machine.told
        if fault.damages:
            self._machine.damage_end()

    def key(self) -> int:
        """Return a number that is the same for what must be judged the same."""
        scene = self._machine.scene()
        objects = None if scene.objects is None else tuple(sorted(scene.objects.items()))
        return hash((scene.disk.digest(), objects, scene.told, scene.boot, scene.now_ms))

    def judge(self, *, is_stopped_again: bool = False) -> None:
        """Compare.

        Raises:
            Defect: A promise was broken.
            Exception: So it was if anything else comes out.
        """
        machine = self._machine
        if self._fault.room is not None:
            self._start_full(self._fault.room)
            if not self._fault.is_killed:
                machine.maintain(MINUTE_MS)
                self._settle()
                self._continue()
                self._end()
                return
            machine.disk.kill()
        shown, followed = self._look_read_only()
        planned = machine.stored_end() if shown else 0
        moments = Moments(machine)
        try:
            with moments.taken() if is_stopped_again else nullcontext():
                machine.start()
                has_topic = self._settle()
                if has_topic:
                    self._check_readers(shown, followed, planned)
                # A checkpoint makes more durable than an fsync does: not after every kill.
                self._continue(is_maintained=self._fault.kind.is_lossy or is_stopped_again)
                if has_topic:
                    self._check_followed(followed)
        finally:
            self.moments = moments.found
            followed.close(machine.now_ms)
        self._end()

    def _end(self) -> None:
        """Cut the power so that only what was promised is left, and compare."""
        self._machine.stop(StopKind.POWER, None)
        self._machine.start()
        self._settle()

    def _look_read_only(self) -> tuple[list[list[Found]], FollowedStore]:
        """Have those look that must not write, before the recovery."""
        machine = self._machine
        machine.disk.counts.clear()
        shown, followed = [], machine.follow()
        for reader in (machine.open_read_only(), followed):
            if "t" in reader.topics():
                log: ReadableLog = reader.partition(*T)
                shown.append(list(lines_from(log, machine.view, 0)))
        changed = sorted(name for name in _CHANGES if machine.disk.counts[name])
        if changed:
            raise Defect(f"readers that must not write have done {changed}")
        return shown, followed

    def _start_full(self, room: int) -> None:
        """Start on a disk that is nearly full, and compare; then there is room."""
        machine = self._machine
        machine.disk.fill()
        machine.disk.space_bytes = machine.disk.used_bytes + room
        machine.start()
        self._settle(may_wait=True)
        machine.disk.space_bytes, machine.disk.names_need_room = None, False

    def _settle(self, *, may_wait: bool = False) -> bool:
        """Compare what is there with what was told; return whether there is a topic."""
        machine, told = self._machine, self._told
        told.topic.settle(Account("t/0", machine.view), is_there=machine.has_topic)
        if told.topic.account is None:
            return False
        worst = told.worst or StopKind.KILL
        look = look_at(machine.log, machine.view)
        has_cut = told.has_cut and worst.is_lossy
        told.account.settle(look, worst, may_wait=may_wait, has_failed=has_cut)
        told.has_cut &= not worst.is_lossy
        told.account.note_offsets(look.found, places_of(machine.log, machine.view))
        self._settle_group()
        if not may_wait:
            told.worst = None
        return True

    def _settle_group(self) -> None:
        """Promise 5: ``@group=NAME`` begins at the position that a group has committed.

        The commits here are durable ones: those that have returned survive every stop.
        """
        has_groups = GROUPS.topic in self._machine.store.topics()
        committed = self._machine.committed() if has_groups else None
        if committed not in self._told.committed:
            raise Defect(f"the group is at {committed}, and has committed {self._told.committed}")

    def _check_readers(
        self, shown: list[list[Found]], followed: FollowedStore, planned: int
    ) -> None:
        machine = self._machine
        if planned > machine.log.log_end_offset:
            raise Defect(f"a query has planned {planned} offsets, recovery keeps "
                         f"{machine.log.log_end_offset}")  # fmt: skip
        kept = list(lines_from(machine.log, machine.view, 0))
        for found in shown:
            self._told.account.check_read_only(found, kept)
        self._check_followed(followed)

    def _check_followed(self, followed: FollowedStore) -> None:
        """Promise 6: a directory that another process writes is shown as it is there."""
        machine = self._machine
        try:
            for _ in range(_LOOKS):
                followed.look_around(machine.now_ms)
                for each in followed.followed():
                    while each.refresh(machine.now_ms):
                        pass
                machine.pass_time(RACY_MS)
            log = followed.partition(*T)
        except LogfsError as error:
            raise Defect(f"a follower: {error}") from error
        found = list(lines_from(log, machine.view, 0))
        kept = list(lines_from(machine.log, machine.view, 0))
        if found != kept:
            raise Defect(f"a follower shows {brief(found)}, the owner {brief(kept)}")
        end = machine.stored_end()
        if end != machine.log.log_end_offset:
            raise Defect(
                f"a query that plans sees end {end}, the owner {machine.log.log_end_offset}"
            )

    def _continue(self, *, is_maintained: bool = True) -> None:
        """Write two lines, sync them, and do what a daemon does in a minute."""
        if not self._machine.has_topic:
            self._machine.maintain(MINUTE_MS)
            return
        run = Run(self._machine)
        run.write(2)
        run.sync()
        run.close()
        if is_maintained:
            run.maintain()
        run.learn()


def brief(found: list[Found]) -> list[tuple[int, bytes]]:
    """Return the beginnings of lines."""
    return [(at, text[:14]) for at, text in found]
