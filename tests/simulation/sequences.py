"""All short sequences of operations, stopped at each change of the last one.

A sequence runs once. Each moment of its last operation is a copy of everything, which every fault
stops and a ``Judgment`` judges. States that were judged before are skipped.
"""

import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.model.account import Defect
from tests.simulation.judging import Judgment
from tests.simulation.machine import KINDS, Kind, without_threads
from tests.simulation.operations import Run
from tests.simulation.stops import FIRST, SECOND, Fault, Moment, Moments


@dataclass(frozen=True)
class Failure:
    """A sequence that finds a defect.

    Attributes:
        stops: The names of the stops, each with what would have come next.
        where: The call that raised, if it was not the comparison.
    """

    kind: str
    sequence: tuple[str, ...]
    stops: tuple[tuple[str, str], ...]
    error: str
    where: str

    @property
    def command(self) -> str:
        """What repeats it."""
        command = f"python -m tests.simulation sequences --kind {self.kind}"
        options = [f"--sequence {','.join(self.sequence)}"]
        names = zip(("--stop", "--second"), self.stops, strict=False)
        return " ".join([command, *options, *(f"{option} {name}" for option, (name, _) in names)])

    def __str__(self) -> str:
        rows = [f"{self.kind} {','.join(self.sequence)}: {self.error}"]
        rows += [f"  stop {name}: before {event}" for name, event in self.stops]
        return "\n".join([*rows, f"  {self.command}{self.where}"])


class Search:
    """Runs sequences, and keeps what they find.

    Args:
        kind: The kind of the topic.
        second: Which sequences have second stops: those of up to so many operations.
        only_stop, only_second: The names of the only stops that are judged; "": all.

    Attributes:
        counts: What was done.
        failures: The sequences that have found a defect.
        report: Called with each of them.
    """

    def __init__(
        self, kind: Kind, *, second: int = 0, only_stop: str = "", only_second: str = ""
    ) -> None:
        self.kind = kind
        self.counts: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self.report: Callable[[Failure], object] = lambda _: None
        self._is_over: Callable[[], bool] = lambda: False
        self._second = second
        self._only_stop = only_stop
        self._only_second = only_second
        self._seen: set[tuple[int, bool]] = set()

    def run_all(
        self,
        sequences: Iterable[tuple[str, ...]],
        seconds: float = 1e9,
        failures: int = 10,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run sequences, until there are so many failures or the time is over, also within one.

        Args:
            sequences: Their operations.
            seconds: How long, of the processor.
            failures: How many failures end it.
            is_over: Asked whether the time is over.
        """
        until_s = time.process_time() + seconds
        self._is_over = lambda: (
            time.process_time() >= until_s or is_over() or len(self.failures) >= failures
        )
        with quiet(), without_threads():
            for sequence in sequences:
                if self._is_over():
                    return
                self._run(sequence)

    def _run(self, sequence: tuple[str, ...]) -> None:
        self.counts["sequences"] += 1
        moments = None
        try:
            run = Run.begun(self.kind)
            for name in sequence[:-1]:
                run.do(name)
            moments = Moments(run.machine)
            with moments.taken():
                run.do(sequence[-1])
        except Exception as error:  # noqa: BLE001 - any error is a defect
            self._fail(sequence, (), error)
        found = [] if moments is None else moments.found
        for moment, fault in ((one, fault) for one in found for fault in one.faults):
            self._judge(sequence, moment, fault)

    def _judge(self, sequence: tuple[str, ...], moment: Moment, fault: Fault) -> None:
        name = f"{moment.name}/{fault.name}"
        if self._only_stop not in ("", name) or self._is_over():
            return
        may_again = fault in FIRST or name == self._only_stop
        again = may_again and (len(sequence) <= self._second or bool(self._only_second))
        judgment = Judgment(self.kind, moment.scene, fault, f"{sequence} {name}")
        if not self._is_new(judgment, again=again):
            return
        stops = ((name, moment.event),)
        try:
            judgment.judge(is_stopped_again=again)
        except Exception as error:  # noqa: BLE001 - any error is a defect
            self._fail(sequence, stops, error)
            return
        for second, last in ((s, f) for s in judgment.moments for f in SECOND):
            self._judge_second(sequence, stops, second, last)

    def _judge_second(
        self,
        sequence: tuple[str, ...],
        stops: tuple[tuple[str, str], ...],
        moment: Moment,
        fault: Fault,
    ) -> None:
        name = f"{moment.name}/{fault.name}"
        if self._only_second not in ("", name) or self._is_over():
            return
        judgment = Judgment(self.kind, moment.scene, fault, f"{sequence} {stops[0][0]} {name}")
        if not self._is_new(judgment, again=False):
            return
        self.counts["second stops judged"] += 1
        try:
            judgment.judge()
        except Exception as error:  # noqa: BLE001 - any error is a defect
            self._fail(sequence, (*stops, (name, moment.event)), error)

    def _is_new(self, judgment: Judgment, *, again: bool) -> bool:
        key = judgment.key(), again
        if key in self._seen:
            self.counts["states seen before"] += 1
            return False
        self._seen.add(key)
        self.counts["states judged"] += 1
        return True

    def _fail(
        self, sequence: tuple[str, ...], stops: tuple[tuple[str, str], ...], error: Exception
    ) -> None:
        self.counts["violations"] += 1
        where = "" if isinstance(error, Defect) else f"\n{traceback.format_exc()}"
        what = f"{type(error).__name__}: {error}"
        failure = Failure(self.kind.name, sequence, stops, what, where)
        self.failures.append(failure)
        self.report(failure)


@contextmanager
def quiet() -> Iterator[None]:
    """Have the store log nothing, which tells what was done to it."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def kinds_named(name: str | None) -> list[Kind]:
    """Return a kind, or all of them."""
    return list(KINDS.values()) if name is None else [KINDS[name]]
