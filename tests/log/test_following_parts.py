"""Ranges of a large log whose positions are not known yet."""

from datetime import UTC

import pytest

from logfs.log.reading.address import parse_partition_name
from logfs.services.meta import partition_meta
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.resolve import Resolved, resolve
from tests.fakes import START_MS, FakeDisk
from tests.log.foreign import FakeBroker, Follower
from tests.log.support import lines_of, read_all

LINE_BYTES = 1000
COUNT = 60
SEGMENTS = 10


def line(number: int) -> bytes:
    return b"%0*d" % (LINE_BYTES - 1, number)


@pytest.fixture
def broker() -> FakeBroker:
    """A log of many segments; the timestamps of its records are their offsets after the start."""
    broker = FakeBroker(FakeDisk())
    for segment in range(SEGMENTS):
        if segment:
            broker.roll()
        for start in range(segment * COUNT, (segment + 1) * COUNT, 5):
            broker.append(*map(line, range(start, start + 5)))
    return broker


@pytest.fixture
def follower(broker: FakeBroker) -> Follower:
    """It has read almost nothing yet."""
    follower = Follower(broker.disk, at_once_bytes=0)
    assert follower.log.indexing is not None
    return follower


def resolved(follower: Follower, selector: str) -> Resolved:
    address = parse_partition_name(f"0@{selector}", UTC)
    found = follower.store.parts.for_range(follower.log, address, follower.now_ms)
    assert found is not None
    part, address = found
    return resolve(part, address, follower.now_ms)


def read_growing(found: Resolved) -> list[bytes]:
    part = found.log
    while part.indexing is not None:
        part.refresh(START_MS + 2_000_000)
    file = GrowingFile(part, found.view, found.start, found.limit)
    return read_all(file).splitlines()


@pytest.mark.parametrize("first", [0, 1, 59, 60, 301, 595, 599])
def test_a_range_from_an_offset_begins_with_the_segment_it_needs(
    follower: Follower, first: int
) -> None:
    found = resolved(follower, f"offset={first}")
    assert found.log.snapshot.segments[0].base_offset == first // COUNT * COUNT
    assert read_growing(found) == list(map(line, range(first, SEGMENTS * COUNT)))


@pytest.mark.parametrize("first", [0, 61, 301, 595])
def test_a_range_from_a_moment(follower: Follower, first: int) -> None:
    found = resolved(follower, f"{START_MS + first}")
    assert read_growing(found) == list(map(line, range(first, SEGMENTS * COUNT)))


@pytest.mark.parametrize("count", [1, 59, 60, 61, 200])
def test_a_range_counted_back_from_the_end(follower: Follower, count: int) -> None:
    found = resolved(follower, f"offset=-{count}")
    end = SEGMENTS * COUNT
    assert read_growing(found) == list(map(line, range(end - count, end)))


@pytest.mark.parametrize(
    ("selector", "first", "last"),
    [
        ("offset=100..offset=103", 100, 103),
        ("offset=100..offset=400", 100, 400),
        (f"{START_MS + 250}..{START_MS + 260}", 250, 260),
        ("offset=590..latest", 590, 600),
        ("offset=-10..offset=-3", 590, 597),
    ],
)
def test_a_range_with_an_end(follower: Follower, selector: str, first: int, last: int) -> None:
    found = resolved(follower, selector)
    assert read_all(FixedFile(found)).splitlines() == list(map(line, range(first, last)))


@pytest.mark.parametrize("selector", ["earliest", "byte=5", "earliest..latest", "offset=3..byte=9"])
def test_what_takes_positions_takes_the_whole_log(follower: Follower, selector: str) -> None:
    address = parse_partition_name(f"0@{selector}", UTC)
    assert follower.store.parts.for_range(follower.log, address, follower.now_ms) is None


def test_a_part_follows_what_is_appended_and_keeps_its_positions(
    broker: FakeBroker, follower: Follower
) -> None:
    found = resolved(follower, "offset=595")
    assert resolved(follower, "offset=595").log is found.log
    file = GrowingFile(found.log, found.view, found.start)
    out, offset = memoryview(bytearray(1 << 16)), 0
    for number in range(600, 640, 2):
        broker.append(line(number), line(number + 1))
        if number % 10 == 0:
            broker.roll()
        follower.look()
        offset += file.read_into(out, offset)
    assert offset == 45 * LINE_BYTES
    assert follower.log.indexing is None
    assert lines_of(follower.log) == broker.values()


def test_progress_is_in_meta_until_all_positions_are_known(follower: Follower) -> None:
    progress = partition_meta(follower.log)["indexing"]
    assert 0 < progress["done_bytes"] < progress["total_bytes"]
    follower.look()
    assert "indexing" not in partition_meta(follower.log)


def test_indexing_continues_where_it_was_when_the_mount_ended(broker: FakeBroker) -> None:
    follower = Follower(broker.disk, FakeDisk(), at_once_bytes=0)
    while follower.log.done_bytes < 300_000:
        follower.log.refresh(follower.now_ms, 50_000)
    done = follower.log.done_bytes
    follower.restart()
    assert follower.log.done_bytes >= done
    assert follower.log.indexing is not None
    assert lines_of(follower.look()) == broker.values()
