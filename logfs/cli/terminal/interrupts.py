"""Ctrl-C and SIGTERM, which may come at any moment: what has been begun is ended first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """While it is entered, a signal raises KeyboardInterrupt, but not while it is held back."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._is_held = False
        self._before: dict[int, object] = {}

    @property
    def status(self) -> int:
        """The exit status of a process that a signal ended, as in shells."""
        return 128 + (self.number or signal.SIGINT)

    def __enter__(self) -> "Interrupts":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # what signal() returned

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold signals back; one that came meanwhile raises at the end."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self.number is not None:
            raise KeyboardInterrupt

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        if not self._is_held:
            raise KeyboardInterrupt
