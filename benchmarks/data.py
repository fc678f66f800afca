"""The bytes that are measured: numbered lines of 100 bytes, as plain files and as logs."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.runner import Bench, environment, python_command
from logfs.disk.posix import PosixDisk
from logfs.log import names
from logfs.log.checkpoints import write_offsets
from logfs.types import TopicPartition

LINE_BYTES = 100
"""Length of every line, its newline included."""
FIRST_MS = 1_700_000_000_000
"""Timestamp of a built log's first batch; every further batch is one millisecond later."""

_FILLER = b" the quick brown fox jumps over the lazy dog, and the dog has better things to do\n"
_DIGITS = LINE_BYTES - len(_FILLER)
_AT_ONCE = 10_000
_SPREAD = 7_919_000_027
"""A prime: its multiples go through all keys before one comes again."""
NUMBERED_LINES = 100_000
"""Lines of a built log whose numbers differ; then they come again."""

TOPIC_LINES = 20
"""Lines of a topic, where there are many."""

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
"""Settings of a topic of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpec:
    """A log of numbered lines, line N at offset N.

    Attributes:
        batch_lines: Lines of a batch.
        segment_batches: Batches of a segment.
        segments: Sealed segments; with ``is_rolled`` an empty one to append to follows.
        is_rolled: The last segment is sealed as well.
        topic: Name of its topic.
        partitions: Partitions of the topic; the segments are spread over them.
        is_closed: It is left as a clean stop leaves it, else as a killed process does.
        keys: Every line has one of so many keys, and the topic is compacted; 0: no keys.
        repeats: What a line holds comes so many times in it; without keys.
        compression: ``compression.type`` of its topic.
    """

    batch_lines: int
    segment_batches: int
    segments: int = 1
    is_rolled: bool = False
    topic: str = "lines"
    partitions: int = 1
    is_closed: bool = True
    keys: int = 0
    repeats: int = 1
    compression: str = "none"

    @property
    def lines(self) -> int:
        """Lines of the whole log."""
        return self.batch_lines * self.segment_batches * self.segments


@dataclass(frozen=True, slots=True)
class Opened:
    """How the library opened a data directory.

    Attributes:
        seconds: Time it took.
        cpu_s: Processor time of all threads meanwhile.
    """

    seconds: float
    cpu_s: float


def numbered_lines(first: int, count: int) -> bytes:
    """Return lines by their numbers."""
    return b"".join(b"%0*d%b" % (_DIGITS, n, _FILLER) for n in range(first, first + count))


def topic_lines(number: int) -> bytes:
    """Return the lines of one of many topics."""
    return numbered_lines(number * TOPIC_LINES, TOPIC_LINES)


def keyed_lines(first: int, count: int, keys: int) -> bytes:
    """Return lines for the ``.tsv`` view, each with one of so many keys, in no order."""
    lines = numbered_lines(first, count).splitlines(keepends=True)
    numbers = (n * _SPREAD % keys for n in range(first, first + count))
    return b"".join(b"%016d\t%b" % pair for pair in zip(numbers, lines, strict=True))


def lines_of(repeats: int) -> Iterator[bytes]:
    """Give lines without end that are as long as those of a log with ``repeats``."""
    while True:
        for line in numbered_lines(0, NUMBERED_LINES).splitlines():
            yield line * repeats + b"\n"


def write_lines(path: Path, size_bytes: int) -> int:
    """Write a plain file of numbered lines; returns its size, a whole number of lines."""
    lines = size_bytes // LINE_BYTES
    with path.open("wb") as file:
        for first in range(0, lines, _AT_ONCE):
            file.write(numbered_lines(first, min(_AT_ONCE, lines - first)))
    return lines * LINE_BYTES


def write_text(path: Path, spec: LogSpec) -> None:
    """Write the lines of a log to a plain file."""
    lines = lines_of(spec.repeats)
    with path.open("wb", buffering=1 << 20) as file:
        file.writelines(next(lines) for _ in range(spec.lines))


def build_log(bench: Bench, name: str, spec: LogSpec) -> Path:
    """Build a data directory through the library, in its own process, without a mount."""
    data = bench.directory / name
    data.mkdir()
    call("benchmarks.library", "build", data, json.dumps(asdict(spec)))
    return data


def repeat_partition(data: Path, spec: LogSpec, partitions: int) -> None:
    """Give a closed log of one partition so many: each has the same files, by hard links."""
    for number in range(1, partitions):
        copy = data / f"{spec.topic}-{number}"
        shutil.copytree(data / f"{spec.topic}-0", copy, copy_function=os.link)
    ends = {TopicPartition(spec.topic, number): spec.lines for number in range(partitions)}
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.REPLICATION_OFFSET_CHECKPOINT):
        write_offsets(PosixDisk(data), name, ends)


def open_log(data: Path, *, close: bool) -> Opened:
    """Open a data directory through the library, in its own process.

    Args:
        data: The data directory.
        close: Stop cleanly afterwards, else the process ends as if it were killed.
    """
    argument = "close" if close else "kill"
    return Opened(**json.loads(call("benchmarks.library", "open", data, argument)))


def verify_log(data: Path) -> Opened:
    """Check a data directory with ``logfs verify``'s code, in one process; it must be whole."""
    return Opened(**json.loads(call("benchmarks.library", "verify", data, "1")))


def call(module: str, action: str, data: Path, argument: str) -> str:
    """Run a module in its own process; returns what it prints."""
    return call_with(module, action, data, argument)


def call_with(module: str, *arguments: str | Path) -> str:
    """Run a module with any arguments; see ``call``."""
    command = python_command(module, *arguments)
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment())
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout
