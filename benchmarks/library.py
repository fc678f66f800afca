"""A process that uses logfs as a library: it builds a log, or opens one and tells how long it took.

    python -m benchmarks.library build DATA SPEC     SPEC: a ``data.LogSpec`` as JSON
    python -m benchmarks.library topics DATA N       N topics, each with a partition of a few lines
    python -m benchmarks.library open DATA close     ends with a clean stop
    python -m benchmarks.library open DATA kill      ends as if it were killed
    python -m benchmarks.library verify DATA JOBS    checks it with so many processes

Partitions are recovered by one thread, so that a time is that of one core.
"""

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.data import (
    COMPACTED,
    FIRST_MS,
    NUMBERED_LINES,
    LogSpec,
    keyed_lines,
    numbered_lines,
    topic_lines,
)
from logfs.cli.verify_data import verify_data
from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.disk.posixfile import PosixFile
from logfs.disk.vfs import File
from logfs.log.lines.writer import LineWriter
from logfs.log.store import LogStore
from logfs.machine.host import current_host
from logfs.types import View

_CONFIG = StoreConfig.from_properties({"num.recovery.threads.per.data.dir": "1"})
_NO_LIMIT = str(2**31 - 1)


class UnsyncedFile(PosixFile):
    """A file that is not made durable: building ten thousand segments would take a minute."""

    __slots__ = ()

    def sync(self) -> None:
        """Do nothing."""


class UnsyncedDisk(PosixDisk):
    """A disk of such files."""

    __slots__ = ()

    def open(
        self, name: str, *, write: bool = False, create: bool = False, uncached: bool = False
    ) -> File:
        """Open a file."""
        file = super().open(name, write=write, create=create, uncached=uncached)
        return UnsyncedFile(str(Path(self.root, name)), os.dup(file.fileno()))

    def sync_directory(self, name: str) -> None:
        """Do nothing."""


def build(data: str, spec: LogSpec) -> None:
    """Build a log and end the process."""
    store = LogStore.open(UnsyncedDisk(data), _CONFIG, current_host(), now_ms=FIRST_MS)
    settings = {"segment.bytes": _NO_LIMIT, **(COMPACTED if spec.keys else {})}
    if spec.compression != "none":
        settings["compression.type"] = spec.compression
    store.create_topic(spec.topic, spec.partitions, settings, FIRST_MS)
    share = spec.segments // spec.partitions
    for number in range(spec.partitions):
        _fill(store, number, spec, share)
    if spec.is_closed:
        store.close(FIRST_MS)
    os._exit(0)


def build_topics(data: str, count: int) -> None:
    """Build topics ``t0``, ``t1`` ... with the lines of ``topic_lines``, and end the process."""
    store = LogStore.open(UnsyncedDisk(data), _CONFIG, current_host(), now_ms=FIRST_MS)
    for number in range(count):
        store.create_topic(f"t{number}", 1, {}, FIRST_MS)
        LineWriter(store.partition(f"t{number}", 0), View.TEXT).write(topic_lines(number), FIRST_MS)
    store.close(FIRST_MS)
    os._exit(0)


def _fill(store: LogStore, partition: int, spec: LogSpec, segments: int) -> None:
    log = store.partition(spec.topic, partition)
    writer = LineWriter(log, View.TSV if spec.keys else View.TEXT)
    # Making all numbers would take longer than everything else.
    batches = max(max(NUMBERED_LINES, 2 * spec.keys) // spec.batch_lines, 1)
    numbered = [_lines(spec, n * spec.batch_lines) for n in range(batches)]
    now_ms = FIRST_MS
    for segment in range(segments):
        for _ in range(spec.segment_batches):
            writer.write(numbered[(now_ms - FIRST_MS) % batches], now_ms)
            now_ms += 1
        if spec.is_rolled or segment < segments - 1:
            log.roll(now_ms)
            log.maintain()  # lets go of the descriptors of the sealed one


def _lines(spec: LogSpec, first: int) -> bytes:
    if spec.keys:
        return keyed_lines(first, spec.batch_lines, spec.keys)
    lines = numbered_lines(first, spec.batch_lines)
    if spec.repeats == 1:
        return lines
    return b"".join(line * spec.repeats + b"\n" for line in lines.splitlines())


def open_and_tell(data: str, *, close: bool) -> None:
    """Open a data directory, print how long it took, and end the process."""
    host = current_host()
    started_s, cpu_s = time.perf_counter(), time.process_time()
    store = LogStore.open(PosixDisk(data), _CONFIG, host, now_ms=FIRST_MS)
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    if close:
        store.close(FIRST_MS)
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s}), flush=True)
    os._exit(0)


def verify_and_tell(data: str, jobs: int) -> None:
    """Check a data directory and print how long it took."""
    started_s, cpu_s = time.perf_counter(), time.process_time()
    verified = verify_data(data, None, jobs, lambda _done, _total: None)
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    if verified.findings:
        raise RuntimeError(f"{data}: {verified.findings[0]}")
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s}), flush=True)


if __name__ == "__main__":
    action, directory, argument = sys.argv[1:]
    if action == "build":
        build(directory, LogSpec(**json.loads(argument)))
    elif action == "topics":
        build_topics(directory, int(argument))
    elif action == "verify":
        verify_and_tell(directory, int(argument))
    else:
        open_and_tell(directory, close=argument == "close")
