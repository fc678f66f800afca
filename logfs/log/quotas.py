"""What the partitions of one topic have and append together, for the quotas of the topic.

    logfs.quota.bytes                bytes of all partitions on this disk, unfinished lines included
    logfs.quota.producer.byte.rate   bytes of batches a second that are appended to all of them

A request is refused as a whole if the topic would have more bytes with it; what was deleted makes
room at once. Nothing is refused that was accepted before: an unfinished line becomes a record, and
the batch of a job that was begun is completed. Mirrors have what their source has.

For the rate the topic has an allowance of ``BURST_S`` seconds. A request that uses more is applied
and takes the topic into debt. Its writer waits until the debt up to its own bytes is paid, as Kafka
throttles a client. The wait is the business of the caller, which has a clock.

Native threads do not ask. They append as much as a *grant* says, which a partition has for at most
``GRANT_S`` seconds: a small part of the room, and of the allowance, that the topic has when the
grant begins. Bytes that are granted are taken from both until the grant ends.

Source: Kafka's client quotas (``producer_byte_rate``), ClientQuotaManager, TokenBucket.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from logfs.errors import QuotaExceededError

SEGMENT_BYTES = 16 * 1024
"""The least size of a sealed segment for a quota: the blocks of its files."""
MOST_REQUESTS = 32
"""After how many requests all partitions are measured again."""
BURST_S = 1.0
"""How many seconds of the rate may be appended at once after a pause."""
GRANT_BYTES = 256 * 1024
GRANT_S = 1.0
"""The largest grant, and the longest."""
_GRANTED_PART = 16
"""A grant is so small a part of the room and of the allowance."""
_ALL_GRANTED_PART = 4
"""All grants together are so small a part of the room."""
_LEAST_GRANT_BYTES = 4096


def _nothing() -> int:
    return 0


@dataclass(eq=False, slots=True)
class Grant:
    """Bytes that a partition may append without a request.

    Attributes:
        size_bytes: How many.
        until_s: When it has ended in any case, by the clock of ``TopicUsage.grant``.
        is_paid: It was taken from the allowance for the rate.
    """

    size_bytes: int
    until_s: float
    is_paid: bool


class TopicUsage:
    """The use of the quotas of one topic. Any thread.

    Args:
        measure: Returns the bytes that all partitions have.

    Attributes:
        refused: Requests that were refused.
        throttled: Appends whose writers had to wait.
        throttled_s: Seconds that they had to wait, together.
        spent_bytes: Bytes that were appended while the topic had a rate.
    """

    def __init__(self, measure: Callable[[], int] = _nothing) -> None:
        self.used_bytes = measure
        self.refused = 0
        self.throttled = 0
        self.throttled_s = 0.0
        self.spent_bytes = 0
        self._lock = threading.Lock()
        self._admitted_bytes = 0
        self._requests = 0
        self._known_bytes: int | None = None
        self._debt_bytes = 0.0
        self._debt_at_s = 0.0
        self._grants: list[Grant] = []

    def admit(
        self,
        what: str,
        size_bytes: int,
        limit: int,
        name: str = "logfs.quota.bytes",
        *,
        most_bytes: int | None = None,
        now_s: float = math.inf,
    ) -> None:
        """Let a request append so many bytes.

        Args:
            what: The name of the thing that has the quota, for the error.
            size_bytes: The size that the request adds.
            limit: The size that is allowed.
            name: The name of the limit.
            most_bytes: The most that the logs may grow by, if that is not ``size_bytes``.
            now_s: The clock of ``grant``.

        All partitions are measured only when the bytes admitted since the last time may have
        reached the limit, or after ``MOST_REQUESTS``. So requests to several partitions at one
        moment may exceed it, each by its own size, and so may ``MOST_REQUESTS`` small segments.

        Raises:
            QuotaExceededError: The topic would have more than the limit.
        """
        with self._lock:
            known, wanted = self._known_bytes, self._granted(now_s) + size_bytes
            self._requests += 1
            if (
                known is None
                or known + self._admitted_bytes + wanted > limit
                or self._requests > MOST_REQUESTS
            ):
                known = self._known_bytes = self.used_bytes()
                self._admitted_bytes = self._requests = 0
                if known + wanted > limit:
                    self.refused += 1
                    raise QuotaExceededError(
                        f"{what}: no room in the quota ({known} bytes are used; {name}={limit}). "
                        "'logfs trim' makes room; retention.bytes and retention.ms keep it; a "
                        "larger quota allows more"
                    )
            self._admitted_bytes += size_bytes if most_bytes is None else most_bytes

    def grant(self, limit: int, rate: int, now_s: float) -> Grant | None:
        """Grant a part of the room and of the allowance to one partition.

        Args:
            limit: The size that is allowed; negative: any.
            rate: The rate of the topic, bytes a second; 0: any.
            now_s: The clock.

        Returns:
            The grant, to be ended with ``end_grant``; None if there is too little.
        """
        with self._lock:
            size_bytes = GRANT_BYTES
            if limit >= 0:
                if self._known_bytes is None:
                    return None
                room = limit - self._known_bytes - self._admitted_bytes
                spare = room // _ALL_GRANTED_PART - self._granted(now_s)
                size_bytes = min(size_bytes, room // _GRANTED_PART, spare)
            if rate > 0:
                self._pay(rate, now_s)
                size_bytes = min(size_bytes, int(-self._debt_bytes) // _GRANTED_PART)
            if size_bytes < _LEAST_GRANT_BYTES:
                return None
            grant = Grant(size_bytes, now_s + 2 * GRANT_S, rate > 0)
            if grant.is_paid:
                self._debt_bytes += size_bytes
                self.spent_bytes += size_bytes
            self._grants.append(grant)
            return grant

    def end_grant(self, grant: Grant, left_bytes: int) -> None:
        """End a grant, of which some bytes were not needed."""
        with self._lock:
            if grant in self._grants:
                self._grants.remove(grant)
            self._admitted_bytes += grant.size_bytes - left_bytes
            if grant.is_paid:
                self._debt_bytes -= left_bytes
                self.spent_bytes -= left_bytes

    def _granted(self, now_s: float) -> int:
        """Return the bytes of the grants that have not ended."""
        self._grants = [grant for grant in self._grants if grant.until_s > now_s]
        return sum(grant.size_bytes for grant in self._grants)

    def spend(self, size_bytes: int, rate: int, now_s: float) -> None:
        """Note bytes that were appended."""
        with self._lock:
            self._pay(rate, now_s)
            self._debt_bytes += size_bytes
            self.spent_bytes += size_bytes

    def wait_s(self, mark: int, rate: int, now_s: float) -> float:
        """Return how long a writer still has to wait; 0 if it has not.

        Args:
            mark: ``spent_bytes`` after its request.
            rate: The rate of the topic; bytes a second.
            now_s: The clock.
        """
        with self._lock:
            self._pay(rate, now_s)
            return max((self._debt_bytes - (self.spent_bytes - mark)) / rate, 0.0)

    def note_wait(self, seconds: float) -> None:
        """Count an append whose writer had to wait."""
        with self._lock:
            self.throttled += 1
            self.throttled_s += seconds

    def _pay(self, rate: int, now_s: float) -> None:
        paid = (now_s - self._debt_at_s) * rate
        self._debt_bytes = max(self._debt_bytes - paid, -BURST_S * rate)
        self._debt_at_s = now_s


class TopicUsages:
    """The use of the quotas of all topics of a store, by name.

    Args:
        measure: Returns the bytes that the partitions of a topic have.
    """

    def __init__(self, measure: Callable[[str], int] = lambda _topic: 0) -> None:
        self._measure = measure
        self._usages: dict[str, TopicUsage] = {}

    def of(self, topic: str) -> TopicUsage:
        """Return the use of a topic; partitions that are loaded again get the same one."""
        usage = self._usages.get(topic)
        if usage is None:
            usage = self._usages.setdefault(topic, TopicUsage(lambda: self._measure(topic)))
        return usage

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        self._usages.pop(topic, None)
