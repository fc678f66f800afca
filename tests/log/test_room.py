"""Room that is made for large appends on a real disk: less than a quarter, and none of it stays."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.log.host import Host
from logfs.log.lines.writer import LineWriter
from logfs.log.store import LogStore
from logfs.types import View
from tests.fakes import START_MS
from tests.log.support import DIRECTORY, log_name

MIB = 1 << 20
LINES = (b"x" * 99 + b"\n") * 10_000


@pytest.fixture
def disk(tmp_path: Path) -> PosixDisk:
    return PosixDisk(tmp_path)


@pytest.fixture
def store(disk: PosixDisk) -> Iterator[LogStore]:
    store = opened(disk)
    store.create_topic("t", 1, {}, START_MS)
    yield store
    store.close(START_MS)


def opened(disk: PosixDisk) -> LogStore:
    return LogStore.open(disk, StoreConfig(), Host("1", lambda: os.urandom(16)), now_ms=START_MS)


def append(store: LogStore, times: int = 1, lines: bytes = LINES) -> None:
    writer = LineWriter(store.partition("t", 0), View.TEXT)
    for _ in range(times):
        assert writer.write(lines, START_MS) == len(lines)
    writer.close(START_MS)


def append_much(store: LogStore) -> None:
    append(store, 5)
    append(store, lines=LINES[:100_000])


def room_of(disk: PosixDisk) -> int:
    """Bytes of blocks after the end of the first segment."""
    file = disk.open(f"{DIRECTORY}/{log_name(0)}")
    return os.fstat(file.fileno()).st_blocks * 512 - file.size()


def test_room_is_made_and_given_back_when_the_segment_is_sealed(
    disk: PosixDisk, store: LogStore
) -> None:
    append_much(store)
    size = disk.stat(f"{DIRECTORY}/{log_name(0)}").size
    assert MIB // 2 < room_of(disk) <= size // 4
    store.partition("t", 0).roll(START_MS)
    assert room_of(disk) < MIB // 2
    append(store)
    assert store.partition("t", 0).log_end_offset == 61_000


def test_nothing_is_left_over_after_a_clean_stop(disk: PosixDisk, store: LogStore) -> None:
    append_much(store)
    store.close(START_MS)
    assert room_of(disk) < MIB // 2


def test_what_a_killed_process_has_left_over_goes_with_the_next_stop(
    disk: PosixDisk, store: LogStore
) -> None:
    append_much(store)
    store.close(START_MS)
    file = disk.open(f"{DIRECTORY}/{log_name(0)}", write=True)
    assert file.make_room(file.size(), MIB)
    store = opened(disk)
    append(store, lines=b"one more\n")
    store.close(START_MS)
    assert room_of(disk) < MIB // 2
