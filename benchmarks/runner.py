"""Running things: alternately, timed, and with what every question needs."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""

_DEFAULT_PAIRS = 5
_QUICK_PAIRS = 3
_TINY = 25
"""A tiny amount is so small a part of the quick one, if that is more than a few."""
_FEW = 5


@dataclass(frozen=True, slots=True)
class Bench:
    """What a question gets.

    Attributes:
        directory: Its own empty directory, removed afterwards.
        cleanup: Closed before the directory is removed: mounts, processes.
        quick: Less data and fewer runs: an impression and no verdict.
        tiny: So little that the numbers mean nothing: it is tested that they can be measured.
    """

    directory: Path
    cleanup: ExitStack
    quick: bool
    tiny: bool = False

    @property
    def pairs(self) -> int:
        """How often each side runs."""
        if self.tiny:
            return 1
        return _QUICK_PAIRS if self.quick else _DEFAULT_PAIRS

    def scaled(self, full: int, quick: int) -> int:
        """Return an amount of data or work."""
        if self.tiny:
            return max(quick // _TINY, min(quick, _FEW))
        return quick if self.quick else full


@contextmanager
def on_one_processor() -> Iterator[None]:
    """Keep this process, and those that it starts meanwhile, on one processor.

    A line takes 9 us if writer and daemon share a processor and 50 us if not: else a comparison of
    two mounts would show where the kernel has put them.
    """
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, processors)


def alternate(runs: Sequence[Callable[[], T]], rounds: int) -> list[tuple[T, ...]]:
    """Run all sides in turn, A B A B ..., after one round that does not count.

    Returns:
        For each side what its runs returned.
    """
    for run in runs:
        run()
    results = [[run() for run in runs] for _ in range(rounds)]
    return list(zip(*results, strict=True))


def timed_shell(script: str, *arguments: str | Path) -> tuple[float, str]:
    """Run a shell script; returns its time in seconds and what it printed.

    Args:
        script: The arguments are "$1", "$2" and so on.
        arguments: Paths.

    Raises:
        RuntimeError: It failed.
    """
    command = ["sh", "-c", script, "sh", *map(str, arguments)]
    started_s = time.perf_counter()
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    seconds = time.perf_counter() - started_s
    if result.returncode:
        raise RuntimeError(f"{script} {' '.join(map(str, arguments))}: {result.stderr.strip()}")
    return seconds, result.stdout.strip()


def shell_run(script: str, *arguments: str | Path) -> Callable[[], float]:
    """Return a run that times a shell script; see ``timed_shell``."""
    return lambda: timed_shell(script, *arguments)[0]


def python_command(module: str, *arguments: str | Path) -> list[str]:
    """Return a command that runs a module of the checkout."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def environment() -> Mapping[str, str]:
    """Return the environment in which a module of the checkout is found from any directory."""
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else str(ROOT)}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values lies."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def random_read_us(path: Path, piece: int, count: int, span: int | None = None) -> float:
    """Return the median time in us of reads at random places, the same in each call.

    Args:
        piece: Bytes of a read.
        count: How many reads.
        span: Bytes of the file in which they are, from its beginning; None: all.
    """
    chance, took_ns = Random(1), []
    descriptor = os.open(path, os.O_RDONLY)
    try:
        last = (os.fstat(descriptor).st_size if span is None else span) - piece
        for _ in range(count):
            place = chance.randrange(last)
            began_ns = time.perf_counter_ns()
            os.pread(descriptor, piece, place)
            took_ns.append(time.perf_counter_ns() - began_ns)
    finally:
        os.close(descriptor)
    return percentile(took_ns, 0.5) / 1000


def settle(directory: Path) -> None:
    """Write out what is dirty, so that it is not written while something is measured."""
    subprocess.run(["sync", "--file-system", str(directory)], check=True)


def say(text: str) -> None:
    """Print what is being done."""
    print(text, file=sys.stderr, flush=True)
