"""Real programs hold files of a mount open while its daemon ends at random moments."""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.long import Limits
from tests.restarts.endings import Endings
from tests.restarts.held import HeldMount
from tests.restarts.programs import Programs

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

ENDS = {"resend": 9, "no-resend": 2}
"""Each way once, and some of them where the kernel does not send requests again; there are hundreds
in ``make test-long``."""


def end_daemons_beside_programs(
    directory: Path, *, times: int, seed: int, resends: bool, changes: str = ""
) -> Counter[str]:
    """Start all programs, end daemons, and check what the programs have written and read."""
    options = ("-o", "allow_other") if os.geteuid() == 0 else ()
    with HeldMount(directory, *options, resends=resends, changes=changes) as held:
        programs = Programs(held, directory)
        programs.prepare()
        endings = Endings(held, directory, seed)
        with programs:
            endings.end(times)
            programs.check()
    return endings.counts


@pytest.mark.parametrize("kernel", ENDS)
def test_no_program_notices_that_daemons_end(tmp_path: Path, kernel: str) -> None:
    times = ENDS[kernel]
    end_daemons_beside_programs(tmp_path, times=times, seed=16, resends=kernel == "resend")


@pytest.mark.long
@pytest.mark.parametrize("resends", [True, False], ids=["resend", "no-resend"])
def test_no_program_notices_hundreds_of_ends(
    tmp_path: Path, resends: bool, counts: Counter[str]
) -> None:
    limits = Limits.from_environment()
    counts += end_daemons_beside_programs(
        tmp_path, times=limits.kills, seed=limits.seed, resends=resends
    )
