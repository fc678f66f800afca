"""Everything at once, stopped anywhere: a fixed sample, and with ``make test-long`` very much more.

The needed steps of a schedule that finds a defect are printed; see ``schedule``.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.fakes import FakeFile
from tests.log.support import Bench, batches_in, lines_of, log_name
from tests.long import Limits
from tests.model.machine import damage_checksums
from tests.model.schedule import Failure, shrink, try_seed

SAMPLE = 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(31, 31 + 4 * SAMPLE, SAMPLE))
def test_a_fixed_sample_of_schedules_finds_no_defect(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + SAMPLE):
        failure = try_seed(seed, counts)
        assert failure is None, str(shrink(failure))
    assert counts["stops"] > 3 * SAMPLE
    assert counts["stops inside a step"] > SAMPLE
    assert counts["lines checked"] > 50 * SAMPLE


@pytest.mark.slow
def test_a_schedule_does_the_same_each_time() -> None:
    """Else a seed is no proof; the order of a set, which each process draws, must not matter."""
    command = [sys.executable, "-m", "tests.model", "202611220199", "1"]
    outputs = {
        subprocess.run(
            command,
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.expect_log("no whole batch (unsupported magic 6)")
def test_a_batch_whose_magic_alone_a_power_cut_has_damaged_is_cut() -> None:
    bench = Bench()
    bench.write(b"before", b"damaged", b"after")
    data = bytearray(bench.file(log_name(0)))
    (_, _), (position, _), _ = batches_in(bytes(data))
    data[position + 16] = 6
    bench.put(log_name(0), bytes(data))
    damage_checksums(bench.disk)
    assert lines_of(bench.kill()) == [b"before"]


@pytest.mark.slow
def test_a_disk_that_syncs_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeFile, "sync", lambda _: None)
    failures = [try_seed(seed, Counter()) for seed in range(10)]
    assert sum(failure is not None for failure in failures) > 5


@pytest.mark.long
def test_schedules_find_no_defect(counts: Counter[str], limits: Limits) -> None:
    failures: list[Failure] = []
    seed = limits.seed
    while counts["stops"] < limits.stops and not limits.is_over and len(failures) < 10:
        failure = try_seed(seed, counts)
        if failure is not None:
            failures.append(shrink(failure))
        seed += 1
    assert not failures, "\n\n".join(map(str, failures))
