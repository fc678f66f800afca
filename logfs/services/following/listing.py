"""What one listing of a partition directory that another process writes says, and what two say.

A broker removes the oldest segments (retention), removes the newest ones (truncation), and puts one
file in the place of several (compaction: the first of the group keeps its name and is another file,
the others are gone). New segments after the last one are growth, and not among the ``Changes``.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.log.listing import list_partition
from logfs.log.names import FileKind, FileSuffix

RACY_MS = 100
"""A time stamp this young may not change if the directory changes once more."""


class Listing(NamedTuple):
    """What a look found.

    Attributes:
        logs: Base offset -> inode of every ``.log``.
        is_swapping: Files are being put in the place of others: what is missing says nothing.
        mtime_ms: The modification time of the directory, when it was looked at; None if it may
            change unseen.
    """

    logs: dict[int, int]
    is_swapping: bool
    mtime_ms: int | None

    def starting(self, base_offset: int) -> "Listing":
        """Return it without what lies before a base offset."""
        if not self.logs or base_offset <= min(self.logs):
            return self
        logs = {base: inode for base, inode in self.logs.items() if base >= base_offset}
        return self._replace(logs=logs)


def list_logs(disk: Disk, directory: str, now_ms: int) -> Listing:
    """Look at a partition directory; FileNotFoundError if it is gone."""
    mtime_ms = disk.stat(directory).mtime_ms
    files = list_partition(disk, directory)
    is_swapping = bool(files.inodes(FileKind.LOG, FileSuffix.SWAP))
    is_racy = mtime_ms > now_ms - RACY_MS
    return Listing(files.inodes(FileKind.LOG), is_swapping, None if is_racy else mtime_ms)


class SegmentNames(NamedTuple):
    """What the names in a partition directory say.

    Attributes:
        logs: Base offset -> inode of every ``.log``, in the order of the offsets.
        swapped: Those of them that are still called ``.swap``: the owner is replacing files, or
            was stopped while it did.
    """

    logs: dict[int, int]
    swapped: frozenset[int]
    indexed: frozenset[int]
    snapshots: frozenset[int]


def list_names(disk: Disk, directory: str) -> SegmentNames:
    """Look at a partition directory; raise FileNotFoundError if it is gone."""
    files = list_partition(disk, directory)
    logs, swaps = files.inodes(FileKind.LOG), files.inodes(FileKind.LOG, FileSuffix.SWAP)
    indexed = {
        *files.inodes(FileKind.TXN_INDEX),
        *files.inodes(FileKind.TXN_INDEX, FileSuffix.SWAP),
    }
    # What was compacted is treated as soon as the files that it means are gone.
    swapped = frozenset(swaps.keys() - logs.keys())
    both = {base: logs.get(base, swaps.get(base, 0)) for base in sorted({*logs, *swapped})}
    return SegmentNames(
        both, swapped, frozenset(indexed), frozenset(files.inodes(FileKind.SNAPSHOT))
    )


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
