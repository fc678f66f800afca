"""Sequences on a tiered topic: a fixed part, and with ``make test-long`` all of up to three."""

import pytest

from tests.long import Limits
from tests.simulation.machine import KINDS
from tests.simulation.operations import sequences_of
from tests.simulation.sequences import Search
from tests.simulation.support import found, search_fixed_part

KIND = KINDS["tiered"]


@pytest.mark.slow
def test_a_stop_at_each_change_of_short_sequences_breaks_no_promise() -> None:
    search = search_fixed_part(KIND.name)
    assert not search.failures, found(search)
    assert search.counts["states judged"] > 200


@pytest.mark.slow
def test_a_second_stop_after_an_fsync_breaks_no_promise() -> None:
    search = Search(KIND, second=1)
    search.run_all([("S",)])
    assert not search.failures, found(search)
    assert search.counts["second stops judged"] > 50


@pytest.mark.long
def test_second_stops_after_each_operation_break_no_promise(limits: Limits) -> None:
    search = Search(KIND, second=1)
    search.run_all(sequences_of(KIND, 1), is_over=lambda: limits.is_over)
    assert not search.failures, found(search)


@pytest.mark.long
def test_all_sequences_of_three_operations_break_no_promise(limits: Limits) -> None:
    search = Search(KIND)
    search.run_all(sequences_of(KIND, 3), is_over=lambda: limits.is_over)
    assert not search.failures, found(search)
