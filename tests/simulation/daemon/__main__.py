"""Run the whole daemon in the simulation: ``python -m tests.simulation.daemon SEED``."""

import argparse
import collections
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.daemon.preloading import run_preloaded

if TYPE_CHECKING:
    from tests.simulation.daemon.schedule import Outcome

_MODULE = "tests.simulation.daemon"


def main(arguments: list[str]) -> int:
    """Make the runs of seeds; returns the exit status: 1 if one has a defect, or differs."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description=__doc__)
    parser.add_argument("seed", type=int, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each, which have to agree")
    parser.add_argument("--only", type=_numbers, help="only these decisions take effect: 3,17,20")
    parser.add_argument(
        "--shrink", type=int, default=100, help="runs that look for fewer decisions; 100"
    )
    parser.add_argument("--processes", type=int, default=1, help="that share the seeds; 1")
    parser.add_argument("--seconds", type=float, help="end after so long, however many are left")
    parser.add_argument("--trace", type=Path, help="a file for what happens, as text")
    parser.add_argument("--keep", type=Path, help="a directory for the data and the log")
    parser.add_argument(
        "--control",
        action="store_true",
        help="have power cuts take what was synced: the runs must find that",
    )
    parser.add_argument("--quiet", action="store_true", help="only failures and the summary")
    given = parser.parse_args(arguments)
    run_preloaded(_MODULE, arguments)
    others = []
    for number in range(1, given.processes):
        other = os.fork()
        if not other:
            status = _run(given, number)
            sys.stdout.flush()
            os._exit(status)
        others.append(other)
    statuses = [_run(given, 0), *(os.waitpid(other, 0)[1] for other in others)]
    return int(any(statuses))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _run(given: argparse.Namespace, first: int) -> int:
    """Make the runs of each n-th seed, where so many processes share them."""
    from logfs.fs.kernel import hooks

    hooks.load()  # before pyfuse3
    from tests.simulation.daemon.schedule import make_run

    began_s, failures, totals, simulated_s = time.monotonic(), 0, collections.Counter[str](), 0.0
    for seed in range(given.seed + first, given.seed + given.count, given.processes):
        if given.seconds is not None and time.monotonic() - began_s > given.seconds:
            break
        digests = set()
        for _ in range(given.repeat):
            outcome = make_run(
                seed, given.trace, given.keep, is_control=given.control, only=given.only
            )
            digests.add(outcome.digest)
            totals.update(outcome.counts)
            totals["runs"] += 1
            simulated_s += outcome.simulated_s
            if outcome.defect is not None:
                failures += 1
                _tell(outcome, given, is_first=len(digests) == 1)
            if not given.quiet:
                print(outcome.line(), flush=True)
        if len(digests) > 1:
            failures += 1
            print(f"seed {seed} differs: {sorted(digests)}", flush=True)
    if given.count > 1:
        _summarize(totals, simulated_s, failures)
    return int(failures > 0)


def _tell(outcome: "Outcome", given: argparse.Namespace, *, is_first: bool) -> None:
    """Print a defect, and the fewest decisions that find it."""
    from tests.simulation.daemon.schedule import shrunk

    again = f"again: python -m {_MODULE} {outcome.seed}"
    print(f"seed {outcome.seed}: {outcome.defect}\n{again}", flush=True)
    if not given.shrink or not is_first:
        return
    least = shrunk(outcome, given.shrink, is_control=given.control)
    numbers = ",".join(map(str, least.decisions)) or "''"
    print(f"{len(least.decisions)} of {len(outcome.decisions)} decisions find: {least.defect}")
    print("".join(f"  {number}: {what}\n" for number, what in least.decisions.items()), end="")
    print(f"{again} --only {numbers}", flush=True)


def _summarize(totals: collections.Counter[str], simulated_s: float, failures: int) -> None:
    processes = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    used = [resource.getrusage(process) for process in processes]
    cpu_s = sum(one.ru_utime + one.ru_stime for one in used)
    print(
        f"{totals['runs']} runs, {failures} failures, {cpu_s:.1f} s of CPU, "
        f"{totals['starts'] / cpu_s:.1f} starts and {simulated_s / cpu_s:.0f} simulated seconds "
        f"for each"
    )
    print(", ".join(f"{name}: {count}" for name, count in sorted(totals.items())))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
