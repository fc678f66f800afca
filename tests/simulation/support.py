"""What the tests of each kind of topic do with it."""

import itertools

from tests.simulation.machine import KINDS
from tests.simulation.operations import sequences_of
from tests.simulation.sequences import Search

FIRST_PRIME = 37
"""Every so many sequences of two operations are in the fixed part."""


def search_fixed_part(name: str) -> Search:
    """Run all single operations of a kind, and a fixed part of the sequences of two."""
    kind = KINDS[name]
    search = Search(kind)
    search.run_all(sequences_of(kind, 1))
    pairs = (names for names in sequences_of(kind, 2) if len(names) > 1)
    search.run_all(itertools.islice(pairs, 0, None, FIRST_PRIME))
    return search


def found(search: Search) -> str:
    """Return what a search has found, to be printed."""
    return "\n\n".join(map(str, search.failures))
