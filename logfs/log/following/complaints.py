"""What is worth a warning: a problem that two looks in a row have met."""

import logging

logger = logging.getLogger(__name__)

_LOOKS = 2


class Complaint:
    """One thing that may be wrong for a moment, while files change, or for good."""

    def __init__(self) -> None:
        self._problem = ""
        self._count = 0

    def note(self, problem: str) -> None:
        """Note that a look has met a problem; the second one in a row says so."""
        self._count = self._count + 1 if problem == self._problem else 1
        self._problem = problem
        if self._count == _LOOKS:
            logger.warning("%s", problem)

    def settle(self) -> None:
        """Note that all is well."""
        self._problem, self._count = "", 0
