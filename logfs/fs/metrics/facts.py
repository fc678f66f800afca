"""All metrics of a mount, collected when somebody asks for them, in the thread of whoever asks.

What is read belongs to the event loop and to threads that append; it is read without a lock, as it
is at that moment. What has to ask the disk (room, page cache, losses) asks it here, and so delays
nobody but the one who asked.
"""

import os
import platform
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyfuse3

from logfs import __version__
from logfs.fs.metrics import logs, mounts
from logfs.fs.metrics.family import Family, as_json
from logfs.fs.operations import Operations
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.machine.host import Clock

LOOK_S = 0.05
"""For so long the page cache is looked at in one collection; those not reached come next time."""
FRESH_MS = 5_000
"""What was looked at since then is not looked at again."""


class Where(NamedTuple):
    """Which mount it is.

    Attributes:
        data: The data directory.
        point: The mount point.
    """

    data: str
    point: str


class Facts:
    """The metrics of one mount. Any thread may ask.

    Args:
        store: The store.
        operations: The file system over it.
        clock: The clocks.
        where: Which mount it is.
    """

    def __init__(self, store: LogStore, operations: Operations, clock: Clock, where: Where) -> None:
        self._store = store
        self._operations = operations
        self._clock = clock
        self._where = where
        self._looking = threading.Lock()

    def families(self) -> Iterator[Family]:
        """Yield all metrics."""
        store = self._store
        found = store.all_partitions()
        self._look_at_caches(found)
        yield from self._of_process()
        yield from logs.totals(found, store.retired)
        yield from logs.families(found, by_topic=not self._operations.options.no_topic_metrics)

    def summary(self) -> dict[str, Any]:
        """Return, for JSON, the metrics that are not of single partitions or topics, by name."""
        found = self._store.all_partitions()
        return as_json([*self._of_process(), *logs.totals(found, self._store.retired)])

    def _of_process(self) -> Iterator[Family]:
        store, operations = self._store, self._operations
        yield mounts.info(
            "logfs_build_info",
            "What runs here.",
            {
                "version": __version__,
                "python": platform.python_version(),
                "pyfuse3": pyfuse3.__version__,
                "kernel": os.uname().release,
            },
        )
        yield mounts.info("logfs_mount_info", "What is mounted where.", self._mount_facts())
        yield from mounts.of_store(store)
        yield from mounts.of_requests(operations)
        yield from mounts.of_handles(store, operations)
        yield from mounts.of_executors(operations)
        if not store.read_only:
            cleaner = operations.tasks.compaction.cleaner
            yield from mounts.of_cleaner(cleaner.metrics(self._clock.now_ms()))

    def _mount_facts(self) -> Mapping[str, str]:
        return {
            "data": self._where.data,
            "mountpoint": self._where.point,
            "read_only": str(self._store.read_only).lower(),
        }

    def _look_at_caches(self, found: list[PartitionLog]) -> None:
        """Look at the page cache, where that was longest ago first, and not for long."""
        if not self._looking.acquire(blocking=False):
            return
        now_ms, started_s = self._clock.now_ms(), self._clock.monotonic_s()

        def is_over() -> bool:
            return self._clock.monotonic_s() - started_s > LOOK_S

        try:
            old = [log for log in found if _looked_ms(log) < now_ms - FRESH_MS]
            for log in sorted(old, key=_looked_ms):
                if is_over():
                    return
                log.look_at_cache(now_ms, is_over)
        finally:
            self._looking.release()


def _looked_ms(log: PartitionLog) -> int:
    return 0 if log.residency is None else log.residency.time_ms
