"""The fewest decisions that still find a defect, and a run of only those."""

import pytest

from tests.simulation.daemon.decisions import Decisions, kind_of, shrink


@pytest.mark.parametrize("needed", [{3, 17}, {0}, {19}, set(), set(range(20))])
def test_what_a_defect_does_not_need_is_left_out(needed: set[int]) -> None:
    assert set(shrink(range(20), lambda left: needed <= set(left), 1000)) == needed


def test_it_is_asked_no_more_often_than_is_wanted() -> None:
    asked: list[list[int]] = []

    def fails(left: list[int]) -> bool:
        asked.append(left)
        return {3, 17} <= set(left)

    assert {3, 17} <= set(shrink(range(20), fails, 7))
    assert len(asked) == 7


def test_only_the_decisions_with_these_numbers_take_effect() -> None:
    decisions = Decisions([0, 2])
    assert [decisions.takes(what) for what in ("kill", "write", "sync")] == [True, False, True]
    assert decisions.taken == {0: "kill", 2: "sync"}
    assert Decisions().takes("kill")


def test_a_defect_is_the_same_with_other_numbers_and_other_lines() -> None:
    one = "DefectError: writer 1: 30 lines, 31 were written; from 3 on [b'w1 n000003']"
    other = "DefectError: writer 0: 7 lines, 12 were written; from 1 on [b'w0 n000001']"
    assert kind_of(one) == kind_of(other)
    assert kind_of(one) != kind_of("DefectError: st_size is 3, and was 7")
