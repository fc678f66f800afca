"""A data directory whose indexes tests damage, and its index files."""

from pathlib import Path

import pytest

from logfs.records.record import Record
from tests.spark.logs import START_MS, Logs

SUFFIXES = (".index", ".timeindex", ".textindex")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of several segments, and one that was compacted."""
    logs = Logs(tmp_path / "data")
    logs.topic("orders", 2)
    logs.topic("prices", cleanup_policy="compact")
    for number in range(3):
        for partition in (0, 1):
            for _ in range(4):
                logs.write("orders", partition, *(b"order %d" % n for n in range(500)))
            logs.log("orders", partition).roll(logs.now_ms)
        records = [Record(0, START_MS + n, b"%d" % (n % 90), b"%d" % number) for n in range(300)]
        logs.append("prices", 0, records)
        logs.log("prices").roll(logs.now_ms)
    logs.close()
    return logs.path


def indexes_of(data: Path) -> dict[str, bytes]:
    """Return the contents of all index files by name."""
    files = [file for suffix in SUFFIXES for file in data.glob(f"*/*{suffix}")]
    return {str(file.relative_to(data)): file.read_bytes() for file in files}
