"""Defects that are put into a copy of the tree, one after the other, and what finds each.

A file ``defects/NAME.patch`` takes one rule of the log layer out. Its first line says what is wrong
then. A second line ``Found by: plain W,F,W`` names a sequence that is known to find it; it runs
before all others. With ``twice`` at its end it has second stops, with the name of a stop those
after this one. A patch that does not apply any more fails the run: the rule has moved, and so must
the patch.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.simulation.machine import KINDS
from tests.simulation.operations import sequences_of
from tests.simulation.sequences import Search

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).parent / "defects"
_SEED = 1
_FOUND_BY = "Found by: "
_PACKAGES = ("logfs", "tests/model", "tests/simulation", "tests/log", "tests/remote")
_KINDS = ("plain", "compacted", "tiered")
_SHARES = ((1, 0, 0.25), (2, 0, 0.35), (2, 2, 0.4))
"""Depth, up to which depth there are second stops, and the share of the time."""


class Planted(NamedTuple):
    """A defect that was planted, and what became of it.

    Attributes:
        title: What is wrong.
        is_found: Whether a sequence has found it.
        told: What the search has printed; why the patch does not apply.
    """

    name: str
    title: str
    is_found: bool
    told: str
    seconds: float = 0.0

    def __str__(self) -> str:
        row = f"{self.name:22} {'found' if self.is_found else 'not found':10} {self.seconds:5.0f} s"
        return f"{row}  {self.told.splitlines()[0] if self.told else ''}"


def hunt(seconds: float, known: str = "") -> int:
    """Run sequences of all kinds until one finds a defect, or for so long; print what was done.

    Args:
        seconds: How long, of the processor.
        known: The sequence that runs before the others, as in a patch.

    Returns:
        The exit status: 1 if there was one.
    """
    counts: Counter[str] = Counter()
    if known:
        name, sequence, *twice = known.split()
        stop = "".join(twice).replace("twice", "")
        search = Search(KINDS[name], second=len(sequence) if twice else 0, only_stop=stop)
        search.run_all([tuple(sequence.split(","))], failures=1)
        counts += search.counts
        if search.failures:
            return _told(counts, search)
    for depth, second, share in _SHARES:
        for kind in (KINDS[name] for name in _KINDS):
            search = Search(kind, second=second)
            sequences = list(sequences_of(kind, depth))
            if depth > 1:
                random.Random(_SEED).shuffle(sequences)
            search.run_all(sequences, seconds * share / len(_KINDS), 1)
            counts += search.counts
            if search.failures:
                return _told(counts, search)
    return _told(counts, None)


def _told(counts: Counter[str], search: Search | None) -> int:
    found = "" if search is None else f": {search.failures[0]}"
    print(f"{counts['states judged']:,} states, {counts['sequences']} sequences{found}", flush=True)
    return int(search is not None)


def plant_all(names: Iterable[str], seconds: float) -> int:
    """Plant defects, and print a table of what finds them; return the exit status."""
    rows = []
    for planted in planted_each(names, seconds):
        print(planted, flush=True)
        rows.append(planted)
    found = sum(row.is_found for row in rows)
    print(f"{found} of {len(rows)} planted defects were found")
    return 0 if all(row.title for row in rows) else 1


def planted_each(names: Iterable[str], seconds: float) -> Iterator[Planted]:
    """Plant defects one after the other in a copy of the tree; yields what became of each.

    One without a title could not be planted.
    """
    paths = sorted(PATCHES.glob("*.patch"))
    wanted = set(names) or {path.stem for path in paths}
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder))
        for path in (path for path in paths if path.stem in wanted):
            problem = apply(path, tree)
            if problem:
                yield Planted(path.stem, "", is_found=False, told=f"does not apply: {problem}")
                continue
            try:
                yield _hunted(path, tree, seconds)
            finally:
                apply(path, tree, is_undone=True)


def copy_tree(folder: Path) -> Path:
    """Copy what the sequences need of the tree; return the copy."""
    unwanted = shutil.ignore_patterns("__pycache__", "*.c", "*.jar")
    for package in _PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=unwanted)
    for path in [*(ROOT / "tests").glob("*.py"), *(ROOT / "tests/records").glob("*.py")]:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(path, target)
    return folder


def apply(patch: Path, tree: Path, *, is_undone: bool = False) -> str:
    """Apply a patch; return why that is impossible, "" if it was done."""
    command = ["git", "apply", *(["--reverse"] if is_undone else []), str(patch)]
    # In a directory of another repository, git would leave out what is not in the repository.
    env = os.environ | {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
    return done.stderr.strip()


def _hunted(path: Path, tree: Path, seconds: float) -> Planted:
    title, second, *_ = path.read_text().splitlines()
    command = [sys.executable, "-m", "tests.simulation", "hunt", "--seconds", f"{seconds}"]
    if second.startswith(_FOUND_BY):
        command += ["--known", second.removeprefix(_FOUND_BY)]
    begun_s = time.monotonic()
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - begun_s
    if not done.stdout:
        raise RuntimeError(f"{path.stem}: {done.stderr}")
    return Planted(path.stem, title, done.returncode == 1, done.stdout, took_s)
