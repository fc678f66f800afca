"""How often a trigger of a stream asks the directory: once for all partitions, twice for each."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logfs.disk.posix import PosixDisk
from logfs.library import stored_partitions
from tests.spark.logs import Logs
from tests.spark.streams import Stream

pytestmark = pytest.mark.spark

TOPICS, PARTITIONS = 40, 5
ALL = TOPICS * PARTITIONS
FEW = 12
"""Calls about the directory, and about a partition with new records."""


class CountingDisk(PosixDisk):
    """A disk that notes the number of calls of each kind."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.calls: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any member
        if name in {"stat", "list", "inodes", "contents", "read", "open", "exists"}:
            self.calls[name] += 1
        return super().__getattribute__(name)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    logs = Logs(tmp_path / "data")
    for number in range(TOPICS):
        logs.topic(f"t{number}", PARTITIONS)
    logs.write("t0", 0, b"one")
    for one in (logs.path, *logs.path.iterdir()):
        os.utime(one, (1, 1))  # it did not change just now
    return logs


@pytest.fixture
def counted(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Counter[str]]:
    """Count the calls since it was asked last."""
    disk = CountingDisk(str(logs.path))
    monkeypatch.setattr(stored_partitions, "disk_at", lambda _: disk)

    def taken() -> Counter[str]:
        found, disk.calls = disk.calls, Counter()
        return found

    return taken


def test_a_trigger_looks_at_each_partition_once_and_lists_none(
    logs: Logs, counted: Callable[[], Counter[str]]
) -> None:
    stream = Stream(logs, startingOffsets="earliest")
    assert stream.batch() == {"t0/0": [0]}
    counted()
    assert stream.batch() is None
    idle = counted()
    assert idle.keys() == {"stat"}
    assert idle["stat"] <= 2 * ALL + FEW
    logs.write("t0", 0, b"two")
    assert stream.batch() == {"t0/0": [1]}
    busy = counted()
    assert busy.total() <= idle.total() + FEW


def test_a_table_looks_at_each_partition_once(
    logs: Logs, counted: Callable[[], Counter[str]]
) -> None:
    from pyspark.sql.types import StructType

    from logfs.spark.source import LogfsDataSource

    reader = LogfsDataSource({"path": str(logs.path)}).reader(StructType().add("offset", "long"))
    assert len(reader.partitions()) == 1
    calls = counted()
    assert calls["stat"] <= 2 * ALL + FEW
    assert calls["inodes"] == ALL  # the files of each partition
    assert calls["list"] + calls["contents"] <= FEW
