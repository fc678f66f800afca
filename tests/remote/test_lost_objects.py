"""Objects and changes that a store has lost: local files stay until the store has them again."""

from collections.abc import Callable, Iterable

import pytest

from logfs.disk.remote.objects import NoBucketError
from logfs.disk.vfs import ReadableBuffer
from logfs.errors import RemoteStorageError
from tests.log.support import text_of
from tests.remote.fakestore import FakeStore, etag_of
from tests.remote.tiering import TIERED, TieredBench, no_throttle

Lose = Callable[[TieredBench, bytes], bytes]


class LyingStore(FakeStore):
    """A store in whose place a proxy answers: changes are confirmed, and not made."""

    def __init__(self) -> None:
        super().__init__()
        self.lies = ""

    def put(self, key: str, parts: Iterable[ReadableBuffer]) -> None:
        if "put" in self.lies:
            for _ in parts:
                pass
            return
        super().put(key, parts)

    def swap(self, key: str, data: ReadableBuffer, etag: str) -> str:
        if "swap" in self.lies:
            return etag_of(bytes(data))
        return super().swap(key, data, etag)


@pytest.fixture
def objects() -> LyingStore:
    return LyingStore()


def check(bench: TieredBench, text: bytes) -> None:
    """See that the store has every sealed segment, and that the log is read from there."""
    bench.tier_all()
    bases = [entry.base_offset for entry in bench.head.entries]
    assert bases == [segment.base_offset for segment in bench.log.snapshot.segments[:-1]]
    assert len(bench.local_names(".log")) == 1
    for log in (bench.log, bench.restart()):
        assert text_of(log) == text


@pytest.mark.expect_log("had lost objects")
@pytest.mark.parametrize("suffix", ["*", "*.log", "*.indexes"])
def test_lost_objects_are_stored_again_before_local_files_go(suffix: str) -> None:
    bench = TieredBench()
    text = bench.fill(40)
    bench.tiering.copy(no_throttle)
    first, second = bench.head.entries[:2]
    for row in (first, second):
        for key in (bench.place.log, bench.place.indexes):
            name = key(row.base_offset, row.segment_id)
            if suffix == "*" or name.endswith(suffix[1:]):
                del bench.objects.objects[name]
    check(bench, text)


@pytest.mark.expect_log("had lost objects")
def test_an_object_that_was_cut_is_stored_again() -> None:
    bench = TieredBench()
    text = bench.fill(40)
    bench.tiering.copy(no_throttle)
    row = bench.head.entries[0]
    bench.objects.objects[bench.place.log(row.base_offset, row.segment_id)] = b"<html>"
    check(bench, text)


@pytest.mark.allow_log("had lost objects")
@pytest.mark.parametrize("lies", ["put", "swap", "put swap"])
@pytest.mark.parametrize("restarts", [False, True])
def test_changes_that_a_proxy_has_confirmed_lose_no_record(
    objects: LyingStore, lies: str, restarts: bool
) -> None:
    bench = TieredBench(objects=objects)
    text = bench.fill(20)
    bench.tier_all()
    text += bench.fill(20, first=20)
    objects.lies = lies
    bench.tiering.copy(no_throttle)
    objects.lies = ""
    assert text_of(bench.log) == text
    if restarts:
        bench.restart()
    text += bench.fill(20, first=40)
    check(bench, text)


def test_segments_that_the_head_has_lost_are_named_before_later_ones(objects: LyingStore) -> None:
    bench = TieredBench({**TIERED, "local.retention.bytes": "-1"}, objects=objects)
    bench.fill(20)
    objects.lies = "swap"
    bench.tiering.copy(no_throttle)
    assert not bench.head.entries
    objects.lies = ""
    bench.restart()
    bench.fill(20, first=20)
    bench.tiering.copy(no_throttle)
    bases = [entry.base_offset for entry in bench.head.entries]
    assert bases == [segment.base_offset for segment in bench.log.snapshot.segments[:-1]]


def test_local_files_stay_if_the_store_does_not_take_an_object_again() -> None:
    bench = TieredBench()
    text = bench.fill(40)
    bench.tiering.copy(no_throttle)
    row = bench.head.entries[0]
    del bench.objects.objects[bench.place.log(row.base_offset, row.segment_id)]
    bench.objects.fail("put")
    before = bench.local_names(".log")
    with pytest.raises(OSError, match="injected"):
        bench.tiering.drop(bench.now_ms)
    assert bench.local_names(".log") == before
    assert text_of(bench.log) == text


def test_local_files_stay_while_a_proxy_confirms_what_it_does_not_store(
    objects: LyingStore,
) -> None:
    bench = TieredBench(objects=objects)
    text = bench.fill(40)
    objects.lies = "put"
    bench.tiering.copy(no_throttle)
    before = bench.local_names(".log")
    with pytest.raises(RemoteStorageError, match="has confirmed this object, and does not have"):
        bench.tiering.drop(bench.now_ms)
    assert bench.local_names(".log") == before
    assert text_of(bench.log) == text


def test_local_files_stay_if_the_daemon_stops_while_the_store_is_asked() -> None:
    bench = TieredBench()
    bench.fill()
    bench.tiering.copy(no_throttle)
    names = bench.local_names()

    def stop(operation: str, _key: str) -> None:
        if operation == "stat":
            bench.tiering.stop()

    bench.objects.before = stop
    with pytest.raises(RemoteStorageError, match="the daemon is stopping"):
        bench.tiering.drop(bench.now_ms)
    assert bench.local_names() == names


def test_local_files_that_are_other_ones_by_now_are_not_stored() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tiering.copy(no_throttle)
    row = bench.head.entries[0]
    key = bench.place.log(row.base_offset, row.segment_id)
    del bench.objects.objects[key]
    file = bench.disk.open(f"t-0/{row.base_offset:020d}.log", write=True)
    file.pwrite(b"?", 70)
    file.close()
    with pytest.raises(RemoteStorageError, match="cannot be made again"):
        bench.tiering.drop(bench.now_ms)
    assert key not in bench.objects.objects


def older_head(bench: TieredBench, text: bytes) -> bytes:
    """Put an older head in the place of the last one; returns the text of the log."""
    bench.tiering.copy(no_throttle)
    older = bench.objects.objects[bench.place.head]
    text += bench.fill(20, first=20)
    bench.tier_all()
    bench.objects.objects[bench.place.head] = older
    bench.restart()
    return text


def no_head(bench: TieredBench, text: bytes) -> bytes:
    """Remove the head under the process that owns it."""
    bench.tier_all()
    del bench.objects.objects[bench.place.head]
    text += bench.fill(20, first=20)
    with pytest.raises(RemoteStorageError, match="the head is gone"):
        bench.tiering.copy(no_throttle)
    return text


def no_head_after_a_restart(bench: TieredBench, text: bytes) -> bytes:
    """Remove the head, and start another process."""
    bench.tier_all()
    del bench.objects.objects[bench.place.head]
    bench.restart()
    return text


LOSSES = [older_head, no_head, no_head_after_a_restart]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_head_that_was_lost_names_the_segments_again(lose: Lose) -> None:
    bench = TieredBench()
    text = lose(bench, bench.fill(20))
    text += bench.fill(20, first=60)
    check(bench, text)


@pytest.mark.parametrize("lose", LOSSES)
def test_a_lost_head_does_not_name_what_is_gone_until_it_is_back(lose: Lose) -> None:
    bench = TieredBench()
    text = lose(bench, bench.fill(20))
    row = list(bench.tier.entries.values())[-1]
    key = bench.place.log(row.base_offset, row.segment_id)
    data = bench.objects.objects.pop(key)
    bench.fill(20, first=60)
    for _ in range(2):
        with pytest.raises(RemoteStorageError, match="its objects are gone"):
            bench.tiering.copy(no_throttle)
    bench.objects.objects[key] = data
    bench.tiering.copy(no_throttle)
    assert text_of(bench.log).startswith(text)


@pytest.mark.expect_log("had lost objects")
@pytest.mark.parametrize("restarts", [False, True])
def test_a_head_that_is_made_again_names_no_object_before_it_is_there(restarts: bool) -> None:
    """Both were lost, and local retention keeps the files for long."""
    bench = TieredBench({**TIERED, "local.retention.bytes": "-1"})
    text = bench.fill(20)
    bench.tiering.copy(no_throttle)
    bench.objects.objects.clear()
    if restarts:
        bench.restart()
    else:
        text += bench.fill(20, first=20)
        with pytest.raises(RemoteStorageError, match="the head is gone"):
            bench.tiering.copy(no_throttle)
    absent = list[str]()

    def look(*_: object) -> None:
        bench.objects.before = None
        if bench.place.head in bench.objects.objects:
            for row in bench.head.entries:
                for key in (bench.place.log, bench.place.indexes):
                    name = key(row.base_offset, row.segment_id)
                    absent.extend([name] if name not in bench.objects.objects else [])
        bench.objects.before = look

    bench.objects.before = look
    bench.tiering.begin()
    look()
    bench.objects.before = None
    assert len(bench.head.entries) > 1
    assert not absent
    bench.tiering.copy(no_throttle)
    bases = [entry.base_offset for entry in bench.head.entries]
    assert bases == [segment.base_offset for segment in bench.log.snapshot.segments[:-1]]
    assert text_of(bench.log) == text


def test_a_bucket_that_is_away_is_no_lost_head() -> None:
    bench = TieredBench()
    text = bench.fill(20)
    bench.tier_all()
    bench.restart()

    def refuse(operation: str, key: str) -> None:
        raise NoBucketError(f"s3://fake/logs/{key}")

    bench.objects.before = refuse
    with pytest.raises(NoBucketError):
        bench.tiering.begin()
    bench.objects.before = None
    text += bench.fill(20, first=20)
    check(bench, text)


def check_named(bench: TieredBench) -> None:
    """See that every object is there that the head names."""
    for row in bench.head.entries:
        for key in (bench.place.log, bench.place.indexes):
            assert key(row.base_offset, row.segment_id) in bench.objects.objects


@pytest.mark.expect_log("had lost objects")
@pytest.mark.parametrize("restarts", [False, True])
def test_a_bucket_that_went_back_in_time_gets_again_what_it_has_lost(restarts: bool) -> None:
    bench = TieredBench({**TIERED, "local.retention.bytes": "-1"})
    text = bench.fill(20)
    bench.tiering.copy(no_throttle)
    before = dict(bench.objects.objects)
    text += bench.fill(20, first=20)
    if restarts:
        bench.restart()
    bench.tiering.copy(no_throttle)
    bench.objects.objects = before
    text += bench.fill(20, first=40)
    if restarts:
        with pytest.raises(RemoteStorageError, match="went back in time"):
            bench.tiering.copy(no_throttle)
    bench.tiering.copy(no_throttle)
    check_named(bench)
    assert len(bench.head.entries) == len(bench.log.snapshot.segments) - 1
    assert text_of(bench.log) == text


def test_a_head_names_no_segment_that_a_bucket_has_lost_for_good() -> None:
    bench = TieredBench()
    bench.fill(20)
    bench.tier_all()
    before = dict(bench.objects.objects)
    bench.fill(20, first=20)
    bench.tier_all()
    bench.objects.objects = before
    bench.fill(20, first=40)
    for _ in range(2):
        with pytest.raises(RemoteStorageError, match="and its objects are gone"):
            bench.tiering.copy(no_throttle)
        check_named(bench)
