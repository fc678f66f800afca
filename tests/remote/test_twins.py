"""Two data directories write one store: no record of one hides those of the other."""

import pytest

from logfs.errors import InvalidConfigError, RemoteStorageError
from logfs.log.names import format_topic_id
from logfs.log.remote.bucket import Bucket
from logfs.services.tiering.stores import check_writers, rows_of
from tests.remote.fakestore import FakeStore
from tests.remote.tiering import TIERED, TieredBench, no_throttle


def directory(objects: FakeStore, directory_id: bytes, lines: int) -> TieredBench:
    bench = TieredBench(objects=objects)
    bench.directory_id = directory_id * 16
    bench.fill(lines)
    return bench


def test_a_topic_whose_name_another_directory_has_in_the_store_is_not_copied() -> None:
    objects = FakeStore()
    first, second = directory(objects, b"a", 20), directory(objects, b"b", 40)
    first.tiering.copy(no_throttle)
    before = dict(objects.objects)
    for _ in range(2):
        with pytest.raises(RemoteStorageError, match="on host here, writes a topic of this name"):
            second.tiering.copy(no_throttle)
    assert objects.objects == before


def test_the_own_topic_of_a_name_may_be_made_again() -> None:
    bench = directory(FakeStore(), b"a", 20)
    bench.tiering.copy(no_throttle)
    bench.store.delete_topic("t", bench.now_ms)
    bench.store.create_topic("t", 1, TIERED, bench.now_ms)
    bench.forget_tiering()
    bench.fill(20)
    assert bench.tiering.copy(no_throttle)


@pytest.mark.expect_log("several data directories")
def test_topics_of_one_name_that_are_in_a_store_are_all_shown() -> None:
    objects = FakeStore()
    first, second = directory(objects, b"a", 20), directory(objects, b"b", 40)
    first.tiering.copy(no_throttle)
    second.now_ms += 1000
    second.tiering.begin(takes_over=True)
    second.tiering.copy(no_throttle)
    bucket = Bucket(objects, lambda: 0.0)
    hidden = f"t-{format_topic_id(first.place.topic_id)}-0"
    assert [name for name, _ in bucket.directories()] == sorted(["t-0", hidden])
    for name, bench in ((hidden, first), ("t-0", second)):
        files = bucket.head_files(name)
        assert files is not None
        assert files.head == bench.head
    assert bucket.facts("t-0")["twins"] == [hidden]
    assert len({row.topic_id for row in rows_of(objects)}) == 2
    # By its name alone, without a list of all:
    files = Bucket(objects, lambda: 0.0).head_files(hidden)
    assert files is not None
    assert files.head == first.head


def test_a_store_that_another_directory_writes_is_refused() -> None:
    objects = FakeStore()
    bench = directory(objects, b"a", 20)
    check_writers(objects, "", set(), "/data")
    bench.tiering.copy(no_throttle)
    check_writers(objects, bench.directory_id.hex(), set(), "/data")
    check_writers(objects, "", {bench.place.topic_id}, "/data")  # a copy of that directory
    with pytest.raises(InvalidConfigError, match="on host here, writes the topic t there"):
        check_writers(objects, "", set(), "/data")
