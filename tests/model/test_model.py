"""Everything at once, stopped anywhere: a fixed sample, and with ``make test-long`` very much more.

Of a schedule that finds a defect the steps that are needed are printed; see ``schedule``.
"""

from collections import Counter

import pytest

from tests.fakes import FakeFile
from tests.long import Limits
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
