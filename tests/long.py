"""How long the tests of ``make test-long`` run; each reports numbers, and these are printed."""

import os
import time
from dataclasses import dataclass

import pytest

KILLS = [
    pytest.param(5, id="few"),
    pytest.param(int(os.environ.get("LOGFS_LONG_KILLS") or 300), id="many", marks=pytest.mark.long),
]
"""How often a test kills a process: some times, and with ``make test-long`` as often as it says."""
KILLS_OF_A_STREAM = [
    pytest.param(30, id="some"),
    pytest.param(
        int(os.environ.get("LOGFS_LONG_KILLS") or 300) * 5 // 3,
        id="many",
        marks=pytest.mark.long,
    ),
]
"""The same for a test whose kills take less time."""


@dataclass(frozen=True)
class Limits:
    """What ends a long test: the first of these.

    Attributes:
        stops: Stops of the model.
        kills: Kills of daemons.
        until_s: When all of it is over, by the monotonic clock.
        seed: The seed of the first schedule; the others follow.
    """

    stops: int
    kills: int
    until_s: float
    seed: int

    @classmethod
    def from_environment(cls) -> "Limits":
        """Take what the Makefile says."""
        minutes = float(os.environ.get("LOGFS_LONG_MINUTES") or "inf")
        return cls(
            int(os.environ.get("LOGFS_LONG_STOPS") or 10_000),
            int(os.environ.get("LOGFS_LONG_KILLS") or 300),
            time.monotonic() + 60 * minutes,
            int(os.environ.get("LOGFS_LONG_SEED") or 1_000_000),
        )

    @property
    def is_over(self) -> bool:
        """Whether the time is."""
        return time.monotonic() >= self.until_s
