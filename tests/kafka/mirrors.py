"""A mirror in this process, beside a real broker, and what it has to be equal to."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from logfs.config import StoreConfig
from logfs.kafka.cluster import EARLIEST, Cluster
from logfs.kafka.mirroring import Mirror, MirrorPlan
from logfs.kafka.selection import OnRecreate, TopicSelection
from logfs.kafka.settings import ClientSettings, parse_bootstrap
from logfs.kafka.targets import LocalTarget
from logfs.library.owner import opened_store
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.machine.host import current_host, system_clock
from tests.fakes import FakeDisk
from tests.mounting import now_ms
from tests.processes import wait_until

QUICK = {
    "fetch.wait.max.ms": "50",
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "500",
    "metadata.max.age.ms": "500",
}


def plan_for(bootstrap: str, *topics: str, **changes: object) -> MirrorPlan:
    """Return a plan; ``changes`` are those of ``MirrorPlan``, and ``prefix``."""
    prefix = str(changes.pop("prefix", ""))
    return MirrorPlan(TopicSelection(topics, prefix), bootstrap, **changes)  # type: ignore[arg-type]


class RunningMirror:
    """A mirror in a thread, with a data directory, or a disk in memory, of its own.

    Attributes:
        store: Its store.
        said: What it has told people.
    """

    def __init__(self, data: Path | FakeDisk, plan: MirrorPlan, **properties: str) -> None:
        if isinstance(data, Path):
            data.mkdir(exist_ok=True)
        self._data = data
        settings = ClientSettings.from_properties(QUICK | properties)
        self._cluster = Cluster(parse_bootstrap(f"kafka://{plan.bootstrap}")[0], settings)
        self._plan = plan
        self.said: list[str] = []
        self.store: LogStore
        self.mirror: Mirror
        self.error: Exception | None = None

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        return self.store.partition(topic, partition)

    def has(self, topic: str, end: int, partition: int = 0) -> bool:
        """Whether a partition ends at an offset."""
        is_there = topic in self.store.topics() and partition in self.store.partitions(topic)
        return is_there and self.log(topic, partition).log_end_offset == end

    def wait_for(self, topic: str, end: int, partition: int = 0) -> None:
        self.wait_until(lambda: self.has(topic, end, partition), f"{topic} ends at {end}")

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        wait_until(lambda: holds() or not self._thread.is_alive(), what)
        assert holds(), (self.said, self.error, self.mirror.failures)

    def wait_for_end(self) -> None:
        wait_until(lambda: not self._thread.is_alive(), "the mirror ended")

    def __enter__(self) -> Self:
        self._opened = _store_in(self._data)
        self.store = self._opened.__enter__()
        target = LocalTarget(self.store, system_clock())
        self.mirror = Mirror(self._cluster, target, self._plan, self.said.append)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self.mirror.run()
        except Exception as error:  # noqa: BLE001 - the test sees it
            self.error = error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.mirror.owner.stopping.set()
        self.mirror.owner.want_look()
        self._thread.join()
        self._opened.__exit__(kind, error, traceback)


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
