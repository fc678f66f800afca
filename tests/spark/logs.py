"""Data directories as a test wants them, written through the library and left as they are."""

import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.log.host import Host
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.records._encoding import encode_records
from logfs.records.record import Record
from logfs.types import TopicPartition

START_MS = 1_700_000_000_000


class Logs:
    """A data directory and the store that owns it.

    Attributes:
        path: The directory.
        written: All records of each partition, in order.
    """

    def __init__(self, path: Path, now_ms: int = START_MS) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self.now_ms = now_ms
        self.written: dict[TopicPartition, list[Record]] = {}
        self._ids = itertools.count()
        host = Host("00000001", self._new_id)
        config = StoreConfig(num_recovery_threads_per_data_dir=1)
        self.store = LogStore.open(PosixDisk(str(path)), config, host, now_ms=now_ms)

    def topic(self, name: str, partitions: int = 1, **properties: str) -> None:
        """Make a topic; ``segment_bytes="1"`` is ``segment.bytes=1``."""
        named = {key.replace("_", "."): text for key, text in properties.items()}
        self.store.create_topic(name, partitions, named, self.now_ms)

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        return self.store.partition(topic, partition)

    def append(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        """Append records; their offsets are given now."""
        log = self.log(topic, partition)
        placed = [r._replace(offset=log.log_end_offset + n) for n, r in enumerate(records)]
        encoded = encode_records(placed, log.log_end_offset, self.now_ms, log.encode_options())
        assert encoded.refusal is None
        assert log.append(encoded.batches, self.now_ms) == len(encoded.batches)
        self.written.setdefault(TopicPartition(topic, partition), []).extend(placed)

    def write(self, topic: str, partition: int, *values: bytes) -> None:
        """Append values, one millisecond after the other."""
        begin = self.log(topic, partition).log_end_offset
        self.append(
            topic,
            partition,
            [Record(0, START_MS + begin + n, None, value) for n, value in enumerate(values)],
        )

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        return self.written.get(TopicPartition(topic, partition), [])

    def close(self) -> None:
        self.store.close(self.now_ms)

    def _new_id(self) -> bytes:
        number = next(self._ids).to_bytes(8, "big")
        return hashlib.md5(number + str(self.path).encode(), usedforsecurity=False).digest()
