"""For a person that waits for a store: Ctrl-C ends a request, and a message says why it is late.

Commands send requests in the main thread, which handles signals. In other threads, those of a
daemon as well, nothing of this applies.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_TELL_AFTER_S = 3
_LOOK_S = 0.2


def interruptibly(request: Callable[[], _T]) -> _T:
    """Return what a request returns; in the main thread, Ctrl-C ends the wait for it.

    The library waits outside of Python, where no signal is handled.
    """
    if not _is_main_thread():
        return request()
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(request())
        except BaseException as error:  # noqa: BLE001  raised in the main thread
            outcome.set_exception(error)

    threading.Thread(target=run, name="logfs-store", daemon=True).start()
    while not outcome.done():
        # A signal that comes just before the wait begins does not end it.
        wait([outcome], _LOOK_S)
    return outcome.result()


class Notice:
    """Says once why a request is late, and how long it is repeated.

    Args:
        clock: Seconds, monotonic.
        deadline_s: When it is given up, by that clock.
    """

    def __init__(self, clock: Callable[[], float], deadline_s: float) -> None:
        self._clock = clock
        self._deadline_s = deadline_s
        self._due_s = clock() + _TELL_AFTER_S if _is_main_thread() else None

    def tell(self, error: OSError) -> None:
        """Log why an attempt has failed, if the first one is some seconds ago."""
        now_s = self._clock()
        if self._due_s is None or now_s < self._due_s:
            return
        self._due_s = None
        left_s = round(self._deadline_s - now_s)
        logger.warning("%s: %s; asking again for %d s", error.filename, error.strerror, left_s)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
