"""Opening a data directory for one partition only."""

from pathlib import Path

import pytest

from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import NoSuchPartitionError
from logfs.library.directory import open_for_reading, partitions_of
from logfs.log.store import LogStore
from logfs.machine.host import current_host
from logfs.types import TopicPartition
from tests.cli.conftest import fill


def test_only_some_partitions_are_loaded(tmp_path: Path) -> None:
    fill(tmp_path, {"a/0": b"", "b/2": b"x\n"})
    assert partitions_of(PosixDisk(tmp_path)) == {"a": [0], "b": [0, 1, 2]}
    store = open_for_reading(PosixDisk(tmp_path), [TopicPartition("b", 2)])
    assert store.topics() == ["b"]
    assert store.partition("b", 2).log_end_offset == 1
    with pytest.raises(NoSuchPartitionError):
        store.partition("b", 1)


def test_a_store_that_is_written_is_loaded_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        LogStore.open(
            PosixDisk(tmp_path), StoreConfig.from_properties({}), current_host(), now_ms=0, only=[]
        )
    assert not list(tmp_path.iterdir())
