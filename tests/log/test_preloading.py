"""A load that uses what was read before is the load that reads everything itself."""

from collections.abc import Callable

import pytest

from logfs.config import StoreConfig
from logfs.log import names
from logfs.log.host import Host
from logfs.log.loading.preloading import Preloaded
from logfs.log.segments.table import ENTRY_BYTES
from logfs.log.store import LogStore
from logfs.services.retention.trimming import trim
from logfs.services.views.files import GrowingFile
from logfs.types import View
from tests.fakes import FakeDisk
from tests.log.support import DIRECTORY, Bench, contents, read_all

pytestmark = pytest.mark.allow_log("has lost")

HOST = Host("00000001", lambda: bytes(16))
SMALL = {"internal.segment.bytes": "200", "index.interval.bytes": "50"}
TABLE = f"{DIRECTORY}/{names.SEGMENT_TABLE}"


def load(disk: FakeDisk, now_ms: int, preloaded: Preloaded | None = None) -> LogStore:
    config = StoreConfig(num_recovery_threads_per_data_dir=1)
    return LogStore.open(disk, config, HOST, now_ms=now_ms, preloaded=preloaded)


def text_of(store: LogStore) -> bytes:
    log = store.partition("t", 0)
    start = log.snapshot.start.positions[View.TEXT]
    return read_all(GrowingFile(log, View.TEXT, start))


def seen(store: LogStore) -> object:
    log = store.partition("t", 0)
    segments = [
        (s.base_offset, s.bases, s.ends, s.next_offset, s.size_bytes, s.lengths)
        for s in log.snapshot.segments
    ]
    return segments, log.log_start_offset, log.log_end_offset, log.state.table.state, text_of(store)


def preload(bench: Bench, age_ms: int) -> Preloaded:
    """Read what a bench has made, some time after its last change."""
    bench.now_ms += age_ms
    bench.disk.now_ms += age_ms
    return Preloaded.read(bench.disk, HOST, bench.now_ms)


def append(bench: Bench) -> None:
    bench.write(*(b"line %d" % n for n in range(20)))


def cut(bench: Bench) -> None:
    trim(bench.log, bench.log.log_end_offset // 2, bench.now_ms, at_once=True)


def damage(bench: Bench) -> None:
    file = bench.disk.open(TABLE, write=True)
    file.pwrite(b"\xff", file.size() - ENTRY_BYTES - 20)


def rewrite(bench: Bench) -> None:
    table = bench.log.state.table
    table.rewrite(sorted(table.entries.values()))


def lose_an_index(bench: Bench) -> None:
    bench.disk.remove(f"{DIRECTORY}/{bench.names('.index')[1]}")


CHANGES = {
    "nothing": lambda _: None,
    "append": append,
    "trim": cut,
    "damage": damage,
    "rewrite": rewrite,
    "index": lose_an_index,
    "new topic": lambda bench: bench.store.create_topic("u", 1, {}, bench.now_ms),
    "deleted": lambda bench: (
        bench.store.delete_topic("t", bench.now_ms),
        bench.store.create_topic("t", 1, SMALL, bench.now_ms),
    ),
}


@pytest.mark.parametrize("age_ms", [0, 60_000], ids=["new", "old"])
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_load_does_not_depend_on_what_was_read_before(
    change: Callable[[Bench], None], is_clean: bool, age_ms: int
) -> None:
    bench = Bench(SMALL)
    append(bench)
    preloaded = preload(bench, age_ms)
    change(bench)
    if is_clean:
        bench.store.close(bench.now_ms)
    bench.disk.kill()
    other = bench.disk.after_kill()
    expected = seen(load(other, bench.now_ms))
    assert seen(load(bench.disk, bench.now_ms, preloaded)) == expected
    assert contents(bench.disk) == contents(other)


@pytest.mark.parametrize("age_ms", [0, 60_000], ids=["new", "old"])
def test_what_has_not_changed_is_not_decoded_again(age_ms: int) -> None:
    bench = Bench(SMALL)
    append(bench)
    preloaded = preload(bench, age_ms)
    before = preloaded._partitions[DIRECTORY]
    read = [segment for _, segment in before.segments.values()]
    append(bench)
    bench.store.close(bench.now_ms)
    log = load(bench.disk, bench.now_ms, preloaded).partition("t", 0)
    assert len(read) > 3
    assert list(log.snapshot.segments[: len(read)]) == read
    assert log.state.table.state is before.table.state


def test_a_directory_is_listed_again_only_if_it_had_just_been_changed() -> None:
    def listings(age_ms: int) -> int:
        bench = Bench(SMALL)
        append(bench)
        bench.store.close(bench.now_ms)
        preloaded = preload(bench, age_ms)
        before = bench.disk.counts["list"]
        assert load(bench.disk, bench.now_ms, preloaded).partition("t", 0).log_end_offset == 20
        return bench.disk.counts["list"] - before

    assert listings(9_999) - listings(10_000) == 1
