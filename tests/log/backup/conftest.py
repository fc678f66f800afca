"""A store of which backups are made."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.log.store import LogStore
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.services.compaction.manual import compact_now
from tests.log.backups import (
    SMALL,
    opened,
    write,
)
from tests.log.compaction import tools
from tests.mounting import now_ms

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, if there is one: a backup syncs much, and here there are many."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        yield Path(directory)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(data: Path) -> Iterator[LogStore]:
    """A store with small segments: compacted ones, deleted ones, a start within one."""
    data.mkdir()
    store = opened(data)
    store.create_topic("lines", 1, SMALL, now_ms())
    compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    store.create_topic("keys", 1, SMALL | compact, now_ms())
    write(store, 0, 200)
    store.partition("lines", 0).advance_log_start_offset(53, now_ms())
    compact_now(store.partition("keys", 0), now_ms(), tools())
    write(store, 200, 40)
    store.partition("lines", 0).append_records(
        [Record(0, now_ms(), None, b"once")], now_ms(), ProducerBatch(77, 0, 0, False)
    )
    yield store
    store.close(now_ms())
