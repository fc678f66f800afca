"""Staging and publishing records in a store with two topics, on a fake disk."""

import errno
from collections.abc import Sequence

import pytest

from logfs.log.publishing.publish import publish
from logfs.log.publishing.staging import StagedFile, StagingWriter
from logfs.log.store import LogStore
from logfs.records._encoding import encode_records
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from logfs.types import TopicPartition
from tests.fakes import START_MS, FakeDisk
from tests.log.support import DIRECTORY, TP, Bench, lines_of

QUERY = "a query"
UP = TopicPartition("u", 0)
SMALL = {"internal.segment.bytes": "700", "index.interval.bytes": "100"}
_ids = iter(range(1, 1 << 30))


def stage(  # noqa: PLR0913 - five of them are rarely given
    disk: FakeDisk,
    values: Sequence[bytes],
    *,
    to: TopicPartition = TP,
    batch: int = 0,
    query: str = QUERY,
    per_batch: int = 3,
    timestamp: int = START_MS,
) -> StagedFile:
    """Stage some records, a few in each record batch."""
    writer = StagingWriter(disk, to, query, batch, next(_ids).to_bytes(16, "big"))
    for first in range(0, len(values), per_batch):
        records = [Record(0, timestamp, None, value) for value in values[first : first + per_batch]]
        options = EncodeOptions(1 << 20)
        writer.write(encode_records(records, first, timestamp, options).batches)
    return writer.finish()


def values_of(name: str, count: int) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


def staged_names(disk: FakeDisk) -> list[str]:
    found = []
    for directory in (DIRECTORY, UP.directory):
        if disk.exists(directory):
            found += [name for name, _ in disk.list(directory) if name.endswith(".staged")]
    return found


def two_topics() -> Bench:
    bench = Bench(SMALL)
    bench.store.create_topic("u", 1, SMALL, bench.now_ms)
    return bench


def lines_in(store: LogStore, topic: str = "t") -> list[bytes]:
    return lines_of(store.partition(topic, 0))


def half_published(bench: Bench, staged: Sequence[StagedFile], batch: int = 0) -> None:
    """Publish a batch on a disk that is too full for it."""
    bench.disk.fail_next_write("*.log", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        publish(bench.store, QUERY, batch, staged, bench.now_ms)


def publish_up_to(bench: Bench, staged: Sequence[StagedFile], writes: int) -> None:
    """Publish, and stop before one of the writes to a log."""
    stops = []

    def stop(operation: str, name: str, _size: int) -> None:
        if operation == "pwrite" and name.endswith(".log"):
            stops.append(name)
            if len(stops) == writes:
                raise KeyboardInterrupt

    bench.disk.before = stop
    with pytest.raises(KeyboardInterrupt):
        publish(bench.store, QUERY, 0, staged, bench.now_ms)
    bench.disk.before = None
