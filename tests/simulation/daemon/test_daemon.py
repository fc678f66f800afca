"""The whole daemon from one seed: what its clients see, and that a seed is always the same run."""

import os
import re
import subprocess
import sys

import pytest

SEEDS = 1, 7, 14
"""The first of three each; ``make night`` takes others."""

FOUND = {
    "a topic made on a full disk": (
        "17959846580033",
        "--only",
        "2,4,5,7,8,9,10,11,12,13,14,15,16,18,19,21,22,23,24,25,26",
    ),
    "a store that fails within a read": ("1103",),
}
"""Runs that have found a defect, by what it was about; each has a test beside its rule, too."""

pytestmark = pytest.mark.slow


def simulated(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation.daemon", *arguments]
    variables = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=variables)


def last_line(*arguments: str, hash_seed: str) -> str:
    done = simulated(*arguments, hash_seed=hash_seed)
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("first", SEEDS)
def test_programs_find_each_line_once_through_kills_and_power_cuts(first: int) -> None:
    done = simulated(str(first), "--count", "3", "--repeat", "2")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("run", FOUND.values(), ids=FOUND)
def test_what_a_seed_has_found_is_found_no_more(run: tuple[str, ...]) -> None:
    done = simulated(*run, "--shrink", "0")
    assert done.returncode == 0, done.stdout


def test_a_seed_is_the_same_run_in_every_process() -> None:
    first, second = (last_line("3", hash_seed=seed) for seed in ("1", "2"))
    assert first == second
    assert re.fullmatch(r"seed 3: .*, digest [0-9a-f]{16}", first)


def test_a_disk_that_forgets_what_was_synced_is_noticed() -> None:
    done = simulated("9", "--control", "--shrink", "0")
    assert done.returncode == 1
    assert "seed 9: DefectError: " in done.stdout


@pytest.mark.long
def test_a_defect_is_found_again_with_the_fewest_decisions() -> None:
    done = simulated("9", "--control", "--shrink", "40")
    assert done.returncode == 1
    found = re.search(r"^(\d+) of (\d+) decisions find: (.*)$", done.stdout, re.MULTILINE)
    assert found is not None
    assert int(found[1]) < int(found[2])
    (only,) = re.findall(r"--only (\S+)$", done.stdout, re.MULTILINE)
    again = simulated("9", "--control", "--shrink", "0", "--only", only)
    assert again.returncode == 1
    assert f"seed 9: {found[3]}" in again.stdout
