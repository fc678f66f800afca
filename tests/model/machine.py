"""A store on a fake disk, the programs that write to it, and what they know of it.

The topics: ``t`` (two partitions, trimmed and given up by retention), ``c`` (compacted, lines with
keys), ``d`` (deleted and made again). Segments are small and the reservation is short: every
operation meets the end of one. ``Machine`` has what the steps of ``steps.py`` need; a stop is
``Machine.stop``.
"""

import contextlib
import errno
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator
from random import Random

from logfs.config import StoreConfig
from logfs.log.host import Host
from logfs.log.lines.writer import LineWriter
from logfs.log.loading import recovery
from logfs.log.partition import PartitionLog
from logfs.log.reading.readable import ReadableLog
from logfs.log.reading.reader import TextReader
from logfs.log.store import LogStore
from logfs.log.writing import reservation
from logfs.records.checksum import crc32c
from logfs.records.layout import MAX_RELATIVE_OFFSET
from logfs.types import TopicPartition, View
from tests.fakes import START_MS, Descriptors, FakeDisk
from tests.fakestate import Stopped
from tests.model.account import Account, Defect, Found, Line, Look, StopKind
from tests.model.topic import TopicAccount

T0, T1, C, D = (TopicPartition(*row) for row in (("t", 0), ("t", 1), ("c", 0), ("d", 0)))
ALL = (T0, T1, C, D)
TRIMMED = (T0, T1)
LEASE_BYTES = 4096
_READ_BYTES = 1 << 16


@contextlib.contextmanager
def short_leases() -> Iterator[None]:
    """Have leases end soon, so that they are moved all the time."""
    usual, reservation.RESERVED_BYTES = reservation.RESERVED_BYTES, LEASE_BYTES
    try:
        yield
    finally:
        reservation.RESERVED_BYTES = usual


@contextlib.contextmanager
def short_pages() -> Iterator[None]:
    """Have a kill end a write after any byte, since all records here fit into a page."""
    usual, recovery.PAGE_BYTES = recovery.PAGE_BYTES, 1
    try:
        yield
    finally:
        recovery.PAGE_BYTES = usual


NO_ROOM = f"[Errno {errno.ENOSPC}]"
"""What names a full disk in the reason for which a partition is offline."""


class Writer:
    """An open file of a program.

    Attributes:
        queue: Lines that it has not written, or not to their end.
    """

    def __init__(self, number: int, topic_partition: TopicPartition, file: LineWriter) -> None:
        self.number = number
        self.topic_partition = topic_partition
        self.file = file
        self.queue: list[Line] = []

    @property
    def sent(self) -> int:
        """Bytes of the first line of the queue that are accepted."""
        return self.queue[0].low if self.queue else 0

    @property
    def stream(self) -> bytes:
        """The bytes that it has not written of its queue."""
        return b"".join(line.data + b"\n" for line in self.queue)[self.sent :]

    def offer(self, size: int) -> None:
        """Note that it is going to write the first bytes of its stream."""
        end, at = size + self.sent, 0
        for line in self.queue:
            if end > at:
                line.offer(min(end - at, line.full))
            at += line.full

    def accept(self, size: int) -> None:
        """Note that so many bytes of its stream were accepted, and no more."""
        end = size + self.sent
        for line in list(self.queue):
            line.accept(max(0, min(end, line.full)))
            end -= line.full
            if line.is_promised:
                self.queue.remove(line)

    def synced(self) -> None:
        """Note that an fsync has covered what was accepted of an unfinished line."""
        if self.sent:
            self.queue[0].synced = self.sent

    def close(self, now_ms: int) -> None:
        """Close the file; its unfinished line becomes a record, now or when there is room."""
        for line in self.queue[1:]:
            line.accept(0) if line.low == line.high else None
        if self.queue and self.queue[0].high:
            self.queue[0].end()
        self.file.close(now_ms)


class Batch:
    """What a job has to publish: rows of a partition's account and lines."""

    def __init__(self, query: str, number: int) -> None:
        self.query = query
        self.number = number
        self.rows: list[tuple[TopicPartition, Account, list[Line]]] = []


class Machine:
    """A machine, its disk, its store, and the programs.

    Attributes:
        counts: What has happened, for the report.
        accounts: What is known of each partition; none of one whose topic is not there.
        writers: The open files.
        batch: What a job tries to publish; None: nothing.
        published: Number of the next batch by query.
        topic: The topic ``d``.
        has_failed: Writes or reads have failed since everything was compared.
    """

    def __init__(
        self, random: Random, counts: Counter[str], descriptors: Descriptors | None = None
    ) -> None:
        self.counts = counts
        self.disk = FakeDisk()
        self.disk.descriptors = descriptors
        self.now_ms = START_MS
        self.writers: list[Writer] = []
        self.batch: Batch | None = None
        self.published: Counter[str] = Counter()
        self.has_failed = False
        self._boot = 1
        self._ids = self._uids = self._writers = 0
        self.properties = {
            # Native code appends where a batch may have 8 KiB, and is not compressed.
            "internal.segment.bytes": random.choice(["300", "700", "3000", *(3 * ["9000"])]),
            "index.interval.bytes": random.choice(["0", "100", "4096"]),
            "compression.type": random.choice([*(4 * ["producer"]), "lz4"]),
            "preallocate": random.choice(["false", "false", "true"]),
        }
        self.store = self.open(self.disk)
        forever = {
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "logfs.sealed.compression.type": random.choice(["zstd", "zstd", "lz4"]),
        }
        compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        self.store.create_topic("t", 2, self.properties | forever, self.now_ms)
        self.store.create_topic("c", 1, self.properties | compact, self.now_ms)
        self.store.create_topic("d", 1, self.properties, self.now_ms)
        self.accounts = {tp: Account(str(tp), View.TSV if tp == C else View.TEXT) for tp in ALL}
        self.topic = TopicAccount("d", self.accounts[D])

    # What there is

    def new_id(self) -> bytes:
        self._ids += 1
        return hashlib.md5(b"%d" % self._ids, usedforsecurity=False).digest()

    def host(self) -> Host:
        return Host(f"{self._boot:08}", self.new_id)

    def open(self, disk: FakeDisk, *, read_only: bool = False) -> LogStore:
        config = StoreConfig(num_recovery_threads_per_data_dir=1)
        return LogStore.open(disk, config, self.host(), now_ms=self.now_ms, read_only=read_only)

    def log(self, topic_partition: TopicPartition) -> PartitionLog:
        return self.store.partition(*topic_partition)

    def present(self) -> list[TopicPartition]:
        """The partitions that are there."""
        return [tp for tp in ALL if tp in self.accounts]

    def maintain(self) -> None:
        """Do what a daemon does in the background."""
        for log in self.store.all_partitions():
            log.maintain()

    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.disk.now_ms = self.now_ms

    def new_line(self, tp: TopicPartition, random: Random, owner: int = 0) -> Line:
        """A line that a program is going to write."""
        self._uids += 1
        uid = b"%08d" % self._uids
        body = b"%s|%s" % (uid, b"#" * random.choice([0, 3, 20, 60, 150]))
        body += b"|%08x" % zlib.crc32(body)
        key = b"k%d" % random.randint(0, 4) if tp == C else None
        line = Line(uid, body if key is None else key + b"\t" + body, key, owner)
        self.accounts[tp].add(line)
        return line

    def new_writer(self, tp: TopicPartition) -> None:
        self._writers += 1
        file = LineWriter(self.log(tp), self.accounts[tp].view)
        self.writers.append(Writer(self._writers, tp, file))

    def write(self, writer: Writer, data: bytes, *, is_native: bool) -> int:
        """Write; returns how much was accepted. Native code writes what it can, if it is asked."""
        if is_native and self.disk.descriptors is not None:
            log = self.log(writer.topic_partition)
            log.exclusive().clock_ms = self.now_ms
            log.appender.arm()
            accepted = writer.file.native.write(data)
            if accepted is not None:
                self.counts["native writes"] += 1
                return accepted
        return writer.file.write(data, self.now_ms)

    def close_writer(self, writer: Writer) -> None:
        """Close a file; its unfinished line becomes a record, now or when there is room."""
        self.writers.remove(writer)
        writer.close(self.now_ms)

    # What readers see

    def learn(self) -> None:
        """Have readers see what is new."""
        for tp in self.present():
            log = self.log(tp)
            if log.is_deleted or log.is_unreadable:
                continue
            account = self.accounts[tp]
            end = log.snapshot.end.positions[account.view]
            account.learn(lines_from(log, account.view, account.shown), end)

    def flushed(self, tp: TopicPartition) -> None:
        """Note that an fsync of a partition has returned."""
        self.learn()
        self.accounts[tp].flushed()

    def settle(
        self,
        store: LogStore,
        accounts: dict[TopicPartition, Account],
        kind: StopKind,
        *,
        may_wait: bool = False,
    ) -> None:
        """Compare what readers see of every partition of a store with what is known of it."""
        for tp, account in accounts.items():
            self.settle_one(store.partition(*tp), account, kind, may_wait=may_wait)

    def settle_one(
        self, log: PartitionLog, account: Account, kind: StopKind, *, may_wait: bool = False
    ) -> None:
        # What a failed disk may have kept back is written again, which needs room for a copy.
        lacks_room = may_wait and self.has_failed and NO_ROOM in (log.offline or "")
        look = look_at(log, account.view)
        self.counts["lines checked"] += len(look.found)
        look = look._replace(offline=None) if lacks_room else look
        account.settle(look, kind, may_wait=may_wait, has_failed=self.has_failed)

    # Stops

    def stop(self, random: Random, kind: StopKind, *, is_full: bool = False) -> None:
        """Stop everything, perhaps again while it comes back, and compare.

        Args:
            random: Decides what of the unsynced is left, and where else it stops.
            kind: How it stops.
            is_full: There is no room while it comes back, and there is room afterwards.
        """
        is_full = is_full or self.disk.space_bytes is not None
        self._die(random, kind)
        if is_full:
            self.disk.fill()
        kind = self._come_back(random, kind)
        if is_full:
            self._after_stop(kind, may_wait=True)
            self.disk.space_bytes = None
            self._die(random, StopKind.KILL)
            # What waited may have been lost by the first stop: only now that shows.
            kind = self._come_back(random, kind)
        self._after_stop(kind)

    def _die(self, random: Random, kind: StopKind) -> None:
        self.writers.clear()
        self.counts[kind] += 1
        self.counts["stops"] += 1
        seed = random.choice([None, *(random.getrandbits(32) for _ in range(3))])
        if kind is StopKind.KILL:
            self.disk.kill()
        elif kind is StopKind.POWER:
            self.disk.crash(seed)
            self._boot += 1
        else:
            self.disk.lose_cache(seed)
        if kind.is_lossy:
            damage_checksums(self.disk)

    def _come_back(self, random: Random, kind: StopKind) -> StopKind:
        """Open the store; it may stop again while it recovers. Returns the worst that happened."""
        while True:
            if random.random() < 0.3:
                self.disk.stop_before(random.randint(0, 60), torn=random.random())
            try:
                self.store = self.open(self.disk)
            except Stopped:
                again = random.choice([StopKind.KILL, StopKind.POWER])
                kind = again if again.is_lossy and not kind.is_lossy else kind
                self.counts["stops in recovery"] += 1
                self._die(random, again)
                continue
            self.disk.live_on()
            return kind

    def _after_stop(self, kind: StopKind, *, may_wait: bool = False) -> None:
        self._complete_topic()
        self.settle(self.store, self.accounts, kind, may_wait=may_wait)
        self.has_failed = False

    def _complete_topic(self) -> None:
        """Find out what became of the topic that was being deleted, or made, and continue."""
        empty = Account(str(D), View.TEXT)
        self.topic.settle(empty, is_there="d" in self.store.topics())
        self.accounts.pop(D, None)
        if self.topic.account is not None:
            self.accounts[D] = self.topic.account


def damage_checksums(disk: FakeDisk, most_gap: int = MAX_RELATIVE_OFFSET) -> None:
    """Damage the checksum of each batch whose magic or base offset alone a power cut has damaged.

    No checksum covers these, so recovery keeps such a batch, as Kafka does. Readers get EIO at the
    magic; a base offset that nothing disproves is taken as it is. That is tested by itself; a
    schedule must find the batch cut, as after any other damage.

    Args:
        most_gap: A base offset that leaves out more offsets than that is a wrong one.
    """
    for directory, is_directory in disk.list(""):
        for name, _ in disk.list(directory) if is_directory else ():
            if name.endswith(".log"):
                _damage_checksums_in(disk, f"{directory}/{name}", most_gap)


def _damage_checksums_in(disk: FakeDisk, name: str, most_gap: int) -> None:
    data, at = disk.read(name, None), 0
    base = expected = int(name.rpartition("/")[2][:20])
    while at + 61 <= len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        if not at + 61 <= end <= len(data):
            return
        checksum = int.from_bytes(data[at + 17 : at + 21], "big")
        offset = int.from_bytes(data[at : at + 8], "big")
        is_odd = data[at + 16] > 2 or offset - base > MAX_RELATIVE_OFFSET
        is_odd = is_odd or offset - expected > most_gap
        expected = offset + 1 + int.from_bytes(data[at + 23 : at + 27], "big")
        if is_odd and crc32c(data[at + 21 : end]) == checksum:
            file = disk.open(name, write=True)
            file.pwrite(bytes([data[at + 17] ^ 1]), at + 17)
            file.sync()
        at = end


def look_at(log: ReadableLog, view: View) -> Look:
    """Return what a reader is shown of a log."""
    copies = {
        name: log.disk.read(f"{log.directory}/{name}", None)
        for name, _ in log.disk.list(log.directory)
        if name.endswith(".cut")
    }
    return Look(
        list(lines_from(log, view, 0)),
        log.snapshot.end.positions[view],
        list(log.losses),
        log.offline,
        copies,
    )


def lines_from(log: ReadableLog, view: View, position: int) -> Iterator[Found]:
    """Read every kept line from a position on, at which one begins or that is in a hole."""
    reader = TextReader(view, lambda: log.snapshot)
    out = memoryview(bytearray(_READ_BYTES))
    end = log.snapshot.end.positions[view]
    at = reader.seek(position)
    while at < end:
        got = bytes(out[: reader.read_into(out, end)])
        if not got.endswith(b"\n"):
            raise Defect(f"{log.topic_partition}: a read at {at} of {end} gives {got[-200:]!r}")
        for text in got[:-1].split(b"\n"):
            yield at, text
            at += len(text) + 1
        at = reader.seek(reader.position)
