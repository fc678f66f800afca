"""Which task reads what: ranges of offsets are cut and packed. Pure.

A task costs 60 ms of a core before it reads anything, so small partitions share one; a large one
is cut, so that many cores have work. What is given here has been cut at places that the indexes
know already.

Source: Spark KafkaOffsetRangeCalculator, for ``minPartitions`` and ``maxRecordsPerPartition``.
"""

from collections.abc import Iterable, Sequence

from logfs.library.stored_partitions import SizedRange

_MIB = 1024 * 1024
LEAST_BYTES = 64 * _MIB
USUAL_BYTES = 128 * _MIB
MOST_BYTES = 256 * _MIB
_MANY_TASKS = 10_000


Task = tuple[SizedRange, ...]


def task_bytes(total_bytes: int, cores: int) -> int:
    """Return how much a task is to read: less if there is little, more if there is very much."""
    share = -(-total_bytes // max(cores, 1))
    return max(LEAST_BYTES, min(USUAL_BYTES, share), min(MOST_BYTES, total_bytes // _MANY_TASKS))


def plan(
    ranges: Sequence[SizedRange], most_bytes: int, min_tasks: int | None, max_records: int | None
) -> list[Task]:
    """Share out ranges.

    Args:
        ranges: Without empty ones, in order; none much larger than ``most_bytes``.
        most_bytes: The most that a task reads; one with a larger range has only that.
        min_tasks: Cut further until there are so many, if there are as many offsets.

    Returns:
        The tasks; each offset is in one.
    """
    if max_records is not None:
        ranges = [part for one in ranges for part in _even(one, -(-one.offsets // max_records))]
    tasks = _packed(ranges, most_bytes, max_records)
    if min_tasks is None or len(tasks) >= min_tasks:
        return tasks
    if len(ranges) < min_tasks:
        ranges = _cut_into(ranges, min_tasks)
    return [(one,) for one in ranges]


def _packed(ranges: Iterable[SizedRange], most_bytes: int, max_records: int | None) -> list[Task]:
    tasks: list[list[SizedRange]] = []
    size = offsets = 0
    for one in ranges:
        size, offsets = size + one.size_bytes, offsets + one.offsets
        is_full = size > most_bytes or (max_records is not None and offsets > max_records)
        if is_full or not tasks:
            tasks.append([])
            size, offsets = one.size_bytes, one.offsets
        tasks[-1].append(one)
    return [tuple(_joined(task)) for task in tasks]


def _joined(task: Iterable[SizedRange]) -> list[SizedRange]:
    """Make one range of those that follow each other."""
    found: list[SizedRange] = []
    for one in task:
        last = found[-1] if found else None
        if last and last.topic_partition == one.topic_partition and last.end == one.start:
            size = last.size_bytes + one.size_bytes
            found[-1] = last._replace(end=one.end, size_bytes=size)
        else:
            found.append(one)
    return found


def _cut_into(ranges: Sequence[SizedRange], wanted: int) -> list[SizedRange]:
    """Cut large ranges in proportion; small ones stay. Source: KafkaOffsetRangeCalculator."""
    total = sum(one.offsets for one in ranges)
    whole = {one for one in ranges if _parts(one.offsets, total, wanted) == 1}
    rest = total - sum(one.offsets for one in whole)
    left = max(wanted - len(whole), 1)
    return [
        part
        for one in ranges
        for part in ([one] if one in whole else _even(one, _parts(one.offsets, rest, left)))
    ]


def _parts(offsets: int, total: int, wanted: int) -> int:
    return max(1, round(offsets * wanted / total))


def _even(one: SizedRange, count: int) -> list[SizedRange]:
    """Cut a range into parts that differ by one offset at most; there may be fewer than wanted."""
    begin, left, parts = one.start, one.offsets, []
    count = min(count, left)
    for number in range(count):
        taken = left // (count - number)
        size = one.size_bytes * taken // one.offsets
        parts.append(SizedRange(one.topic_partition, begin, begin + taken, size))
        begin, left = begin + taken, left - taken
    return parts
