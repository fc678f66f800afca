"""Schedules of the model: made from a seed, run, and made shorter if they find a defect.

python -m tests.model FIRST_SEED COUNT      runs that many seeds and prints what they found
python -m tests.model SEED 1 --shrink       prints the steps that are left of a seed that fails
"""

import logging
import re
import traceback
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.fakes import native_writes
from tests.fakestate import Stopped
from tests.model.account import Defect, StopKind
from tests.model.machine import Machine, short_leases, short_pages
from tests.model.steps import STEPS, WEIGHTS

STEPS_A_SEED = 60
FULL_STARTS = 0.2
"""How many starts after stops inside a step find no room, and are killed before there is any."""
STOPS = (StopKind.KILL, StopKind.POWER, StopKind.POWER, StopKind.CACHE)


class Planned(NamedTuple):
    """One step of a schedule.

    Attributes:
        step: Its name in ``STEPS``.
        seed: What it draws from.
        death: The process dies before this change of the step, if it comes to that many.
        torn: How much of it is done if it is a write.
        stop: How everything stops after the step, or once the process is dead.
    """

    step: str
    seed: int
    death: int | None = None
    torn: float = 0.0
    stop: StopKind | None = None


@dataclass(frozen=True)
class Failure:
    """A schedule that finds a defect."""

    seed: int
    plan: tuple[Planned, ...]
    error: str
    where: str

    @property
    def summary(self) -> str:
        """In a line, without the steps."""
        return f"seed {self.seed}: {self.error}"

    @property
    def kind(self) -> str:
        """What happened, without what it happened to."""
        return re.sub(r"^[^:]*: \w/\d|[(b]?['<].*|\d+", "", self.error)[:50]

    def __str__(self) -> str:
        return "\n".join([f"{self.summary}{self.where}", *map(str, self.plan)])


def plan_of(seed: int, steps: int = STEPS_A_SEED) -> tuple[Planned, ...]:
    """Return the schedule of a seed."""
    random = Random(seed)
    names, weights = [step.__name__ for step in WEIGHTS], list(WEIGHTS.values())
    plan = []
    for name in random.choices(names, weights, k=steps):
        planned = Planned(name, random.getrandbits(32))
        if random.random() < 0.14:
            death = random.choice([random.randint(0, 4), random.randint(0, 40)])
            torn = random.choice([0.0, random.random()])
            planned = planned._replace(death=death, torn=torn, stop=random.choice(STOPS))
        plan.append(planned)
    return (*plan, Planned("flush", random.getrandbits(32), stop=StopKind.POWER))


def without(plan: Sequence[Planned], names: Collection[str]) -> tuple[Planned, ...]:
    """Leave steps and kinds of stops out."""
    return tuple(
        step._replace(stop=None) if step.stop and step.stop.name.lower() in names else step
        for step in plan
        if step.step not in names
    )


def run_plan(seed: int, plan: Sequence[Planned], counts: Counter[str]) -> None:
    """Run a schedule.

    Raises:
        Defect: A promise was broken.
        Exception: So it was if anything else comes out.
    """
    with native_writes() as descriptors:
        _run(Machine(Random(seed), counts, descriptors), plan, counts)


def _run(machine: Machine, plan: Sequence[Planned], counts: Counter[str]) -> None:
    for planned in plan:
        random = Random(planned.seed)
        if planned.death is not None:
            machine.disk.stop_before(planned.death, torn=planned.torn)
        try:
            STEPS[planned.step](machine, random)
            machine.disk.live_on()
            machine.learn()
        except Stopped:
            counts["stops inside a step"] += 1
            is_full = random.random() < FULL_STARTS
            machine.stop(random, planned.stop or StopKind.KILL, is_full=is_full)
            continue
        if planned.stop is not None and random.random() < 0.6:
            machine.stop(random, planned.stop)


def try_plan(seed: int, plan: Sequence[Planned], counts: Counter[str]) -> Failure | None:
    """Run a schedule; returns the defect it finds."""
    counts["schedules"] += 1
    logging.disable(logging.CRITICAL)
    try:
        with short_leases(), short_pages():
            run_plan(seed, plan, counts)
    except Exception as error:  # noqa: BLE001 - any error is a defect
        counts["defects"] += 1
        where = "" if isinstance(error, Defect) else f"\n{traceback.format_exc()}"
        return Failure(seed, tuple(plan), f"{type(error).__name__}: {error}", where)
    finally:
        logging.disable(logging.NOTSET)
    return None


def try_seed(seed: int, counts: Counter[str], left_out: Collection[str] = ()) -> Failure | None:
    """Run the schedule of a seed; returns the defect it finds."""
    return try_plan(seed, without(plan_of(seed), left_out), counts)


def shrink(failure: Failure) -> Failure:
    """Leave out steps, deaths and stops for as long as the same kind of defect is found."""

    def attempt(plan: Sequence[Planned]) -> Failure | None:
        found = try_plan(failure.seed, plan, Counter())
        return found if found is not None and found.kind == failure.kind else None

    size = len(failure.plan) // 2
    while size:
        first = 0
        while first < len(failure.plan):
            shorter = failure.plan[:first] + failure.plan[first + size :]
            found = attempt(shorter)
            if found is None:
                first += size
            else:
                failure = found
        size //= 2
    for number in range(len(failure.plan)):
        step = failure.plan[number]
        plain = Planned(step.step, step.seed)
        for simpler in (plain, plain._replace(stop=step.stop), step._replace(torn=0.0)):
            if simpler != failure.plan[number]:
                plan = [*failure.plan[:number], simpler, *failure.plan[number + 1 :]]
                failure = attempt(plan) or failure
    return failure
