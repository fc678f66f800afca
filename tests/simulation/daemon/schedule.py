"""What happens when: one seed decides it, and the digest is a hash of all that happened."""

import collections
import hashlib
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulation.daemon import calls
from tests.simulation.daemon.child import Daemon, DefectError, Setting
from tests.simulation.daemon.clients import TOPIC, Clients
from tests.simulation.daemon.decisions import Decisions, kind_of, shrink
from tests.simulation.daemon.kernel import FuseError, Kernel
from tests.simulation.daemon.plans import Plan
from tests.simulation.daemon.power import Kind, PowerCut
from tests.simulation.daemon.preloading import Shared

_MEMORY = Path("/dev/shm")
_MOST_STEPS = 100_000
_TIME_STEPS_S = (0.001, 0.05, 1.0, 10.0, 70.0)
_PAUSES_S = (0.0, 0.1, 5.0)
_SIGNS = "Traceback", "a bug in logfs", "CRITICAL", "ERROR"
"""What the log of a daemon must not contain; errors, if the disk has none."""
_ENDED_SUCCESSOR = "not reloaded, this daemon continues"
"""What it may contain: the simulation has ended a successor, or it was not warm in time."""


@dataclass(frozen=True)
class Outcome:
    """What a run has come to.

    Attributes:
        defect: What is wrong; None: nothing was found.
        digest: A hash of all that went to the disk and to the kernel.
        simulated_s: How long it took for the daemon.
        decisions: Those that have taken effect, by their numbers.
    """

    seed: int
    defect: str | None
    digest: str
    counts: collections.Counter[str]
    simulated_s: float
    decisions: Mapping[int, str]

    def line(self) -> str:
        """Return it as a line of text."""
        counts = self.counts
        return (
            f"seed {self.seed}: {counts['starts']} starts, {counts['planned restarts']} planned "
            f"restarts, {counts['power cuts']} power cuts, {counts['replies']} replies, "
            f"{counts['objects']} objects, {counts['lines']} lines, "
            f"{self.simulated_s:.0f} s simulated, digest {self.digest}"
        )


class Run:
    """One run.

    Args:
        seed: Decides everything.
        directory: For the data, and the log of the daemons.
        trace: A file for what happens, as text; None: none.
        is_control: Power cuts take what was synced, too.
        only: The numbers of the decisions that take effect; None: all.
    """

    def __init__(
        self,
        seed: int,
        directory: Path,
        trace: Path | None,
        *,
        is_control: bool,
        only: Iterable[int] | None,
    ) -> None:
        self.choice = random.Random(seed)
        self.decisions = Decisions(only)
        # What came later has other choices, so that earlier seeds are still the same runs.
        self._later = random.Random(f"{seed} later")
        self.plan = replace(Plan.of(self.choice), reloads=self._later.choice([0.0, 0.0, 0.02]))
        self.counts: collections.Counter[str] = collections.Counter()
        self._trace = None if trace is None else trace.open("ab", buffering=0)
        self.note(f"{self.plan}")
        setting = Setting(
            seed,
            self.plan.options,
            self.plan.slow,
            cuts_power=self.plan.cuts > 0,
            has_store=self.plan.has_store,
            trace=trace,
        )
        self._digest = hashlib.sha256()
        self.kernel = self._new_kernel()
        self.daemon = Daemon(directory, setting, self.kernel)
        self._begun_s = self.daemon.now_s
        self.clients = Clients(self.choice, self._takes, self.plan)
        self._is_control = is_control
        self._is_calm = True
        self._is_stuck = self._has_failed = False

    def note(self, text: str) -> None:
        """Write a line for readers."""
        if self._trace is not None:
            self._trace.write(text.encode() + b"\n")

    def _takes(self, what: str) -> bool:
        """Return whether the next decision takes effect."""
        takes = self.decisions.takes(what)
        self.note(what if takes else f"not: {what}")
        return takes

    def _new_kernel(self) -> Kernel:
        return Kernel(self.choice, resends=self.plan.resends, note=self.note)

    def make(self) -> None:
        """Make the run.

        Raises:
            DefectError, FuseError: Something is wrong.
        """
        self._mount()
        self.kernel.spawn(self.clients.set_up(self.kernel), "setup")
        self._drive(self._is_quiet)
        for _ in range(self.plan.cuts):
            if not self._takes("a power cut to come"):
                continue
            self._start_clients()
            steps = self.choice.randrange(20, 400)
            self._is_calm = False
            self._drive(lambda: self._is_quiet() or self._after(steps))  # noqa: B023 - used at once
            self._cut_power()
        self._start_clients()
        self._is_calm = False
        self._drive(lambda: not self.clients.writing and self._only_followers())
        self._calm()
        self._drive(self._interrupted)
        self.clients.judge_readers()
        text = self._read_all()
        self.clients.judge(text)
        self._end_mount()
        self._mount()
        found = self._read_all()
        if found != text and not (self.plan.retains and text.endswith(found)):
            raise DefectError("the log is another one after a clean stop")
        self._end_mount()
        self._look_at_log()

    def outcome(self, seed: int, defect: str | None) -> Outcome:
        """Return what it has come to, after ``close``."""
        counts = self.counts + self.clients.counts
        counts["starts"], counts["planned restarts"] = self.daemon.lives, self.daemon.planned
        counts["hand-overs to a successor"] = self.daemon.handed_over
        simulated_s = self.daemon.now_s - self._begun_s
        digest = self._digest.hexdigest()[:16]
        return Outcome(seed, defect, digest, counts, simulated_s, self.decisions.taken)

    def close(self) -> None:
        """End it."""
        self._note_kernel()
        self.counts["objects"] = self.daemon.objects
        self.daemon.close()
        self._digest.update(repr(self.daemon.hashes).encode())
        if self._trace is not None:
            self._trace.close()

    # Parts

    def _mount(self) -> None:
        self.kernel.mount()
        if not self._start():
            self._after_end()

    def _start(self) -> bool:
        self.note(f"start {self.daemon.lives + 1} at {self.daemon.now_s:.6f}")
        return self.daemon.start()

    def _start_clients(self) -> None:
        clients, kernel, plan = self.clients, self.kernel, self.plan
        for writer in range(plan.writers):
            kernel.spawn(clients.write(kernel, writer), f"writer {writer}")
        kernel.spawn(clients.tail(kernel), "tail")
        for number in range(plan.followers):
            polls = self.choice.random() < 0.5
            task = kernel.spawn(clients.follow(kernel, polls=polls), f"follower {number}")
            clients.follow_tasks.append(task)
        for number in range(plan.topic_clients):
            kernel.spawn(clients.change_topics(kernel), f"topics {number}")
        if plan.retains:
            kernel.spawn(clients.retain(kernel), "retention")
        for number in range(plan.writers, plan.writers + plan.controls):
            kernel.spawn(clients.ask(kernel, self.daemon.data, number), f"client {number}")
        clients.writing = plan.writers + plan.controls
        self._steps_left = 0
        if plan.store_faults and self._takes("faults of the store"):
            self.daemon.words[Shared.STORE_FAULTS] = plan.store_faults

    def _is_quiet(self) -> bool:
        return not self.kernel.tasks and not self.kernel.pending

    def _after(self, steps: int) -> bool:
        self._steps_left += 1
        return self._steps_left > steps

    def _only_followers(self) -> bool:
        return all(task in self.clients.follow_tasks for task in self.kernel.tasks)

    def _interrupted(self) -> bool:
        if self.daemon.pid:
            self.clients.interrupt_followers(self.kernel)
        return self._is_quiet()

    def _read_all(self) -> bytes:
        found: list[bytes] = []

        def read() -> calls.Call:
            found.append((yield from calls.cat(self.kernel, f"{TOPIC}/0")))

        self.kernel.spawn(read(), "cat")
        self._drive(lambda: self._is_quiet() and self.daemon.pid != 0)
        return found[0]

    def _end_mount(self) -> None:
        """Unmount, or end the daemon by a signal."""
        if self.choice.random() < 0.5:
            self.note("unmount")
            self.kernel.unmount()
        else:
            self.note("SIGTERM")
            self.daemon.signal(signal.SIGTERM)
        for _ in range(_MOST_STEPS):
            if not self.daemon.pid:
                break
            self._move_time()
            self.daemon.go()
        else:
            raise DefectError("the daemon does not end")
        if self.daemon.status != 0:
            raise DefectError(f"a clean stop ended with {self.daemon.status}")
        self._make_kernel()

    def _make_kernel(self) -> None:
        self._note_kernel()
        self.kernel.close()
        self.kernel = self._new_kernel()
        self.daemon.forget_mount(self.kernel)

    def _note_kernel(self) -> None:
        self._digest.update(self.kernel.digest.digest())
        self.counts.update(self.kernel.counts)

    def _cut_power(self) -> None:
        """Cut the power: programs end, and what was not synced may be lost."""
        self.daemon.kill()
        self._make_kernel()
        self.daemon.boots += 1
        self._calm()
        cut = PowerCut(self.daemon.data, self.choice)
        changes = self.daemon.changes()
        if self._is_control:
            changes = [change for change in changes if change.kind is not Kind.SYNCED]
        cut.apply(changes)
        self.note(f"power cut, undone: {dict(cut.undone)}")
        self.counts["power cuts"] += 1
        self._mount()
        self.clients.judge_readers()
        self.clients.continue_after_power_cut(self._read_all())

    def _calm(self) -> None:
        """Disturb the daemon no more."""
        self._is_calm = True
        self.daemon.words[Shared.ROOM] = self.daemon.words[Shared.CALLS_LEFT] = -1
        self.daemon.words[Shared.STORE_FAULTS], self.daemon.words[Shared.FAILS_LEFT] = 0, -1

    def _look_at_log(self) -> None:
        lines = self.daemon.log.read_text().splitlines(keepends=True)
        log = "".join(line for line in lines if _ENDED_SUCCESSOR not in line)
        for sign in _SIGNS[:-1] if self.plan.fails else _SIGNS:
            at = log.find(sign)
            if at >= 0:
                raise DefectError(f"the log contains: {log[max(at - 200, 0) : at + 1500]}")

    # Steps

    def _drive(self, is_over: Callable[[], bool]) -> None:
        """Let programs and daemon run in turn until something holds."""
        for _ in range(_MOST_STEPS):
            if is_over():
                return
            self._step()
        waiting = [f"{p.opcode.name} {p.unique}" for p in self.kernel.pending.values()]
        raise DefectError(f"no end after {_MOST_STEPS} steps; without a reply: {waiting[:9]}")

    def _step(self) -> None:
        choice, kernel, daemon = self.choice, self.kernel, self.daemon
        if not daemon.pid:
            self._after_end()
            return
        if kernel.ready and choice.random() < 0.75:
            for _ in range(choice.choice([1, 1, 2, 4])):
                if kernel.ready:
                    kernel.step()
            return
        if not self._is_calm:
            self._disturb()
            if not daemon.pid:
                return
        if choice.random() < 0.15 or self._is_stuck or not (kernel.pending or kernel.ready):
            self._move_time()
            kernel.let_time_pass()
        waiting = daemon.successor
        if waiting is not None and not waiting.is_warm and self._later.random() < 0.2:
            self.note("the successor is warm")
            daemon.warm_successor()
        before = kernel.messages
        daemon.go()
        self._is_stuck = kernel.messages == before and choice.random() < 0.5

    def _move_time(self) -> None:
        daemon = self.daemon
        to_s = min(daemon.deadline_s, daemon.now_s + self.choice.choice(_TIME_STEPS_S))
        daemon.move_time(to_s)
        self.note(f"time {daemon.now_s:.6f}")

    def _disturb(self) -> None:
        choice, plan, daemon = self.choice, self.plan, self.daemon
        if choice.random() < plan.kills and not self._has_suspects():
            if choice.random() < 0.2:
                if self._takes("kill"):
                    daemon.kill()
                    return
            else:
                self._arm(choice.choice([0, 1, 2, 3, choice.randrange(10), choice.randrange(60)]))
        if choice.random() < plan.restarts and not self._has_suspects() and self._takes("SIGUSR2"):
            daemon.signal(signal.SIGUSR2)
        if plan.reloads:
            self._reload()
        if choice.random() < plan.full:
            is_full = daemon.words[Shared.ROOM] >= 0
            room = -1 if is_full else choice.choice([0, 100, 5000, 100_000])
            if self._takes(f"room {room}"):
                daemon.words[Shared.ROOM] = room
        self._fail()

    def _fail(self) -> None:
        """Have the disk fail at a coming change, or end the daemon that has met it."""
        choice, daemon = self.choice, self.daemon
        if choice.random() < self.plan.fails:
            at, count = choice.randrange(40), choice.choice([1, 1, 2, 5])
            if self._takes(f"{count} errors from change {at} on"):
                daemon.words[Shared.FAILURES], daemon.words[Shared.FAILS_LEFT] = count, at
                self._has_failed = True
        elif self._has_failed and choice.random() < 0.05 and not self._has_suspects():
            # A partition that has failed comes back with the mount: readers keep it open.
            self._has_failed, daemon.words[Shared.FAILS_LEFT] = False, -1
            self.note("SIGUSR2 after an error")
            daemon.signal(signal.SIGUSR2)

    def _reload(self) -> None:
        """Have a successor started, or end one."""
        daemon, chance = self.daemon, self._later.random()
        if daemon.successor is not None:
            if chance < 0.02 and self._takes("kill of the successor"):
                daemon.kill_successor()
        elif chance < self.plan.reloads and not self._has_suspects() and self._takes("SIGUSR1"):
            daemon.signal(signal.SIGUSR1)

    def _has_suspects(self) -> bool:
        """Whether a request would be taken for one that ends the daemons, and get EIO."""
        return any(
            request.deaths and request.task not in self.clients.follow_tasks
            for request in self.kernel.pending.values()
        )

    def _arm(self, changes: int) -> None:
        words = self.daemon.words
        part = self.choice.randrange(256)
        if not self.plan.resends:
            # Never between a reply and the note of it. Such a kernel does not say that it has the
            # reply, and what was answered with an error is done again.
            part &= ~1
        if self._takes(f"kill at change {changes}"):
            words[Shared.PART], words[Shared.CALLS_LEFT] = part, changes

    def _after_end(self) -> None:
        choice, daemon = self.choice, self.daemon
        self.note(f"the daemon has ended: {daemon.status}")
        self.kernel.daemon_ended()
        if not daemon.is_kept:
            raise DefectError(f"the daemon ended with {daemon.status} before it served")
        daemon.move_time(daemon.now_s + choice.choice(_PAUSES_S))
        if not self._is_calm and choice.random() < min(5 * self.plan.kills, 0.25):
            self._arm(choice.choice([choice.randrange(20), choice.randrange(200)]))
        self._start()


def make_run(
    seed: int,
    trace: Path | None = None,
    keep: Path | None = None,
    *,
    is_control: bool = False,
    only: Iterable[int] | None = None,
) -> Outcome:
    """Make a run.

    Args:
        seed: Decides everything.
        trace: A file for what happens, as text; None: none.
        keep: A directory that gets the data and the log of the daemons; None: they are removed.
        is_control: Power cuts take what was synced, too.
        only: The numbers of the decisions that take effect; None: all.
    """
    if trace is not None:
        trace.write_bytes(b"")
    place = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="simulation-", dir=place) as name:
        directory, defect = Path(name) / "run", None
        directory.mkdir()
        run = Run(seed, directory, trace, is_control=is_control, only=only)
        try:
            run.make()
        except (DefectError, FuseError) as error:
            defect = f"{type(error).__name__}: {error}"
        finally:
            run.close()
        if keep is not None:
            without = shutil.ignore_patterns("*.socket")
            shutil.copytree(directory, keep, ignore=without, dirs_exist_ok=True)
    return run.outcome(seed, defect)


def shrunk(found: Outcome, most_runs: int, *, is_control: bool = False) -> Outcome:
    """Return a run that finds the same defect with fewer decisions, after so many runs at most."""
    best, kind = found, kind_of(found.defect or "")

    def fails(only: list[int]) -> bool:
        nonlocal best
        outcome = make_run(found.seed, is_control=is_control, only=only)
        is_same = outcome.defect is not None and kind_of(outcome.defect) == kind
        if is_same and len(outcome.decisions) <= len(best.decisions):
            best = outcome
        return is_same

    shrink(found.decisions, fails, most_runs)
    return best
