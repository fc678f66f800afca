"""A partition against a list: appended to, read from any point, reopened; by itself and mounted."""

import itertools
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logfs
from logfs import NewRecord, Record
from logfs.library.points import Point
from logfs.library.records import Headers
from tests.mounting import Mount

EXAMPLES = int(os.environ.get("LOGFS_MODEL_EXAMPLES", "25"))
BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
BEGIN_MS = int(BEGIN.timestamp() * 1000)
SMALL = {"internal.segment.bytes": "700", "index.interval.bytes": "100"}
_NUMBERS = itertools.count()
Recipe = tuple[bytes | None, bytes | None, int, bool]
Drawn = tuple[str, int]

values = st.none() | st.sampled_from([b"", b"v", b"two\nlines", b"x" * 90, b"\xff\x00"])
recipes = st.tuples(values, values, st.integers(0, 600), st.booleans())
points = st.one_of(
    st.tuples(st.just("offset"), st.integers(-30, 30)),
    st.tuples(st.just("moment"), st.integers(-1, 601)),
    st.tuples(st.just("byte"), st.integers(-200, 900)),
    st.sampled_from([("earliest", 0), ("latest", 0)]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), recipes),
        st.tuples(st.just("append_many"), st.lists(recipes, max_size=12)),
        st.tuples(st.just("read"), points, st.none() | points),
        st.tuples(st.just("follow"), points),
        st.tuples(st.just("reopen")),
        st.tuples(st.just("close")),
    ),
    min_size=5,
    max_size=30,
)


class Model:
    """The list, and the partition beside it."""

    def __init__(self, data: Path, topic: str) -> None:
        self.records: list[Record] = []
        self._path = data / topic / "0"
        self.opened = [logfs.open(self._path)]

    # What is done to both

    def append(self, recipe: Recipe) -> None:
        record = self._new(recipe)
        offset = self.opened[-1].append(
            record.value, key=record.key, headers=record.headers, timestamp=record.timestamp
        )
        assert offset == len(self.records)
        self._note(record)

    def append_many(self, made: list[Recipe]) -> None:
        new = [self._new(recipe) for recipe in made]
        first = len(self.records)
        assert list(self.opened[-1].append_many(new)) == list(range(first, first + len(new)))
        for record in new:
            self._note(record)

    def reopen(self) -> None:
        """Another one beside it."""
        self.opened.append(logfs.open(self._path))

    def close(self) -> None:
        """The last one is closed, and maybe reopened."""
        self.opened.pop().close()
        if not self.opened:
            self.reopen()

    # What has to be the same

    def read(self, start: Drawn, stop: Drawn | None) -> None:
        first, last = self._offset(start), len(self.records)
        given = [self._point(start)]
        if stop is not None:
            last = self._offset(stop)
            given.append(self._point(stop))
        for partition in self.opened:
            assert list(partition.read(*given)) == self.records[first:last]

    def follow(self, start: Drawn) -> None:
        for partition in self.opened:
            found = partition.follow(self._point(start), timeout=0.0)
            assert list(found) == self.records[self._offset(start) :]
            assert partition.offset_at(self._point(start)) == self._offset(start)
            assert (partition.start_offset, partition.end_offset) == (0, len(self.records))

    def _new(self, recipe: Recipe) -> NewRecord:
        value, key, minutes, has_headers = recipe
        headers: Headers = [("h", b"x"), (b"\xff", None)] if has_headers else []
        return NewRecord(value, key, headers, BEGIN + timedelta(minutes=minutes))

    def _note(self, record: NewRecord) -> None:
        assert isinstance(record.timestamp, datetime)
        timestamp = BEGIN_MS + (record.timestamp - BEGIN) // timedelta(milliseconds=1)
        headers = tuple(
            (key.encode() if isinstance(key, str) else key, value) for key, value in record.headers
        )
        self.records.append(Record(len(self.records), timestamp, record.key, record.value, headers))

    def _point(self, drawn: Drawn) -> Point:
        match drawn:
            case "offset", n:
                return n
            case "moment", minutes:
                return BEGIN + timedelta(minutes=minutes)
            case "byte", n:
                return f"byte={n}"
        return drawn[0]

    def _offset(self, drawn: Drawn) -> int:
        end = len(self.records)
        match drawn:
            case "earliest", _:
                return 0
            case "offset", n:
                return min(max(n if n >= 0 else end + n, 0), end)
            case "moment", minutes:
                return self._first(lambda r: r.timestamp >= BEGIN_MS + minutes * 60_000)
            case "byte", n:
                lengths = [len(record.value or b"") + 1 for record in self.records]
                begins = [0, *itertools.accumulate(lengths)]
                byte = n if n >= 0 else begins[-1] + n
                return self._first(lambda r: begins[r.offset] >= byte)
        return end

    def _first(self, holds: Callable[[Record], bool]) -> int:
        return next((r.offset for r in self.records if holds(r)), len(self.records))


def run(data: Path, drawn: list[tuple[Any, ...]]) -> None:
    """Do the steps with their own topic."""
    topic = f"topic-{next(_NUMBERS)}"
    with logfs.open_store(data) as store:
        store.create_topic(topic, config=SMALL)
    model = Model(data, topic)
    try:
        for name, *arguments in drawn:
            getattr(model, name)(*arguments)
        model.follow(("earliest", 0))
    finally:
        while model.opened:
            model.opened.pop().close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alone")


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(drawn=steps)
def test_the_model_in_a_directory_without_a_daemon(
    alone: Path, drawn: list[tuple[Any, ...]]
) -> None:
    data = alone / str(next(_NUMBERS))
    data.mkdir()
    run(data, drawn)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("served")
    with Mount(directory / "data", directory / "mnt") as mount:
        yield mount.point


@pytest.mark.fuse
@settings(max_examples=EXAMPLES)
@given(drawn=steps)
def test_the_model_through_a_mount(served: Path, drawn: list[tuple[Any, ...]]) -> None:
    run(served, drawn)
