"""Which segments compaction makes one of: neighbours that together are no larger than one may be.

Pure. Source: Kafka Cleaner.groupSegmentsBySize.
"""

from collections.abc import Sequence
from typing import NamedTuple

MAX_RELATIVE_OFFSET = 2**31 - 1


class Sizes(NamedTuple):
    """What the rule knows of a segment; sizes in bytes."""

    base_offset: int
    log: int
    offset_index: int
    time_index: int


def group_segments(
    segments: Sequence[Sizes], max_bytes: int, max_index_bytes: int, first_uncleanable: int
) -> list[range]:
    """Divide segments into groups, each to become one segment.

    Args:
        segments: In offset order.
        max_bytes: Of the logs of a group, ``segment.bytes``.
        max_index_bytes: Of the offset indexes of a group, and of its time indexes.
        first_uncleanable: Offset behind the last of them.

    Returns:
        The indexes of the segments of each group, in order; none is empty.
    """
    ends = [s.base_offset for s in segments[1:]] + [first_uncleanable]
    groups: list[range] = []
    start = 0
    while start < len(segments):
        stop, total = start + 1, segments[start]
        while stop < len(segments):
            following = segments[stop]
            total = Sizes(
                total.base_offset,
                total.log + following.log,
                total.offset_index + following.offset_index,
                total.time_index + following.time_index,
            )
            spans = ends[stop] - 1 - total.base_offset
            if (
                total.log > max_bytes
                or max(total.offset_index, total.time_index) > max_index_bytes
                or (following.log and spans > MAX_RELATIVE_OFFSET)
            ):
                break
            stop += 1
        groups.append(range(start, stop))
        start = stop
    return groups
