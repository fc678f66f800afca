"""The decisions of a run that can be left out, and the fewest that still find its defect.

A decision is a kill, a restart, a full disk, a power cut, or an operation of a program. They have
numbers, in the order in which they come. A run is decided by its seed and by the numbers of those
that take effect.
"""

import re
from collections.abc import Callable, Iterable

_KEY_CHARACTERS = 60


class Decisions:
    """Takes decisions in turn.

    Args:
        only: The numbers of those that take effect; None: all.

    Attributes:
        taken: Those that have taken effect, by their numbers.
    """

    def __init__(self, only: Iterable[int] | None = None) -> None:
        self._only = None if only is None else frozenset(only)
        self._next = 0
        self.taken: dict[int, str] = {}

    def takes(self, what: str) -> bool:
        """Return whether the next decision takes effect."""
        number, self._next = self._next, self._next + 1
        if self._only is not None and number not in self._only:
            return False
        self.taken[number] = what
        return True


def kind_of(defect: str) -> str:
    """Return what is the same in the texts of a defect that is found in two ways."""
    return re.sub(r"\d+", "N", re.split(r"b?['\"]|/|\n", defect)[0])[:_KEY_CHARACTERS]


def shrink(numbers: Iterable[int], fails: Callable[[list[int]], bool], most_runs: int) -> list[int]:
    """Return fewer decisions with which a run still fails.

    Args:
        numbers: Those with which it fails.
        fails: Whether it fails with these.
        most_runs: How often it may be asked.

    Source: A. Zeller, R. Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002.
    """
    left, runs, size = list(numbers), 0, 0
    size = len(left)
    while left and size and runs < most_runs:
        is_smaller, begin = False, 0
        while begin < len(left) and runs < most_runs:
            without = left[:begin] + left[begin + size :]
            runs += 1
            if fails(without):
                left, is_smaller = without, True
            else:
                begin += size
        if size == 1 and not is_smaller:
            break
        size = max(1, min(size // 2, len(left)))
    return left
