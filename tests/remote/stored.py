"""A data directory on the disk, and the bucket of it as a directory of objects."""

from pathlib import Path
from typing import NamedTuple

from logfs.disk.posix import PosixDisk
from logfs.log.lines.writer import LineWriter
from logfs.types import TopicPartition, View
from tests.cli.conftest import open_store
from tests.fakes import START_MS
from tests.remote.buckets import TieredPartition
from tests.remote.fakestore import FakeStore


class Stored(NamedTuple):
    """Where they are."""

    data: Path
    bucket: Path

    @property
    def url(self) -> str:
        return f"file://{self.bucket}"


def make_stored(directory: Path) -> Stored:
    """Make a topic ``orders`` of two partitions, each with sealed segments only."""
    found = Stored(directory / "data", directory / "bucket")
    found.data.mkdir(parents=True)
    store = open_store(found.data)
    store.create_topic("orders", 2, {"retention.ms": "-1"}, START_MS)
    for number, count in ((0, 3000), (1, 10)):
        log = store.partition("orders", number)
        writer = LineWriter(log, View.TSV)
        for n in range(count):
            writer.write(
                b"key %d\tline %d of partition %d\n" % (n % 7, n, number), START_MS + n * 9
            )
            if n % 1000 == 999 or n == count - 1:
                log.roll(START_MS + n * 9)
    store.close(START_MS + 100_000)
    objects = FakeStore()
    objects.now_ms = START_MS
    for number in (0, 1):
        TieredPartition(PosixDisk(found.data), objects, TopicPartition("orders", number)).copy()
    for key, data in objects.objects.items():
        path = found.bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return found
