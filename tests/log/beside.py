"""Something else that runs between any two disk operations of what a test does.

    with Beside(bench.disk, appender.turn):
        apply_retention(bench.log, bench.now_ms)

It runs in its own thread, as in the daemon, one turn before each disk operation. A turn that
has to wait, for the lock of the partition, continues when it can; the next one begins after it.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.fakes import FakeDisk

_WAIT_S = 0.02
"""A turn that takes longer is taken to wait for a lock. Nothing depends on whether it does."""
_PATIENCE_S = 60.0
_TURNS = 100
"""More would keep what continues until nothing is left to do, as compaction does, from ending."""


class Beside:
    """Runs ``turn`` in another thread before each disk operation of this one.

    Attributes:
        turns: How often it was run.
    """

    def __init__(self, disk: FakeDisk, turn: Callable[[], object]) -> None:
        self.turns = 0
        self._disk = disk
        self._turn = turn
        self._owner = threading.get_ident()
        self._is_due = threading.Event()
        self._is_idle = threading.Event()
        self._is_over = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._is_idle.set()
        self._thread.start()
        self._disk.before = self._before
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._disk.before = None
        assert self._is_idle.wait(_PATIENCE_S), "what runs beside it waits for ever"
        self._is_over = True
        self._is_due.set()
        self._thread.join()
        if kind is None and self._error is not None:
            raise self._error

    def _before(self, _operation: str, _name: str, _size: int) -> None:
        is_mine = threading.get_ident() == self._owner
        if is_mine and self._is_idle.is_set() and self.turns < _TURNS:
            self._is_idle.clear()
            self._is_due.set()
            self._is_idle.wait(_WAIT_S)

    def _run(self) -> None:
        while True:
            self._is_due.wait()
            self._is_due.clear()
            if self._is_over:
                return
            try:
                if self._error is None:
                    self._turn()
                    self.turns += 1
            except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
                self._error = error
            self._is_idle.set()
