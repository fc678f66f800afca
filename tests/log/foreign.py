"""The data directory of another process: what a broker does to its files, in its own order.

broker = FakeBroker(disk)
broker.append(b"a", b"b")             # one batch
broker.roll()
broker.compact(lambda offset: offset % 2 == 0)
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast
from uuid import UUID

from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.log.checkpoints import write_offsets, write_partition_metadata
from logfs.log.host import Host
from logfs.log.names import LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from logfs.records.batch import BatchFields, decode_records, encode_batch
from logfs.records.record import Record
from logfs.services.following.followed import FollowedLog
from logfs.services.following.store import AT_ONCE_BYTES, FollowedStore
from logfs.types import TopicPartition
from tests.fakes import START_MS, FakeDisk
from tests.log.support import batches_in

TOPIC_ID = UUID(int=7 << 64)


class FakeBroker:
    """A partition ``t/0`` that a broker writes.

    Attributes:
        next_offset: The offset of the next record.
        epoch: The leader epoch; a broker that starts has a new one.
    """

    def __init__(self, disk: FakeDisk, topic: str = "t", topic_id: UUID = TOPIC_ID) -> None:
        self.disk = disk
        self.topic_partition = TopicPartition(topic, 0)
        self.directory = self.topic_partition.directory
        self.next_offset = 0
        self.epoch = 1
        self.bases = [0]
        disk.make_directory(self.directory)
        write_partition_metadata(disk, self.directory, topic_id)
        self._create(0)

    def path(self, base_offset: int, suffix: str = "", kind: str = ".log") -> str:
        return f"{self.directory}/{base_offset:020}{kind}{suffix}"

    def batch(self, *values: bytes) -> bytes:
        """The bytes of a batch that is to be appended next."""
        records = [
            Record(self.next_offset + number, START_MS + self.next_offset + number, None, value)
            for number, value in enumerate(values)
        ]
        return encode_batch(records, BatchFields(leader_epoch=self.epoch))

    def append(self, *values: bytes) -> None:
        """Append a batch."""
        self.write(self.batch(*values))
        self.next_offset += len(values)

    def write(self, data: bytes) -> None:
        """Write bytes at the end of the newest file."""
        file = self.disk.open(self.path(self.bases[-1]), write=True)
        file.pwrite(data, file.size())

    def roll(self) -> None:
        """Begin a segment."""
        self.bases.append(self.next_offset)
        self._create(self.next_offset)

    def retain(self, count: int) -> None:
        """Delete all but the newest segments."""
        for base_offset in self.bases[:-count]:
            self.delete(base_offset)
        del self.bases[:-count]

    def delete(self, base_offset: int) -> None:
        """Delete a segment: for now its files have another name."""
        for kind in (".log", ".index", ".timeindex"):
            self.disk.rename(
                self.path(base_offset, kind=kind), self.path(base_offset, ".deleted", kind)
            )

    def remove_deleted(self) -> None:
        """Remove what was deleted: ``file.delete.delay.ms`` is over."""
        for name, _ in self.disk.list(self.directory):
            if name.endswith(".deleted"):
                self.disk.remove(f"{self.directory}/{name}")

    def truncate(self, offset: int) -> None:
        """Cut the log at a batch; the next leader has another epoch."""
        while self.bases[-1] > offset:
            self.delete(self.bases.pop())
        data = self.disk.read(self.path(self.bases[-1]))
        end = len(data)
        for position, header in reversed(batches_in(data)):
            if header.last_offset >= offset:
                end = position
        self.disk.open(self.path(self.bases[-1]), write=True).truncate(end)
        self.next_offset = offset
        self.epoch += 1

    def compact(self, keeps: Callable[[int], bool], group: int | None = None) -> None:
        """Rewrite the sealed segments, as one or in groups of so many."""
        for _ in self.compacting(keeps, group):
            pass

    def compacting(self, keeps: Callable[[int], bool], group: int | None) -> Iterator[None]:
        """Do it step by step."""
        sealed = self.bases[:-1]
        size = group or len(sealed)
        for start in range(0, len(sealed), size):
            members = sealed[start : start + size]
            data = b"".join(self._filtered(base_offset, keeps) for base_offset in members)
            first = members[0]
            self.put(self.path(first, ".cleaned"), data)
            yield
            self.disk.rename(self.path(first, ".cleaned"), self.path(first, ".swap"))
            yield
            for base_offset in members:
                self.delete(base_offset)
                yield
            for kind in (".index", ".timeindex"):
                self.put(self.path(first, kind=kind), b"")
            self.disk.rename(self.path(first, ".swap"), self.path(first))
            self.bases = [base for base in self.bases if base == first or base not in members]
            yield

    def put(self, name: str, data: bytes) -> None:
        """Make a file."""
        self.disk.open(name, write=True, create=True).pwrite(data, 0)

    def values(self) -> list[bytes]:
        """What a consumer would read from the start."""
        found = []
        for base_offset in self.bases:
            data = self.disk.read(self.path(base_offset), None)
            for position, _ in batches_in(data):
                found += [record.value or b"" for record in decode_records(data, position)]
        return found

    def note_checkpoints(self, start: int, high_watermark: int) -> None:
        """Write the checkpoint files of the root."""
        write_offsets(self.disk, LOG_START_OFFSET_CHECKPOINT, {self.topic_partition: start})
        write_offsets(
            self.disk, REPLICATION_OFFSET_CHECKPOINT, {self.topic_partition: high_watermark}
        )

    def delete_topic(self) -> None:
        """Give the directory the name of one that is to be removed."""
        self.disk.rename(self.directory, f"{self.directory}.{'0' * 32}-delete")

    def _create(self, base_offset: int) -> None:
        for kind in (".index", ".timeindex", ".log"):
            self.disk.open(self.path(base_offset, kind=kind), write=True, create=True)

    def _filtered(self, base_offset: int, keeps: Callable[[int], bool]) -> bytes:
        data, kept = self.disk.read(self.path(base_offset)), b""
        for position, header in batches_in(data):
            records = [r for r in decode_records(data, position) if keeps(r.offset)]
            if records:
                fields = BatchFields(
                    leader_epoch=header.partition_leader_epoch,
                    base_offset=header.base_offset,
                    last_offset=header.last_offset,
                )
                kept += encode_batch(records, fields)
        return kept


def broker_in(directory: Path) -> FakeBroker:
    """A process that writes into a real directory."""
    return FakeBroker(cast("FakeDisk", PosixDisk(directory)))


class Follower:
    """A followed store over a directory, and the clock that goes with it.

    Attributes:
        cache: Where positions are kept; None for memory only.
    """

    def __init__(
        self, disk: FakeDisk, cache: FakeDisk | None = None, at_once_bytes: int = AT_ONCE_BYTES
    ) -> None:
        self.disk = disk
        self._at_once_bytes = at_once_bytes
        self.cache = cache
        self.now_ms = START_MS + 1_000_000
        self._ids = 0
        self.boot = 1
        self.store = self.open()

    def open(self) -> FollowedStore:
        host = Host(f"{self.boot:08}", self._new_id)
        self.disk.now_ms = self.now_ms
        return FollowedStore.follow(
            self.disk,
            StoreConfig(),
            host,
            self.cache,
            now_ms=self.now_ms,
            at_once_bytes=self._at_once_bytes,
        )

    def restart(self) -> FollowedLog:
        """Stop cleanly and start again."""
        self.store.close(self.now_ms)
        self.store = self.open()
        return self.log

    def kill(self) -> FollowedLog:
        """Kill the process and start again."""
        self.store = self.open()
        return self.log

    @property
    def log(self) -> FollowedLog:
        log = self.store.partition("t", 0)
        assert isinstance(log, FollowedLog)
        return log

    def look(self) -> FollowedLog:
        """Look once, some time later."""
        self.now_ms += 500
        self.disk.now_ms = self.now_ms
        self.store.look_around(self.now_ms)
        for log in self.store.followed():
            while log.refresh(self.now_ms):
                pass
        return self.log

    def settle(self) -> FollowedLog:
        """Look until everything has been seen."""
        for _ in range(3):
            self.look()
        return self.log

    def _new_id(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "big")
