"""A process that builds a log of keyed records, or compacts one and tells how long it took.

python -m benchmarks.keyed build DATA SPEC     SPEC: a ``KeyedSpec`` as JSON
python -m benchmarks.keyed compact DATA -
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.data import FIRST_MS, call
from benchmarks.library import UnsyncedDisk
from benchmarks.runner import Bench
from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.log.lines.writer import LineWriter
from logfs.log.store import LogStore
from logfs.machine.host import current_host, system_clock
from logfs.services.compaction.manual import compact_now
from logfs.services.compaction.tools import tools_for
from logfs.types import View

TOPIC = "keyed"
_VALUE = b"the quick brown fox jumps over the lazy dog, and the dog has better things\n"
_STRIDE = 7919
"""Prime to the number of keys: they come in no order that helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedSpec:
    """A log of 100-byte records with keys that come again.

    Attributes:
        records: Records of the log.
        batch_records: Records of a batch.
        keys: Different keys.
        segment_bytes: Size of a segment.
    """

    records: int
    batch_records: int
    keys: int
    segment_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class CompactionRun:
    """How a log was compacted: its ``.log`` bytes before and after, and the time it took."""

    seconds: float
    cpu_s: float
    read_bytes: int
    written_bytes: int


def build_keyed(bench: Bench, name: str, spec: KeyedSpec) -> Path:
    """Build a data directory, closed cleanly and with nothing in its active segment."""
    data = bench.directory / name
    data.mkdir()
    call("benchmarks.keyed", "build", data, json.dumps(asdict(spec)))
    return data


def compact(data: Path) -> CompactionRun:
    """Compact it in its own process."""
    return CompactionRun(**json.loads(call("benchmarks.keyed", "compact", data, "-")))


def _build(data: str, spec: KeyedSpec) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": str(spec.segment_bytes),
        "max.message.bytes": str(2 << 20),
    }
    store = LogStore.open(UnsyncedDisk(data), StoreConfig(), current_host(), now_ms=FIRST_MS)
    store.create_topic(TOPIC, 1, settings, FIRST_MS)
    log = store.partition(TOPIC, 0)
    writer = LineWriter(log, View.TSV)
    for first in range(0, spec.records, spec.batch_records):
        numbers = range(first, min(first + spec.batch_records, spec.records))
        lines = b"".join(b"%016d\t%b" % (n * _STRIDE % spec.keys, _VALUE) for n in numbers)
        writer.write(lines, FIRST_MS + first)
    log.roll(FIRST_MS)
    store.close(FIRST_MS)


def _compact(data: str) -> CompactionRun:
    clock = system_clock()
    store = LogStore.open(PosixDisk(data), StoreConfig(), current_host(), now_ms=clock.now_ms())
    tools = tools_for(store.config, store.new_id, clock.monotonic_s, time.sleep)
    started_s, cpu_s = time.perf_counter(), time.process_time()
    done = compact_now(store.partition(TOPIC, 0), clock.now_ms(), tools)
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    store.close(clock.now_ms())
    return CompactionRun(seconds, cpu_s, done.read_bytes, done.written_bytes)


if __name__ == "__main__":
    action, directory, argument = sys.argv[1:]
    if action == "build":
        _build(directory, KeyedSpec(**json.loads(argument)))
    else:
        print(json.dumps(asdict(_compact(directory))), flush=True)
