"""Compactions stopped at any step: a broker and logfs open what is left, and see the same."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import Disk
from logfs.errors import LogfsError
from logfs.log.store import LogStore
from logfs.machine.host import current_host, system_clock
from logfs.records.batch import decode_records
from logfs.services.compaction.manual import compact_now
from logfs.services.compaction.tools import tools_for
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import Client
from tests.kafka.ours import opened
from tests.kafka.theirs import COMPACT, batches, numbered
from tests.log.support import batches_in
from tests.mounting import now_ms

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SMALL = COMPACT | {"internal.segment.bytes": "4000"}

Layout = list[tuple[str, list[tuple[int, int, list[int]]]]]


def layout(data: Path, topic: str) -> Layout:
    """Every batch of every segment: base and last offset, and the offsets of its records."""
    found: Layout = []
    for path in sorted((data / f"{topic}-0").glob("*.log")):
        log = path.read_bytes()
        rows = [
            (header.base_offset, header.last_offset, [r.offset for r in decode_records(log, at)])
            for at, header in batches_in(log)
        ]
        found.append((path.name, rows))
    return found


class StoppingDisk:
    """A disk of which a directory is dead after so many renames, removals and directory syncs."""

    def __init__(self, disk: Disk, steps: Mapping[str, int]) -> None:
        self.disk = disk
        self.left = dict(steps)

    def __getattr__(self, name: str) -> object:
        return getattr(self.disk, name)

    def rename(self, old: str, new: str) -> None:
        self._step(old.partition("/")[0])
        self.disk.rename(old, new)

    def remove(self, name: str) -> None:
        self._step(name.partition("/")[0])
        self.disk.remove(name)

    def sync_directory(self, name: str) -> None:
        self._step(name)
        self.disk.sync_directory(name)

    def _step(self, directory: str) -> None:
        if directory in self.left:
            self.left[directory] -= 1
            if self.left[directory] < 0:
                raise OSError(5, "the process was killed", directory)


STOPS = range(0, 40, 2)


@pytest.mark.allow_log("is offline: ")
def test_both_open_what_a_stopped_compaction_leaves(tmp_path: Path) -> None:
    """One topic for each step at which it stops; one start of a broker for all of them."""
    names = {f"stopped-{n}": n for n in STOPS}
    config = SMALL | {"delete.retention.ms": "86400000"}
    with Broker(tmp_path / "kafka") as broker:
        client = Client(broker.bootstrap)
        client.create_topics(dict.fromkeys(names, config))
        for topic in names:
            client.producer().batches(topic, batches(numbered(120, keys=9), 12))
        before = client.consume_all(names)
        broker.stop()
        stop_compactions(broker.data, names, config)
        logfs = copy_directory(broker.data, tmp_path / "logfs")
        broker.start()
        found = Client(broker.bootstrap).consume_all(names)
    with opened(logfs) as store:
        for topic in names:
            log = store.partition(topic, 0)
            ours = layout(logfs, topic)
            assert ours == layout(broker.data, topic), topic
            assert log.losses == []
            offsets = [record.offset for record in found[topic]]
            assert offsets == [o for _, rows in ours for row in rows for o in row[-1]]
            assert [r for r in before[topic] if r.offset in set(offsets)] == found[topic]
            assert {r.key for r in found[topic]} == {r.key for r in before[topic]}
            left = [p.name for p in (logfs / f"{topic}-0").iterdir()]
            assert not [name for name in left if name.endswith((".cleaned", ".swap", ".deleted"))]
    counts = {len(found[topic]) for topic in names}
    assert len(counts) > 1, "all of them were undone, or all completed"


def stop_compactions(data: Path, names: Mapping[str, int], config: Mapping[str, str]) -> None:
    clock = system_clock()
    disk = StoppingDisk(PosixDisk(str(data)), {})
    store = LogStore.open(disk, StoreConfig(), current_host(), now_ms=now_ms())  # type: ignore[arg-type]
    tools = tools_for(store.config, store.new_id, clock.monotonic_s, time.sleep)
    for topic, steps in names.items():
        store.alter_topic(topic, {**config, "min.compaction.lag.ms": "0"})
        disk.left[f"{topic}-0"] = steps
        try:
            compact_now(store.partition(topic, 0), clock.now_ms(), tools)
        except (OSError, LogfsError):
            continue
    store.unlock()
