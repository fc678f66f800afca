"""Several requests to a store at once, by threads that do not keep the process from ending."""

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

THREADS = 16
_LOOK_S = 0.2

T = TypeVar("T")


def for_each(function: Callable[[T], object], items: Iterable[T], threads: int = THREADS) -> None:
    """Call a function with every item, some at the same time; return when all calls are done.

    Raises:
        Exception: The first that a call has raised; the calls after it are not made.
    """
    waiting = list(items)
    if len(waiting) <= 1 or threads <= 1:
        for item in waiting:
            function(item)
        return
    waiting.reverse()
    errors: list[Exception] = []

    def work() -> None:
        while not errors:
            try:
                item = waiting.pop()
            except IndexError:
                return
            try:
                function(item)
            except Exception as error:  # noqa: BLE001 - raised by the caller's thread
                errors.append(error)

    workers = [
        threading.Thread(target=work, name="logfs-store", daemon=True)
        for _ in range(min(threads, len(waiting)))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        _wait_for(worker)
    if errors:
        raise errors[0]


def _wait_for(thread: threading.Thread) -> None:
    while thread.is_alive():
        thread.join(_LOOK_S)  # a signal that comes just before a wait does not end it


def in_background(function: Callable[[], object]) -> None:
    """Call a function in its own thread; return at once."""
    threading.Thread(target=function, name="logfs-store", daemon=True).start()
