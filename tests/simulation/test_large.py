"""Sequences with writes of 2 MiB, all of it in ``make test-long``."""

import pytest

from tests.long import Limits
from tests.simulation.machine import KINDS
from tests.simulation.operations import sequences_of
from tests.simulation.sequences import Search
from tests.simulation.support import found


@pytest.mark.long
def test_sequences_of_two_operations_with_writes_of_2_mib_break_no_promise(limits: Limits) -> None:
    search = Search(KINDS["large"])
    sequences = (names for names in sequences_of(search.kind, 2) if "B" in names)
    search.run_all(sequences, is_over=lambda: limits.is_over)
    assert not search.failures, found(search)
