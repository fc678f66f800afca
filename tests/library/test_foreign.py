"""The directory of a broker through the library: nothing in it says where what is."""

import shutil
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import logfs
from logfs import NewRecord
from logfs.disk.posix import PosixDisk
from logfs.library.cursor import Cursor, read_batches
from logfs.library.followed_directory import FollowedDirectory
from logfs.library.points import Point, point_of
from logfs.types import IsolationLevel, TopicPartition

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
COUNT = 3000
TP = TopicPartition("orders", 0)


def value(n: int) -> bytes:
    return b"record %04d" % n + b"." * 100


def values(records: Iterable[logfs.Record]) -> list[bytes | None]:
    return [record.value for record in records]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as a broker leaves it, which no test changes."""
    data = tmp_path_factory.mktemp("foreign") / "data"
    data.mkdir()
    with logfs.open_store(data) as store:
        store.create_topic("orders", config={"internal.segment.bytes": "20000"})
        orders = store.partition("orders")
        for begin in range(0, COUNT, 50):
            orders.append_many(
                NewRecord(value(n), timestamp=BEGIN + timedelta(seconds=n))
                for n in range(begin, begin + 50)
            )
    strip(data)
    return data


def strip(data: Path) -> None:
    """Remove what no broker writes."""
    for own in [*data.glob("logfs.*"), *data.glob("*/logfs.*"), *data.glob("*/*.textindex")]:
        own.unlink()


def test_the_whole_and_parts_of_it(foreign: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in foreign.rglob("*"))
    with logfs.open(foreign / "orders" / "0") as orders:
        assert values(orders.read()) == [value(n) for n in range(COUNT)]
        assert values(orders.read(1000, 1003)) == [value(n) for n in range(1000, 1003)]
        assert orders.offset_at(BEGIN + timedelta(seconds=777)) == 777
        assert orders.offset_at("byte=-112") == COUNT - 1
        assert (orders.start_offset, orders.end_offset) == (0, COUNT)
    assert sorted((path, path.stat().st_mtime_ns) for path in foreign.rglob("*")) == before


POINTS: list[tuple[Point, int]] = [
    ("earliest", 0),
    ("latest", COUNT),
    (0, 0),
    (1777, 1777),
    (COUNT + 5, COUNT),
    (-1, COUNT - 1),
    (-1700, COUNT - 1700),
    (-9999, 0),
    (BEGIN + timedelta(seconds=1777), 1777),
    (BEGIN - timedelta(days=1), 0),
    (BEGIN + timedelta(days=1), COUNT),
    ("byte=0", 0),
    ("byte=-1", COUNT),
    ("byte=-112", COUNT - 1),
]


@pytest.mark.parametrize("level", [IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED])
@pytest.mark.parametrize(("point", "offset"), POINTS, ids=str)
def test_points_in_a_log_that_has_not_been_read(
    foreign: Path, point: Point, offset: int, level: IsolationLevel
) -> None:
    source = FollowedDirectory(PosixDisk(foreign), lambda name: name == TP, step_bytes=4096)
    whole = source.log(TP)
    assert whole.indexing is not None
    log, found = source.locate(whole, point_of(point, UTC), level)
    assert found == offset
    _, end = source.locate(source.log(TP), point_of("latest", UTC), level)
    records = [
        record for batch in read_batches(Cursor(source, log, found, level), end) for record in batch
    ]
    assert values(records) == [value(n) for n in range(offset, COUNT)]
    source.close()


@pytest.fixture
def stopped(foreign: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    shutil.copytree(foreign, tmp_path / "copy")
    return tmp_path / "copy"


def test_appends_of_another_program_are_followed(stopped: Path) -> None:
    """The reader does not use what logfs adds to the directory, as if a broker wrote it."""
    with logfs.open(stopped / "orders" / "0") as orders:
        coming = orders.follow(COUNT - 1)
        assert next(coming).offset == COUNT - 1
        with logfs.open_store(stopped) as writer:
            for n in range(COUNT, COUNT + 500):
                writer.partition("orders").append(value(n))
                assert next(coming).value == value(n)
