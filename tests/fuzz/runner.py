"""Runs targets in their own processes, so that a crash ends a case and not the run."""

import argparse
import hashlib
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from random import Random

from tests.fuzz import sanitizing, targets

FOUND = sanitizing.ROOT / "build" / "fuzz"
_LONGEST_CASE_S = 120.0
_LOOK_S = 0.2
_WORKER = "--worker"


def main(arguments: list[str]) -> int:
    """Run the command line; the status is 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="*", help=f"of {', '.join(targets.NAMES)}; default: all")
    parser.add_argument("--seconds", type=float, default=300.0, help="for all together")
    parser.add_argument("--seed", type=int, default=None, help="the same cases again")
    parser.add_argument("--replay", action="store_true", help="check only the corpus")
    parser.add_argument(_WORKER, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = options.target or list(targets.NAMES)
    if unknown := set(names) - set(targets.NAMES):
        parser.error(f"no target {', '.join(sorted(unknown))}")
    FOUND.mkdir(parents=True, exist_ok=True)
    seed = int(time.time()) if options.seed is None else options.seed
    if options.worker:
        return _work(names[0], None if options.replay else Random(seed))
    sanitizing.build()
    if not options.target and not options.replay and _find_races(seed, options.seconds / 20):
        return 1
    if options.replay:
        found = [_run(name, None, 600.0) for name in names]
    else:
        found = [_fuzz(name, seed, options.seconds / len(names)) for name in names]
    return int(any(found))


def _find_races(seed: int, seconds: float) -> bool:
    """Run the native thread with each sanitizer; True if one found something."""
    for name, sanitizer in product(sanitizing.THREADS, sanitizing.OF_THREADS):
        done = sanitizing.run_threads(name, sanitizer, FOUND, seconds=round(seconds) + 1, seed=seed)
        said = (done.stdout + done.stderr).strip()
        print(f"native thread, {name}, {sanitizer}: seed {seed}: {said}", flush=True)
        if done.returncode != 0:
            return True
    return False


def _fuzz(name: str, seed: int, seconds: float) -> bool:
    """Run a target, one seed after another, until the time is over; True if it found something."""
    stop, found = time.monotonic() + seconds, False
    while time.monotonic() < stop:
        found |= _run(name, seed, stop - time.monotonic())
        if not (FOUND / f"{name}.current").exists() and found:
            break  # it ended before the first case
        seed += 1
    return found


def _run(name: str, seed: int | None, seconds: float) -> bool:
    """Run one process of a target; True if a case ended it."""
    current, log = FOUND / f"{name}.current", FOUND / f"{name}.log"
    current.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.fuzz", _WORKER, name]
    command += ["--replay"] if seed is None else ["--seed", str(seed)]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            env=sanitizing.environment(),
            cwd=sanitizing.ROOT,
            stdin=subprocess.PIPE,  # when it closes, the worker ends
            stdout=output,
            stderr=output,
        ) as worker,
    ):
        problem = _watch(worker, current, time.monotonic() + seconds)
    counted = [line for line in log.read_text(errors="replace").splitlines() if "cases" in line]
    print(f"{name}: seed {seed}: {counted[-1] if counted else 'no case ended'}", flush=True)
    if problem is None:
        return False
    case = current.read_bytes() if current.exists() else b""
    kept = FOUND / f"{name}-{hashlib.sha256(case).hexdigest()[:8]}"
    kept.write_bytes(case)
    log.replace(kept.with_suffix(".log"))
    print(f"{name}: {problem}; the case is {kept}, and what it said {kept}.log", flush=True)
    return True


def _watch(worker: subprocess.Popen[bytes], current: Path, stop: float) -> str | None:
    """Wait for a worker, and end it when its time is over; what went wrong, if anything did."""
    while worker.poll() is None:
        time.sleep(_LOOK_S)
        if current.exists() and time.time() - current.stat().st_mtime > _LONGEST_CASE_S:
            worker.kill()
            return f"a case took more than {_LONGEST_CASE_S:.0f} s"
        if time.monotonic() > stop and worker.stdin is not None and not worker.stdin.closed:
            worker.stdin.close()
    return None if worker.returncode == 0 else f"it ended with status {worker.returncode}"


def _work(name: str, chance: Random | None) -> int:
    """Check cases until stdin closes; without chance those of the corpus."""
    import select

    target, kept, current = targets.load(name), targets.corpus(name), FOUND / f"{name}.current"
    assert sanitizing.is_sanitized(), "the native modules are not those with sanitizers"
    number = 0
    cases = list(kept.values())
    while chance is not None or number < len(cases):
        case = cases[number] if chance is None else target.make(chance, cases)
        current.write_bytes(case)
        target.check(case)
        number += 1
        if number % 100 == 0 or chance is None:
            print(f"{number} cases", flush=True)
        if select.select([sys.stdin], [], [], 0)[0]:
            break
    current.unlink(missing_ok=True)
    print(f"{number} cases", flush=True)
    return 0
