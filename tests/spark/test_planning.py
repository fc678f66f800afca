"""Ranges to tasks."""

from hypothesis import given
from hypothesis import strategies as st

from logfs.library.stored_partitions import SizedRange
from logfs.spark.planning import (
    LEAST_BYTES,
    MOST_BYTES,
    USUAL_BYTES,
    Task,
    plan,
    task_bytes,
)
from logfs.types import TopicPartition


def sized(partition: int, start: int, end: int, size_bytes: int) -> SizedRange:
    return SizedRange(TopicPartition("t", partition), start, end, size_bytes)


@st.composite
def range_lists(draw: st.DrawFn) -> list[SizedRange]:
    """The pieces of some partitions, in order."""
    found = []
    for partition in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, 50))
        for _ in range(draw(st.integers(1, 4))):
            end = start + draw(st.integers(1, 40))
            found.append(sized(partition, start, end, draw(st.integers(0, 300))))
            start = end
    return found


def offsets(tasks: list[Task]) -> list[tuple[TopicPartition, int]]:
    return [(one, o) for task in tasks for one, start, end, _ in task for o in range(start, end)]


@given(
    range_lists(),
    st.integers(1, 500),
    st.none() | st.integers(1, 30),
    st.none() | st.integers(1, 30),
)
def test_every_offset_is_in_one_task(
    ranges: list[SizedRange], most: int, least_tasks: int | None, max_records: int | None
) -> None:
    tasks = plan(ranges, most, least_tasks, max_records)
    assert offsets(tasks) == offsets([tuple(ranges)])
    assert all(tasks)
    largest = max((one.size_bytes for one in ranges), default=0)
    assert all(sum(one.size_bytes for one in task) <= max(most, largest) for task in tasks)
    if max_records:
        assert all(sum(one.offsets for one in task) <= max_records for task in tasks)


def test_small_ranges_share_a_task() -> None:
    ranges = [sized(n, 0, 10, 40) for n in range(5)]
    assert [len(task) for task in plan(ranges, 100, None, None)] == [2, 2, 1]


def test_neighbours_become_one_range() -> None:
    tasks = plan([sized(0, 0, 10, 40), sized(0, 10, 30, 40)], 100, None, None)
    assert tasks == [(sized(0, 0, 30, 80),)]


def test_at_least_so_many_tasks() -> None:
    ranges = [sized(0, 0, 90, 0), sized(1, 0, 9, 0)]
    tasks = plan(ranges, 100, 11, None)
    assert [one.offsets for task in tasks for one in task] == [9] * 10 + [9]
    # As Spark's Kafka source: it is a hint, and small ranges stay whole.
    uneven = plan([sized(0, 0, 100, 0), sized(1, 0, 1, 0)], 100, 4, None)
    assert [one.offsets for task in uneven for one in task] == [33, 33, 34, 1]


def test_there_are_no_more_tasks_than_offsets() -> None:
    assert len(plan([sized(0, 0, 3, 0)], 100, 50, None)) == 3


def test_at_most_so_many_records_a_task() -> None:
    tasks = plan([sized(0, 0, 10, 0), sized(1, 0, 2, 0)], 100, None, 4)
    assert [[one.offsets for one in task] for task in tasks] == [[3], [3], [4], [2]]


def test_a_task_is_as_large_as_there_is_work() -> None:
    mib = 1024 * 1024
    assert task_bytes(mib, 8) == LEAST_BYTES
    assert task_bytes(160 * mib, 2) == 80 * mib
    assert task_bytes(10_000 * mib, 2) == USUAL_BYTES
    assert task_bytes(10_000_000 * mib, 2) == MOST_BYTES
