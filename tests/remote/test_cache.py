"""Blocks in a directory: used after a restart, never trusted, never too many."""

import os
import resource
import time
from pathlib import Path

import pytest

from logfs.disk.remote.cache import CacheDirectory
from logfs.disk.remote.cachedfile import CachedFile
from logfs.disk.remote.overlay import UNCHECKED
from logfs.disk.remote.remotefile import RemoteFiles
from tests.processes import wait_until
from tests.remote.fakestore import FakeStore
from tests.remote.files import MIB, StoredLog, files_of, opened, some_bytes

DATA = some_bytes(6 * MIB + 12_345)


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def cached(store: FakeStore, path: Path, limit_bytes: int = 100 * MIB) -> RemoteFiles:
    """Return what a process opens files with that has just been started."""
    return files_of(
        store, cache=CacheDirectory(str(path), store.url, limit_bytes, now_ns=time.time_ns)
    )


def read_randomly(files: RemoteFiles, log: StoredLog) -> None:
    file = files.open("t-0/x.log", log.part())
    for block in (5, 2, 0, 6, 3, 1, 4):
        assert file.pread(1000, block * MIB + 7) == DATA[block * MIB + 7 :][:1000]
    assert files.open("t-0/x.index", log.index_part).pread(10, 0) == b"some index"


def cache_files(path: Path) -> list[Path]:
    return sorted(path.iterdir(), key=lambda file: file.stat().st_size)


def test_a_restart_sends_no_request_for_what_is_cached(store: FakeStore, tmp_path: Path) -> None:
    log = StoredLog(store, "a", DATA)
    read_randomly(cached(store, tmp_path / "cache"), log)
    store.fail("get_range")
    files = cached(store, tmp_path / "cache")
    read_randomly(files, log)
    assert files.blocks.counters.requests == 0
    assert files.blocks.counters.loaded_bytes >= len(DATA)
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.expect_log("is damaged")
def test_damaged_and_torn_blocks_are_fetched(store: FakeStore, tmp_path: Path) -> None:
    log = StoredLog(store, "a", DATA)
    read_randomly(cached(store, tmp_path), log)
    index, data = cache_files(tmp_path)
    with data.open("r+b") as file:
        file.seek(2 * MIB + 100)
        file.write(b"other bytes")
        os.posix_fallocate(file.fileno(), 0, 1)
    with index.open("r+b") as file:
        file.write(b"Some")
    files = cached(store, tmp_path)
    read_randomly(files, log)
    assert files.blocks.counters.requests == 2
    files = cached(store, tmp_path)
    read_randomly(files, log)
    assert files.blocks.counters.requests == 0  # mended


def test_a_file_of_another_size_is_not_used(store: FakeStore, tmp_path: Path) -> None:
    log = StoredLog(store, "a", DATA)
    read_randomly(cached(store, tmp_path), log)
    for file in cache_files(tmp_path):
        os.truncate(file, 5)
    read_randomly(cached(store, tmp_path), log)


def test_blocks_that_are_not_there_are_fetched(store: FakeStore, tmp_path: Path) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(cached(store, tmp_path), log.part())
    file.pread(10, 3 * MIB)
    files = cached(store, tmp_path)
    assert opened(files, log.part()).pread(2 * MIB, 2 * MIB + 5) == DATA[2 * MIB + 5 :][: 2 * MIB]
    assert files.blocks.counters.requests in {1, 2}


def test_what_was_used_least_recently_goes(store: FakeStore, tmp_path: Path) -> None:
    logs = [StoredLog(store, f"{number}", DATA) for number in range(4)]
    files = cached(store, tmp_path, 16 * MIB)
    for log in logs:
        read_randomly(files, log)
        read_randomly(files, logs[0])
    taken = sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir())
    assert taken <= 16 * MIB
    files = cached(store, tmp_path, 16 * MIB)
    read_randomly(files, logs[3])
    assert files.blocks.counters.requests == 0


def test_a_start_keeps_to_a_smaller_limit(store: FakeStore, tmp_path: Path) -> None:
    for number in range(3):
        read_randomly(cached(store, tmp_path), StoredLog(store, f"{number}", DATA))
    directory = CacheDirectory(str(tmp_path), store.url, 8 * MIB, now_ns=time.time_ns)
    assert directory.used_bytes <= 8 * MIB
    assert sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir()) <= 8 * MIB


def test_a_whole_object_is_an_ordinary_file(store: FakeStore, tmp_path: Path) -> None:
    log = StoredLog(store, "a", DATA)
    files = cached(store, tmp_path)
    read_randomly(files, log)
    file = files.open("t-0/x.log", log.part())
    assert isinstance(file, CachedFile)
    store.fail("get_range")
    assert file.pread(len(DATA) + 1, 0) == DATA
    assert file.pread_nowait_into(memoryview(bytearray(10)), len(DATA)) == 0
    store.heal()
    assert (file.inode(), file.size()) == (log.part().inode, len(DATA))
    # After a start it is one again once its blocks were checked.
    files = cached(store, tmp_path)
    first = opened(files, log.part())
    assert b"".join(first.pread(MIB, n * MIB) for n in range(7)) == DATA
    assert isinstance(files.open("t-0/x.log", log.part()), CachedFile)
    assert files.blocks.counters.requests == 0


def test_a_first_scan_is_not_cached_and_a_second_one_is(store: FakeStore, tmp_path: Path) -> None:
    log = StoredLog(store, "a", some_bytes(24 * MIB))
    taken = []
    files = cached(store, tmp_path)
    for _ in range(2):
        file = opened(files, log.part())
        for position in range(0, 24 * MIB, MIB // 4):
            assert len(file.pread(MIB // 4, position)) == MIB // 4
        taken.append(sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir()))
        files.blocks.forget(file._source)
        file.close()
    assert taken[0] <= 8 * MIB
    assert taken[1] > 20 * MIB


@pytest.mark.parametrize("is_open", [False, True])
def test_a_second_scan_of_objects_that_follow_each_other_is_cached(
    store: FakeStore, tmp_path: Path, is_open: bool
) -> None:
    size = (1 if is_open else 6) * MIB
    logs = [StoredLog(store, f"{number}", some_bytes(size, number)) for number in range(5)]
    files, taken = cached(store, tmp_path), []
    parts = [log.part(after) for log, after in zip(logs, [*logs[1:], None], strict=True)]
    kept = [opened(files, part) for part in parts]
    for _ in range(2):
        for number, log in enumerate(logs):
            file = kept[number] if is_open else files.open("t-0/x.log", parts[number])
            for position in range(0, size, MIB // 4):
                assert file.pread(MIB // 4, position) == log.data[position:][: MIB // 4]
            if not is_open:
                file.close()
        taken.append(sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir()))
        for log in logs:
            files.blocks.forget(files.blocks.object(log.key, size))
    assert taken[0] <= 6 * MIB
    assert taken[1] >= 4 * size


def test_unchecked_objects_are_not_cached(store: FakeStore, tmp_path: Path) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(cached(store, tmp_path), log.part()._replace(checks=UNCHECKED))
    assert file.pread(10, 0) == DATA[:10]
    assert not list(tmp_path.iterdir())


@pytest.mark.expect_log("the cache of the store")
def test_a_directory_without_room_costs_requests_only(store: FakeStore, tmp_path: Path) -> None:
    log = StoredLog(store, "a", DATA)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    files = cached(store, tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        read_randomly(files, log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    files = cached(store, tmp_path)
    read_randomly(files, log)
    assert files.blocks.counters.requests >= 7


def test_files_that_another_process_removed_are_fetched(store: FakeStore, tmp_path: Path) -> None:
    log = StoredLog(store, "a", DATA)
    files = cached(store, tmp_path)
    read_randomly(files, log)
    whole = files.open("t-0/x.log", log.part())
    for file in tmp_path.iterdir():
        file.unlink()
    assert whole.pread(10, 5) == DATA[5:15]
    files.blocks.forget(files.blocks.object(log.key, len(DATA)))
    assert opened(files, log.part()).pread(10, 5) == DATA[5:15]
    wait_until(lambda: files.blocks.counters.requests > 8, "it was fetched")


def test_a_file_that_another_process_rebuilt_is_whole_again_when_it_has_no_hole(
    store: FakeStore, tmp_path: Path
) -> None:
    log = StoredLog(store, "a", DATA)
    ours = cached(store, tmp_path)
    read_randomly(ours, log)
    assert isinstance(ours.open("t-0/x.log", log.part()), CachedFile)
    for file in tmp_path.iterdir():
        file.unlink()
    opened(cached(store, tmp_path), log.part()).pread(10, 3 * MIB)  # one block of it
    for _ in range(2):
        whole = ours.open("t-0/x.log", log.part())
        assert whole.size() == len(DATA)
        assert all(whole.pread(MIB, n * MIB) == DATA[n * MIB :][:MIB] for n in range(7))
