"""What two looks at a partition directory say happened in between: pure.

A broker removes the oldest segments (retention), removes the newest ones (truncation), and puts one
file in the place of several (compaction: the first of the group keeps its name and is another file,
the others are gone). New segments after the last one are not told here: that is growth.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Replaced(NamedTuple):
    """Known segments ``[first, stop)`` have become the one that has the name of the first."""

    first: int
    stop: int


class Changes(NamedTuple):
    """What happened to the segments that were known, by their index.

    Attributes:
        dropped: How many of the oldest are gone.
        replaced: Groups that were rewritten, in order.
        lost: Segments in the middle that are gone although nothing took their place.
        cut: The first index from which nothing is what it was; None if the end is.
    """

    dropped: int = 0
    replaced: tuple[Replaced, ...] = ()
    lost: tuple[int, ...] = ()
    cut: int | None = None

    def __bool__(self) -> bool:
        return self != Changes()


class Look(NamedTuple):
    """What a look found, to be held against the next one.

    New segments after the last one do not count: a log that rolls all the time is followed, too.

    Attributes:
        logs: Base offset -> inode of the ``.log`` files up to ``last``.
        last: Base offset of the last segment that was known then.
        since_ms: When it was first found so.
    """

    logs: dict[int, int]
    last: int
    since_ms: int

    @classmethod
    def of(cls, found: Mapping[int, int], last: int, now_ms: int) -> "Look":
        """Note what was found, of segments up to ``last``."""
        return cls(_up_to(last, found), last, now_ms)

    def agrees(self, found: Mapping[int, int]) -> bool:
        """Whether the next look found the same."""
        return self.logs == _up_to(self.last, found)


def _up_to(last: int, found: Mapping[int, int]) -> dict[int, int]:
    return {base: inode for base, inode in found.items() if base <= last}


def compare(known: Sequence[tuple[int, int]], found: Mapping[int, int]) -> Changes:
    """Compare the files there are with known segments: (base offset, inode) in order."""
    bases = [base for base, _ in known]
    known_bases = set(bases)
    strange = [base for base in found if base < bases[-1] and base not in known_bases]
    stop = len(known)
    if strange:
        # Something began where nothing did: from there on it is another log.
        stop = sum(base < min(strange) for base in bases)
    while stop and bases[stop - 1] not in found:
        stop -= 1
    dropped = next((n for n in range(stop) if bases[n] in found), stop)
    groups: list[list[int]] = []
    lost = []
    for number in range(dropped, stop):
        base, inode = known[number]
        if base not in found:
            if groups and groups[-1][1] == number:
                groups[-1][1] = number + 1
            else:
                lost.append(number)
        elif found[base] != inode:
            groups.append([number, number + 1])
    if groups and groups[-1][1] == len(known):
        # The segment that is appended to is never compacted, so its start is another one.
        stop = groups.pop()[0]
    cut = stop if stop < len(known) else None
    return Changes(dropped, tuple(Replaced(*group) for group in groups), tuple(lost), cut)
