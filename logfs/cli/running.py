"""Running what copies between logs and clusters: threads, signals, exit statuses."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from logfs.cli import failures
from logfs.errors import ClusterRefusedError, ClusterUnreachableError, LogfsError
from logfs.machine.notifying import Notifier

UNREACHABLE = 75
"""As EX_TEMPFAIL of sysexits.h: try again later."""


class Stoppable(Protocol):
    """The owner of a run, which ends it."""

    stopping: threading.Event

    def want_look(self) -> None:
        """Have the run look at it at once."""


class Copying(Protocol):
    """A mirror or a forward.

    Attributes:
        when_ready, when_alive: Called when it works, and from time to time with its state.
    """

    when_ready: Callable[[], None]
    when_alive: Callable[[str], None]

    @property
    def owner(self) -> Stoppable:
        """The owner, which ends the run."""

    @property
    def failures(self) -> list[str]:
        """Why parts of it do not continue."""

    @property
    def losses(self) -> int:
        """How often records were lost."""

    def run(self) -> None:
        """Copy until told to stop."""


class Copies:
    """The copies in this process, one thread each, and the messages to the service manager."""

    def __init__(self, made: Sequence[Copying]) -> None:
        self._made = made
        self._notifier = Notifier.from_environment(os.environ)
        self._states = ["" for _ in made]
        self._waiting = set(range(len(made)))
        self._statuses = [0 for _ in made]
        for number, one in enumerate(made):
            one.when_alive = partial(self._alive, number)
            one.when_ready = partial(self._ready, number)

    def run(self) -> int:
        """Run them until they end, or a signal comes; returns the worst exit status."""
        threads = [
            threading.Thread(target=self._work, args=(number,))
            for number in range(1, len(self._made))
        ]
        before = {n: signal.signal(n, self._stop) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            for thread in threads:
                thread.start()
            self._work(0)
            for thread in threads:
                thread.join()
        finally:
            self._notifier.stopping()
            for number, handler in before.items():
                signal.signal(number, handler)
        return max(self._statuses)

    def _work(self, number: int) -> None:
        self._statuses[number] = _status_of(self._made[number])

    def _alive(self, number: int, text: str) -> None:
        self._states[number] = text
        self._notifier.alive("; ".join(filter(None, self._states)))

    def _ready(self, number: int) -> None:
        self._waiting.discard(number)
        if not self._waiting:
            self._notifier.ready()

    def _stop(self, _number: int, _frame: object) -> None:
        for one in self._made:
            one.owner.stopping.set()
            one.owner.want_look()


def _status_of(one: Copying) -> int:
    """Run one; returns its exit status, and says why it is not 0."""
    try:
        one.run()
    except ClusterUnreachableError as error:
        failures.warn(str(error))
        return UNREACHABLE
    except (ClusterRefusedError, LogfsError, OSError) as error:
        failures.warn(failures.explain(error))
        return failures.FAILED
    for failure in one.failures:
        failures.warn(failure)
    if one.losses:
        failures.warn(f"records were lost, {one.losses} times: see logfs status")
    return failures.FAILED if one.failures or one.losses else 0
