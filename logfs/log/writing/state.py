"""The state of a partition that is written here, and whether it takes appends.

It may be read-only, deleted, or offline. After a failed write or fsync a log is *offline*: the
kernel may have dropped the bytes, so only loading it again can tell what is on the disk.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from logfs.config import TopicConfig
from logfs.disk.vfs import DISK_FULL
from logfs.errors import (
    DeletedError,
    LogOfflineError,
    MirrorError,
    NoOffsetsLeftError,
    ReadOnlyError,
)
from logfs.log.checkpoints import write_leader_epochs
from logfs.log.counters import LogCounters
from logfs.log.epochs import LeaderEpochs
from logfs.log.host import Host, cache_mark
from logfs.log.mirrorfile import MirrorFacts, MirrorSource
from logfs.log.producers.state import ProducerState
from logfs.log.quotas import Grant, TopicUsage
from logfs.log.reading.readable import ReadableState
from logfs.log.segments.segment import OpenSegments, Segment, sync_indexes
from logfs.log.segments.snapshot import LogEnd, Snapshot
from logfs.log.segments.table import SegmentState
from logfs.log.topics import encode_options
from logfs.log.writing._end import NativeEnd, PartitionLock
from logfs.log.writing.active import create_files
from logfs.log.writing.linefiles import LineFiles
from logfs.log.writing.reservation import FAILED, PositionReservation
from logfs.records.encoded import EncodeOptions
from logfs.types import MAX_OFFSET, Positions

if TYPE_CHECKING:
    from logfs.log.remote.catalog import TieredPartition
    from logfs.log.remote.status import RemoteStatus

logger = logging.getLogger(__name__)

LAST_APPEND_OFFSET = MAX_OFFSET - 2**33
"""The log end offset up to which records are appended: no request and no segment has more."""


class _Shown:
    """A snapshot that was set, which follows the end that a native thread moves.

    Attributes:
        seen: The version of the end that readers have seen last, and the snapshot up to there.
    """

    __slots__ = ("end", "seen", "snapshot")

    def __init__(self, snapshot: Snapshot, end: NativeEnd | None) -> None:
        self.snapshot = snapshot
        self.end = end
        self.seen = (0 if end is None else end.version), snapshot

    def moved(self, end: NativeEnd) -> Snapshot:
        """Return the snapshot up to the end as it is now."""
        version, offset, text, tsv, jsonl, file_size, max_timestamp = end.read()
        positions = self.snapshot.active.bases.plus(Positions(text, tsv, jsonl))
        moved = self.snapshot.moved(LogEnd(offset, positions, file_size, max_timestamp))
        self.seen = version, moved
        return moved


class _WrittenState(ReadableState):
    """What a native thread may change beside Python: see ``_appending.h``.

    Attributes:
        lock: Every change takes it.
        end: The end of the active segment, once something was appended.
    """

    __slots__ = ("_counters", "_shown", "end", "lock")
    lock: PartitionLock
    end: NativeEnd | None
    _counters: LogCounters
    _shown: _Shown

    def __new__(cls, *_args: object, **_fields: object) -> Self:
        """Make the lock first: it has some of the fields."""
        made = object.__new__(cls)
        made.lock, made.end = PartitionLock(), None
        return made

    @property
    def snapshot(self) -> Snapshot:
        """The state that readers see: the last one set, with the appends of the thread since."""
        shown = self._shown
        version, snapshot = shown.seen
        end = shown.end
        return snapshot if end is None or end.version == version else shown.moved(end)

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None:
        # With the lock, so the thread appends nothing meanwhile.
        self._shown = _Shown(snapshot, self.end)

    def use_end(self, end: NativeEnd | None) -> None:
        """Let the snapshot follow the end of another active segment; None: there is none.

        With the lock, and before the thread may append to that end.
        """
        snapshot = self.snapshot
        self.end = end
        self.snapshot = snapshot

    @property
    def counters(self) -> LogCounters:
        """See ``ReadableState``; with what native threads have counted.

        Appends are left out while the thread appends.
        """
        counters = self._counters
        self.lock.take_counts(counters.add_appends, counters.add_flushes)
        counters.bytes_out += self.lock.take_read_bytes()
        return counters

    @counters.setter
    def counters(self, counters: LogCounters) -> None:
        self._counters = counters

    @property
    def recovery_point(self) -> int:
        """See ``ReadableState``."""
        return self.lock.recovery_point

    @recovery_point.setter
    def recovery_point(self, offset: int) -> None:
        self.lock.recovery_point = offset

    @property
    def last_modified_ms(self) -> int:
        """See ``ReadableState``."""
        return self.lock.last_modified_ms

    @last_modified_ms.setter
    def last_modified_ms(self, now_ms: int) -> None:
        self.lock.last_modified_ms = now_ms

    @property
    def unflushed_since_ms(self) -> int | None:
        """See ``ReadableState``."""
        return self.lock.unflushed_since_ms

    @unflushed_since_ms.setter
    def unflushed_since_ms(self, since_ms: int | None) -> None:
        self.lock.unflushed_since_ms = since_ms


@dataclass(slots=True, kw_only=True, eq=False)
class PartitionState(_WrittenState):
    """The state of one partition: loading finds it out, the parts of a ``PartitionLog`` share it.

    Attributes:
        opened: The open segments of the whole store.
        reserved: No position beyond it was ever shown when the partition was loaded.
        producer_expiration_ms: Kafka's ``producer.id.expiration.ms``.
        snapshot_offset: The offset of the newest producer snapshot.
        has_new_epochs: The file does not have all of ``epochs``.
        unsynced_indexes: The last segment, if recovery has rebuilt its indexes without a sync and
            nothing was appended since.
        is_closed: The log was closed: a task that has outlived that must not write any more.
        deferred: The rest of loading, as the disk was full; see ``finish_loading``. None: loading
            is complete.
        adopt_lines: Makes records of them; set before a name is added.
        tier: The segments that the object store has; None: it never had one.
        remote: The copies to an object store; None without one.
        mirror: The topic of a cluster that it is a mirror of; None if it is none.
        mirror_facts: The report of the process that mirrors it; None: none yet.
        usage: The use of the quotas of the topic.
        grant: What the native thread may append of it; None: nothing, or any amount.
        options: How records for this topic become batches.
    """

    host: Host
    opened: OpenSegments
    epochs: LeaderEpochs
    reserved: Positions
    producers: ProducerState = field(default_factory=ProducerState)
    producer_expiration_ms: int = 86_400_000
    snapshot_offset: int = 0
    has_new_epochs: bool = False
    mirror: MirrorSource | None = None
    mirror_facts: MirrorFacts | None = None
    deferred: list[Callable[[], None]] | None = None
    unsynced_indexes: Segment | None = None
    is_closed: bool = False
    waiting_lines: list[str] = field(default_factory=list)
    adopt_lines: Callable[[list[str]], None] | None = None
    tier: "TieredPartition | None" = None
    remote: "RemoteStatus | None" = None
    usage: TopicUsage = field(default_factory=TopicUsage)
    grant: Grant | None = None
    options: EncodeOptions = field(init=False)
    reservation: PositionReservation = field(init=False)
    line_files: LineFiles = field(init=False)

    def __post_init__(self) -> None:
        ReadableState.__post_init__(self)
        self.set_config(self.config)
        mark = cache_mark(self.host, self.disk)
        self.reservation = PositionReservation(self.table, mark, self.reserved)
        is_durable = self.deferred is None
        self.line_files = LineFiles(self.disk, self.directory, self.lock, is_durable=is_durable)

    def set_config(self, config: TopicConfig) -> None:
        """Follow a change of the topic's configuration."""
        with self.lock:
            self.config = config
            self.options = encode_options(config, self.epochs.latest)

    @property
    def fenced(self) -> str | None:
        """How it is known that another data directory owns the log in the store; None: none does.

        Only if ``fenced.action`` says that the log takes no records then.
        """
        if self.remote is None or self.remote.fenced is None:
            return None
        config = self.config
        is_stored = config.remote_storage_enable or config.is_journaled or self.tier is not None
        return self.remote.fenced if is_stored else None

    def admit(self, size_bytes: int) -> None:
        """Let a new request append so many bytes of batches; raise QuotaExceededError if not.

        With the lock.
        """
        self.end_grant()
        limit = self.config.logfs_quota_bytes
        if limit >= 0:
            what, now_s = f"topic {self.topic_partition.topic}", self.host.clock_s()
            self.usage.admit(what, size_bytes, limit, now_s=now_s)

    def end_grant(self) -> None:
        """Return what the native thread has not appended of its grant. With the lock."""
        grant, self.grant = self.grant, None
        if grant is not None:
            self.usage.end_grant(grant, self.lock.granted_bytes)

    def check_writable(self) -> None:
        """Raise the error that an append would meet before it touches the disk.

        Raises:
            ReadOnlyError: The store was opened read-only.
            DeletedError: The topic was deleted.
            LogOfflineError: An earlier write or fsync failed, or the log was closed.
        """
        if self.read_only:
            raise ReadOnlyError(f"{self.topic_partition}: the data directory is open read-only")
        if self.is_deleted:
            raise DeletedError(f"{self.topic_partition}: the topic has been deleted")
        if self.offline is not None:
            raise LogOfflineError(
                f"{self.topic_partition} is offline: {self.offline}; it is reloaded when "
                "its last open file is closed, or at the next mount"
            )
        if self.is_closed:
            raise LogOfflineError(f"{self.topic_partition} is closed")

    def check_appendable(self) -> None:
        """Raise the error that an append of its own records would meet.

        Raises:
            MirrorError: It is a mirror, which only has what its source has.
            ReadOnlyError: Another data directory owns it in the object store.
            NoOffsetsLeftError: It ends after ``LAST_APPEND_OFFSET``.
            LogOfflineError, DeletedError, ReadOnlyError: See ``check_writable``.
        """
        self.check_writable()
        if self.fenced is not None:
            raise ReadOnlyError(
                f"{self.topic_partition} takes no more records, by fenced.action=readonly: "
                f"{self.fenced}"
            )
        if self.mirror is not None:
            raise MirrorError(
                f"{self.topic_partition} is a mirror of {self.mirror.describe()} and takes no "
                "records but those of its source: write to the cluster, or make it an ordinary "
                "topic with logfs mirror --promote"
            )
        if self.snapshot.end.offset > LAST_APPEND_OFFSET:
            raise NoOffsetsLeftError(
                f"{self.topic_partition} ends at offset {self.snapshot.end.offset}, and offsets "
                f"end at {MAX_OFFSET}: it takes no more records. Write to a new topic"
            )

    def finish_loading(self) -> None:
        """Do what loading could not do because the disk was full, before anything is appended.

        Until then the directory is as the last owner left it, so a kill changes nothing. With the
        lock.

        Raises:
            OSError: With ENOSPC there is still no room, and the log is as before; anything else
                takes it offline.
        """
        if self.deferred is None:
            return
        with self.offline_on_failure("write", but_not_full=True):
            while self.deferred:
                self.deferred[0]()
                del self.deferred[0]
            *sealed, active = self.snapshot.segments
            if self.unsynced_indexes in sealed:
                sync_indexes(self.disk, self.unsynced_indexes)
                self.unsynced_indexes = None
            if not self.disk.exists(active.name):
                create_files(self.disk, active, self.config)
            entries = [segment.entry(SegmentState.SEALED) for segment in sealed]
            self.table.rewrite([*entries, self.reservation.open_entry(active)])
        self.deferred = None

    def adopt_waiting(self) -> None:
        """Make records of the unfinished lines that wait for room, if there is any.

        They precede all later appends. Without room they continue to wait.
        """
        with self.lock:
            if self.offline is not None or self.is_deleted:
                self.waiting_lines = []
            elif self.waiting_lines and self.adopt_lines is not None and self.disk.free().f_bfree:
                lines, self.waiting_lines = self.waiting_lines, []
                self.adopt_lines(lines)

    def take_offline(self, reason: str) -> None:
        """Refuse appends and fsyncs until the partition is reloaded.

        A deleted partition refuses them already, and its directory has another name or is gone.
        """
        with self.lock:
            if self.offline is not None or self.is_deleted:
                return
            self.offline = reason
            logger.error(
                "%s is offline: %s", self.topic_partition, reason,
                extra={"fields": {"event": "offline", "offset": self.snapshot.end.offset}},
            )  # fmt: skip
            with contextlib.suppress(OSError):
                self.reservation.invalidate(self.snapshot.active, FAILED)

    @contextlib.contextmanager
    def offline_on_failure(self, what: str, *, but_not_full: bool = False) -> Iterator[None]:
        """Take the partition offline if the disk fails inside; ``but_not_full``: not if it is full.

        The caller gets the error; if the topic was deleted meanwhile, as DeletedError.
        """
        try:
            yield
        except OSError as error:
            if self.is_deleted:
                self.check_writable()
            if not (but_not_full and error.errno in DISK_FULL):
                self.take_offline(f"{what} failed: {error}")
            raise

    def settle_lines(self, below: int) -> None:
        """Have no file say that a line is in a batch below an offset, which is about to change.

        Raises:
            OSError: One still does. With ENOSPC nothing else has changed.
        """
        with self.offline_on_failure("write", but_not_full=True):
            must_sync = self.line_files.settle(below)
        if must_sync:
            with self.offline_on_failure("fsync"):
                self.line_files.sync_settled(below)

    def note_reservation(self, segment: Segment, ends: Positions) -> Positions:
        """Reserve positions well beyond ``ends``; they are reserved after ``sync_reservation``."""
        with self.offline_on_failure("write", but_not_full=True):
            return self.reservation.note(segment, ends)

    def sync_reservation(self, noted: Positions) -> None:
        """Make a reservation durable, which takes effect with that."""
        with self.offline_on_failure("fsync"):
            self.reservation.sync(noted)

    def new_segment(self, base_offset: int, bases: Positions) -> Segment:
        """Describe a segment of this partition that has no files yet."""
        return Segment(self.opened, self.directory, base_offset, bases)

    def fit_epochs(self) -> None:
        """Make the leader epochs fit the log, and save them if that has changed them."""
        if self.epochs.fit(self.snapshot.start.offset, self.snapshot.end.offset):
            self.has_new_epochs = True
            self.save_epochs()

    def save_epochs(self) -> None:
        """Write the leader epochs if the file does not have all of them."""
        if self.has_new_epochs:
            write_leader_epochs(self.disk, self.directory, self.epochs.entries)
            self.has_new_epochs = False
