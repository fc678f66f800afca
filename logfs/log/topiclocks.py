"""A lock for each topic, so that a change whose disk hangs holds up no other topic."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from weakref import WeakValueDictionary


class TopicLocks:
    """The locks of the topics of a store. Any thread; one that holds a lock may take it again.

    A thread that holds the lock of a topic takes no lock of another one.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()

    @contextmanager
    def held(self, *topics: str) -> Iterator[None]:
        """Hold the locks of some topics inside the ``with`` block."""
        with ExitStack() as stack:
            for topic in sorted(set(topics)):
                with self._guard:
                    lock = self._locks.setdefault(topic, threading.RLock())
                stack.enter_context(lock)
            yield
