"""Daemons that die at each step of a request; and that the notes are why no program notices it."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from logfs.client import Daemon
from logfs.log.lines.form import LineTarget
from tests.processes import PATIENCE_S, wait_until
from tests.restarts.dying import STEPS, dies_in_changes, dies_in_requests, dies_in_writes
from tests.restarts.held import HeldMount
from tests.restarts.programs import check_lines, start_writers

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

DEATHS = [
    pytest.param(STEPS, id="once"),
    pytest.param(6 * STEPS, id="six-times", marks=pytest.mark.long),
]
"""At each step once, as proof through the kernel: ``tests/simulation/daemon`` kills at every step.
With ``make test-long`` again and again, in requests that come later and later."""
_MAKES = (
    "import os, sys\nfor n in range(%d):\n    os.mkdir(f'{sys.argv[1]}/n{n}')\n"
    "    n %% 3 or os.rmdir(f'{sys.argv[1]}/n{n}')\n"
)


def has_size(path: Path, size: int) -> bool:
    return path.stat().st_size >= size


def defects_of_writes(
    directory: Path, *, notes: bool, deaths: int, resends: bool = True
) -> list[str]:
    """Write while daemons die; return the errors of programs, and what is wrong in the logs."""
    died, stop = directory / "deaths", directory / "stop"
    changes = dies_in_writes(died, deaths, notes=notes)
    # The steps are those of Python's notes.
    with HeldMount(directory, "-o", "no_native", resends=resends, changes=changes) as held:
        (held.point / "t").mkdir()
        (held.point / "t" / "2").touch()
        writers = start_writers(held.point, stop)
        for count in range(1, deaths + 1):
            wait_until(partial(has_size, died, count), f"{count} daemons have died")
        stop.touch()
        said = [process.communicate(timeout=PATIENCE_S) for process in writers]
        defects = [errors for _, errors in said if errors]
        try:
            check_lines(held.point, [int(output or 0) for output, _ in said])
        except AssertionError as difference:
            defects.append(str(difference))
    return defects


def defects_of_changes(directory: Path, *, notes: bool, deaths: int) -> list[str]:
    """Make and remove topics while daemons die; return the errors, and the topics if wrong."""
    died = directory / "deaths"
    made = 12 * deaths  # more than are made until the last daemon has died
    changes = dies_in_changes(died, deaths, notes=notes)
    with HeldMount(directory, changes=changes) as held:
        command = [sys.executable, "-c", _MAKES % made, str(held.point)]
        result = subprocess.run(command, check=False, capture_output=True, timeout=5 * PATIENCE_S)
        if result.returncode:
            return [result.stderr.decode()]
        assert died.stat().st_size == deaths
        found = sorted(os.listdir(held.point))
    return [] if found == sorted(f"n{n}" for n in range(made) if n % 3) else found


@pytest.mark.parametrize("resends", [True, False], ids=["resend", "no-resend"])
@pytest.mark.parametrize("deaths", DEATHS)
def test_daemons_that_die_at_each_step_of_a_write(
    tmp_path: Path, resends: bool, deaths: int
) -> None:
    assert defects_of_writes(tmp_path, notes=True, resends=resends, deaths=deaths) == []


def test_without_notes_lines_are_written_twice(tmp_path: Path) -> None:
    assert defects_of_writes(tmp_path, notes=False, deaths=STEPS) != []


@pytest.mark.parametrize("deaths", DEATHS)
def test_daemons_that_die_at_each_step_of_an_append_by_a_client(
    tmp_path: Path, deaths: int
) -> None:
    died = tmp_path / "deaths"
    lines = [b"line %d\n" % number for number in range(6 * deaths)]
    with HeldMount(tmp_path, changes=dies_in_requests(died, deaths)) as held:
        (held.point / "t").mkdir()
        with Daemon.connect(str(held.data)) as daemon:  # type: ignore[union-attr]
            for line in lines:
                appended = daemon.append_lines(LineTarget("t", 0), line)
                assert appended.accepted == len(line)
        assert died.stat().st_size == deaths
        assert (held.point / "t/0").read_bytes() == b"".join(lines)


@pytest.mark.parametrize("deaths", DEATHS)
def test_daemons_that_die_at_each_step_of_mkdir(tmp_path: Path, deaths: int) -> None:
    assert defects_of_changes(tmp_path, notes=True, deaths=deaths) == []


def test_without_notes_mkdir_finds_what_it_has_made(tmp_path: Path) -> None:
    (defect,) = defects_of_changes(tmp_path, notes=False, deaths=STEPS)
    assert "FileExistsError" in defect or "FileNotFoundError" in defect
