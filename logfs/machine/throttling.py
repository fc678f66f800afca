"""Waits of a writer without a daemon whose topic has a quota for the rate of appends."""

import time

from logfs.log.partition import PartitionLog

_STEP_S = 1.0
"""The quota is looked at again after so long: it may have been changed."""


class Throttled:
    """The wait of a writer that has just appended to a partition, or to others of its topic."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._mark = log.throttle_mark

    def wait(self) -> None:
        """Return once the topic's rate allows it; at once without a quota."""
        waited_s = 0.0
        while (left_s := self._log.throttle_s(self._mark)) > 0:
            step_s = min(left_s, _STEP_S)
            time.sleep(step_s)
            waited_s += step_s
        if waited_s:
            self._log.note_throttled(waited_s)
