"""Fsyncs that are counted, held up or fail."""

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.fakes import FakeDisk
from tests.log.support import Bench

OFFLINE = "is offline"
SMALL = {"internal.segment.bytes": "250", "index.interval.bytes": "0"}
"""Three batches of one short record fill a segment, and each batch has an index entry."""


class Syncs:
    """What was synced, in order; ``hold`` keeps the next sync of the log waiting."""

    def __init__(self, disk: FakeDisk) -> None:
        self.names: list[str] = []
        self.begun = threading.Event()
        self.go = threading.Event()
        self.go.set()
        disk.before = self._see

    @property
    def logs(self) -> int:
        return sum(name.endswith(".log") for name in self.names)

    def _see(self, operation: str, name: str, _size: int) -> None:
        if operation == "sync":
            self.names.append(name)
            if name.endswith(".log"):
                self.begun.set()
                assert self.go.wait(10)


@contextlib.contextmanager
def in_threads(count: int, do: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    threads = [threading.Thread(target=do) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield threads
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def fail_sync(bench: Bench) -> None:
    bench.disk.fail_next_sync("*.log")
    with pytest.raises(OSError, match=str(errno.EIO)):
        bench.log.flush()
