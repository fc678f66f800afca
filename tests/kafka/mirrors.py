"""A mirror in this process, beside a real broker, and what it has to be equal to."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from logfs.config import StoreConfig
from logfs.kafka.cluster import EARLIEST
from logfs.kafka.mirroring import Mirror, MirrorPlan
from logfs.kafka.selection import OnRecreate, TopicSelection
from logfs.kafka.targets import LocalTarget
from logfs.library.owner import opened_store
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.machine.host import current_host, system_clock
from tests.fakes import FakeDisk
from tests.kafka.copies import RunningCopy, quick_cluster
from tests.mounting import now_ms


def plan_for(bootstrap: str, *topics: str, **changes: object) -> MirrorPlan:
    """Return a plan; ``changes`` are those of ``MirrorPlan``, and ``prefix``."""
    prefix = str(changes.pop("prefix", ""))
    return MirrorPlan(TopicSelection(topics, prefix), bootstrap, **changes)  # type: ignore[arg-type]


class RunningMirror(RunningCopy):
    """A mirror in a thread, with its own data directory, or its own disk in memory.

    Attributes:
        store: Its store.
    """

    store: LogStore
    mirror: Mirror

    def __init__(self, data: Path | FakeDisk, plan: MirrorPlan, **properties: str) -> None:
        super().__init__()
        if isinstance(data, Path):
            data.mkdir(exist_ok=True)
        self._opened = _store_in(data)
        self._cluster = quick_cluster(plan.bootstrap, properties)
        self._plan = plan

    def make(self) -> Mirror:
        self.store = self._opened.__enter__()
        target = LocalTarget(self.store, system_clock())
        self.mirror = Mirror(self._cluster, target, self._plan, self.said.append)
        return self.mirror

    def release(self) -> None:
        self._opened.__exit__(None, None, None)

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        return self.store.partition(topic, partition)

    def has(self, topic: str, end: int, partition: int = 0) -> bool:
        """Whether a partition ends at an offset."""
        is_there = topic in self.store.topics() and partition in self.store.partitions(topic)
        return is_there and self.log(topic, partition).log_end_offset == end

    def wait_for(self, topic: str, end: int, partition: int = 0) -> None:
        self.wait_until(lambda: self.has(topic, end, partition), f"{topic} ends at {end}")


@contextlib.contextmanager
def _store_in(data: Path | FakeDisk) -> Iterator[LogStore]:
    if isinstance(data, Path):
        with opened_store(str(data)) as store:
            yield store
        return
    store = LogStore.open(data, StoreConfig(), current_host(), now_ms=now_ms())
    try:
        yield store
    finally:
        store.close(now_ms())


def stored(directory: Path) -> bytes:
    """All batches of a partition directory, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


__all__ = ["EARLIEST", "OnRecreate", "RunningMirror", "plan_for", "stored"]
