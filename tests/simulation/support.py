"""What the tests of each kind of topic do with it."""

import itertools

from tests.simulation.machine import KINDS
from tests.simulation.operations import sequences_of
from tests.simulation.sequences import Search

STEP = 79
"""Every so many sequences of two operations are in the fixed part."""
FOUND = {"plain": [("H", "Q", "S"), ("W", "F", "W"), ("W", "R", "W", "S")]}
"""Sequences that have found a defect, or find a planted one, and are longer than that."""


def search_fixed_part(name: str) -> Search:
    """Run all single operations of a kind, and a fixed part of the sequences of two."""
    kind = KINDS[name]
    search = Search(kind)
    search.run_all(sequences_of(kind, 1))
    pairs = (names for names in sequences_of(kind, 2) if len(names) > 1)
    search.run_all(itertools.islice(pairs, 0, None, STEP))
    search.run_all(FOUND.get(name, []))
    return search


def found(search: Search) -> str:
    """Return what a search has found, to be printed."""
    return "\n\n".join(map(str, search.failures))
