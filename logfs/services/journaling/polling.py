"""When a reader asks for the next object of a journal. Pure.

The owner begins a round every ``freshness.ms``, and creates an object if there is something to
send. A reader knows between which two times the last one was created: that at which it was not
there, and that at which it was found. It asks in the middle between the two, and at the end, one
``freshness.ms`` later. So it finds the moment by halves, and asks about twice in each round.
"""

_LONGEST_STEP_S = 0.25
_LEAST_STEP_S = 0.1


class PollTimes:
    """The times at which one reader asks. One thread at a time.

    Args:
        now_s: The time.
        freshness_s: How often the owner creates objects.

    Attributes:
        due_s: The next of them.
    """

    def __init__(self, now_s: float, freshness_s: float) -> None:
        self.due_s = now_s
        self._low_s, self._high_s = now_s - freshness_s, now_s
        self._missed_s = self._low_s

    def plan(self, now_s: float, freshness_s: float, *, is_found: bool) -> None:
        """Plan the next time.

        Args:
            now_s: The reader has asked at this time.
            freshness_s: How often the owner creates objects.
            is_found: There was a new object.
        """
        step_s = max(_LEAST_STEP_S, min(_LONGEST_STEP_S, freshness_s / 4))
        freshness_s = max(freshness_s, step_s)
        if is_found:
            rounds = (now_s - self._low_s) // freshness_s
            # The owner may have been restarted, with other times: look a little earlier as well.
            earliest_s = self._low_s + rounds * freshness_s - step_s / 2
            self._low_s = min(max(self._missed_s, earliest_s), now_s)
            self._high_s = now_s
        self._missed_s = now_s
        self.due_s = max(now_s + step_s, self._next_s(now_s, freshness_s, step_s))

    def _next_s(self, asked_s: float, freshness_s: float, step_s: float) -> float:
        """Return the first time after one at which it is worth asking."""
        width_s = self._high_s - self._low_s
        # Half a round later finds an owner that was restarted, with other times.
        other_s = -width_s / 2 if width_s > step_s else freshness_s / 2
        offsets = sorted((other_s, step_s / 2))
        first = max(1, int((asked_s - self._high_s) / freshness_s))
        times = (
            self._high_s + number * freshness_s + offset
            for number in range(first, first + 3)
            for offset in offsets
        )
        return next(one for one in times if one > asked_s)
