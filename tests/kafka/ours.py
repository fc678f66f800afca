"""logfs on a real directory, as records that compare with what a consumer reads."""

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.machine.host import current_host
from logfs.records.record import Record
from logfs.services.views.files import GrowingFile
from logfs.types import IsolationLevel, TopicPartition, View
from tests.log.support import read_all
from tests.mounting import now_ms


@contextlib.contextmanager
def opened(data: Path, *, clean: bool = True, durable: bool = True) -> Iterator[LogStore]:
    """Open a data directory; ``clean=False`` leaves it as ``kill -9`` does, but for the lock."""
    store = LogStore.open(PosixDisk(str(data)), StoreConfig(), current_host(), now_ms=now_ms())
    try:
        yield store
    finally:
        if clean:
            store.close(now_ms(), is_durable=durable)
        else:
            store.unlock()


def seen(data: Path, topic: str, partition: int = 0) -> PartitionLog:
    """Load one partition of a data directory read-only."""
    store = LogStore.open(
        PosixDisk(str(data)),
        StoreConfig(),
        current_host(),
        now_ms=now_ms(),
        read_only=True,
        only=[TopicPartition(topic, partition)],
    )
    return store.partition(topic, partition)


def read(
    log: PartitionLog, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> list[Record]:
    """Read a partition through its lossless view."""
    file = GrowingFile(log, View.JSONL, 0, level=level)
    try:
        return parse(read_all(file, 1 << 20))
    finally:
        file.close()


def parse(text: bytes) -> list[Record]:
    """Parse what a ``.jsonl`` file holds."""
    return [_record(json.loads(line)) for line in text.split(b"\n")[:-1]]


def _record(fields: dict[str, Any]) -> Record:
    headers = [(_bytes(key), _bytes(value)) for key, value in fields["headers"]]
    return Record(
        fields["offset"],
        fields["timestamp"],
        _bytes(fields["key"]),
        _bytes(fields["value"]),
        tuple((key or b"", value) for key, value in headers),
    )


def _bytes(value: "str | dict[str, str] | None") -> bytes | None:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else value.encode()
