"""The results of a benchmark: rows, each a number with its budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Samples:
    """The runs of one side.

    Attributes:
        system: "logfs", "plain", "floor", or another system that was run.
        unit: The unit of the values.
        values: One per run.
    """

    system: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of the runs."""
        return median(self.values)

    def __str__(self) -> str:
        return f"{format_number(self.median)} {self.unit}"


@dataclass(frozen=True, slots=True)
class Budget:
    """A bound for what is measured.

    Attributes:
        limit: The bound, inclusive.
        unit: What is bounded: "x plain", "x floor", "GB/s", "MB", "READs".
        is_minimum: The measured value has to reach the limit, else it must not exceed it.
    """

    limit: float
    unit: str
    is_minimum: bool

    def is_met(self, measured: float) -> bool:
        """Whether a value is within the budget."""
        return measured >= self.limit if self.is_minimum else measured <= self.limit

    def headroom(self, measured: float) -> float:
        """Return how often the budget fits: 1 is just met, 2 twice as good, 0.5 half as good."""
        better, worse = (measured, self.limit) if self.is_minimum else (self.limit, measured)
        if worse == 0:
            return 1.0 if better == 0 else float("inf")
        return better / worse

    def __str__(self) -> str:
        return f"{'≥' if self.is_minimum else '≤'} {self.limit:g} {self.unit}"


def at_least(limit: float, unit: str) -> Budget:
    """Return the budget of a value of which more is better."""
    return Budget(limit, unit, is_minimum=True)


def at_most(limit: float, unit: str) -> Budget:
    """Return the budget of a value of which less is better."""
    return Budget(limit, unit, is_minimum=False)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        question: Name of the question it answers, as on the command line.
        what: What was run.
        budget: The bound.
        measured: The value that is held against it.
        ours: The runs of logfs.
        beside: The runs of what it is compared with, then of what puts both in proportion.
    """

    question: str
    what: str
    budget: Budget
    measured: float
    ours: Samples
    beside: tuple[Samples, ...]

    @property
    def is_met(self) -> bool:
        """Whether the budget is met."""
        return self.budget.is_met(self.measured)

    @property
    def headroom(self) -> float:
        """How often the budget fits; see ``Budget.headroom``."""
        return self.budget.headroom(self.measured)


def compare(question: str, what: str, budget: Budget, ours: Samples, *beside: Samples) -> Row:
    """Return a row whose value is the ratio of two medians, in the unit of both.

    Args:
        question: See ``Row``, as all others.
        what: What was run.
        budget: A bound for the ratio.
        ours: The runs of logfs.
        beside: First what logfs is divided by.
    """
    return Row(question, what, budget, ours.median / beside[0].median, ours, beside)


def hold(question: str, what: str, budget: Budget, ours: Samples, *beside: Samples) -> Row:
    """Return a row whose value is the median of logfs's own runs; see ``compare``."""
    return Row(question, what, budget, ours.median, ours, beside)


def rates(system: str, size_bytes: int, seconds: Sequence[float]) -> Samples:
    """Return times as throughput, in MB/s (10**6 bytes)."""
    return Samples(system, "MB/s", tuple(size_bytes / 1e6 / s for s in seconds))


def format_number(value: float) -> str:
    """Return a number with about three digits."""
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"
