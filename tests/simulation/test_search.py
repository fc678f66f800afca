"""A search finds what is wrong, says how to repeat it, and does the same each time."""

import pytest

from tests.fakes import FakeFile
from tests.simulation.machine import KINDS
from tests.simulation.operations import ROOMS, sequences_of
from tests.simulation.sequences import Failure, Search

PLAIN = KINDS["plain"]


def first_failure(**options: str) -> Failure | None:
    search = Search(PLAIN, **options)  # type: ignore[arg-type]
    search.run_all([("W", "S")], failures=1)
    return search.failures[0] if search.failures else None


@pytest.mark.slow
def test_a_disk_that_syncs_nothing_is_found_out_and_the_stop_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeFile, "sync", lambda _: None)
    failure = first_failure()
    assert failure is not None
    ((name, _),) = failure.stops
    assert failure.command == (
        f"python -m tests.simulation sequences --kind plain --sequence W,S --stop {name}"
    )
    assert first_failure(only_stop=name) == failure
    assert f"stop {name}: before" in str(failure)


def test_a_failure_names_both_stops_and_the_command_that_repeats_it() -> None:
    stops = (("3/kill", "sync a"), ("7.31/power", "all of a write"))
    failure = Failure("plain", ("W", "F:40"), stops, "Defect: lost", "")
    assert str(failure).splitlines() == [
        "plain W,F:40: Defect: lost",
        "  stop 3/kill: before sync a",
        "  stop 7.31/power: before all of a write",
        "  python -m tests.simulation sequences --kind plain --sequence W,F:40 "
        "--stop 3/kill --second 7.31/power",
    ]


def test_a_second_stop_can_be_repeated_alone() -> None:
    search = Search(PLAIN, only_stop="3/kill", only_second="5/power")
    search.run_all([("W",)])
    assert search.counts["second stops judged"] == 1


def test_a_search_does_the_same_each_time() -> None:
    counts = []
    for _ in range(2):
        search = Search(PLAIN)
        search.run_all([("W",), ("H",)])
        counts.append(search.counts)
    assert counts[0] == counts[1]
    assert counts[0]["states seen before"] > counts[0]["states judged"] > 20


def test_a_search_ends_when_the_time_is_over() -> None:
    search = Search(PLAIN)
    search.run_all(sequences_of(PLAIN, 3), is_over=lambda: search.counts["states judged"] > 9)
    assert search.counts["sequences"] == 1
    assert search.counts["states judged"] == 10


def test_all_sequences_of_a_length_are_there_once() -> None:
    letters = len(PLAIN.operations)
    names = list(sequences_of(PLAIN, 2))
    assert len(names) == len(set(names)) == (letters + 1) * (letters - 1 + len(ROOMS))
    assert names[0] == ("W",)
    assert ("F", "W") in names
    assert ("W", f"F:{ROOMS[0]}") in names
