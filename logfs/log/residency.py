"""How much of a log is in the page cache, for those who tune a machine; looked at when asked."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from logfs.disk.vfs import Disk
from logfs.log.segments.snapshot import Snapshot

MOST_SEGMENTS = 1000
"""So many are told one by one."""


class Residency(NamedTuple):
    """What of the ``.log`` files of a partition was in memory at one moment.

    Attributes:
        time_ms: When it was looked at.
        cached_bytes: Bytes in the page cache, of those that were looked at.
        looked_at_bytes: Bytes of the files that were looked at, from the newest one on: all of the
            log, unless that would have taken too long.
        segments: Bytes in the page cache by segment (its base offset), newest first; of the newest
            ``MOST_SEGMENTS``.
    """

    time_ms: int
    cached_bytes: int
    looked_at_bytes: int
    segments: Mapping[int, int]

    def as_json(self) -> dict[str, object]:
        """Return it for ``.meta``."""
        segments = {str(base_offset): cached for base_offset, cached in self.segments.items()}
        return {**self._asdict(), "segments": segments}


def look_at_cache(
    disk: Disk, snapshot: Snapshot, now_ms: int, is_over: Callable[[], bool]
) -> Residency | None:
    """Look at the files of a partition, the newest first; None if the kernel does not say.

    Args:
        disk: The data directory.
        snapshot: The partition.
        now_ms: The clock.
        is_over: Says that it has taken long enough; the newest file is looked at in any case.
    """
    cached = looked_at = 0
    segments: dict[int, int] = {}
    for number in range(len(snapshot.segments) - 1, -1, -1):
        try:
            found = disk.cached_bytes(snapshot.segments[number].name)
        except OSError:
            continue  # deleted meanwhile
        if found is None:
            return None
        cached += found
        if len(segments) < MOST_SEGMENTS:
            segments[snapshot.segments[number].base_offset] = found
        looked_at += max(snapshot.end_of(number)[2], found)
        if is_over():
            break
    return Residency(now_ms, cached, looked_at, segments)
