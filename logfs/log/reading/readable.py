"""What a reader needs of a partition, whether this process writes it or follows another writer.

Code that only reads takes a ``ReadableLog``. ``PartitionLog`` (written here) and ``FollowedLog``
(written by another process) are two kinds of it.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.errors import CorruptRecordError
from logfs.log.counters import CompactionStatus, LogCounters, PackingStatus
from logfs.log.forwardfile import ForwardNotes
from logfs.log.losses import CORRUPT, EXPIRED, Loss, LossFile, log_loss
from logfs.log.reading import lookup
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.log.segments.table import SegmentTable
from logfs.types import IsolationLevel, TopicPartition, View

MOST_SEGMENTS = 1000
"""The page cache is reported for at most so many segments of a partition."""


class Residency(NamedTuple):
    """What of the ``.log`` files of a partition was in the page cache at one moment.

    Attributes:
        cached_bytes: Bytes in the page cache, of those that were looked at.
        looked_at_bytes: Bytes of the files that were looked at, from the newest one on: all of the
            log, unless that would have taken too long.
        segments: Bytes in the page cache by segment (its base offset), newest first; of the newest
            ``MOST_SEGMENTS``.
    """

    time_ms: int
    cached_bytes: int
    looked_at_bytes: int
    segments: Mapping[int, int]

    def as_json(self) -> dict[str, object]:
        """Return it for ``.meta``."""
        segments = {str(base_offset): cached for base_offset, cached in self.segments.items()}
        return {**self._asdict(), "segments": segments}


@dataclass(slots=True, kw_only=True, eq=False)
class ReadableState:
    """The state of a partition that readers see.

    Attributes:
        topic_id: 22 characters; None if the directory has none.
        snapshot: The state that readers see; replaced as a whole by every change.
        recovery_point: First offset that is not known to be durable.
        last_modified_ms: Clock of the newest append.
        read_only: The data directory is open read-only.
        offline: Why it takes no appends any more; None while it does.
        is_deleted: Its topic was deleted; open readers continue.
        is_unreadable: The log could not be loaded; reads are refused as well.
        unflushed_since_ms: Clock of the oldest append that is not durable; None if all are.
        directory: The name of its directory below the data directory.
    """

    disk: Disk
    topic_partition: TopicPartition
    topic_id: str | None
    config: TopicConfig
    table: SegmentTable
    snapshot: Snapshot
    losses: LossFile
    recovery_point: int = 0
    last_modified_ms: int = 0
    read_only: bool = True
    counters: LogCounters = field(default_factory=LogCounters)
    cleaning: CompactionStatus = field(default_factory=CompactionStatus)
    packing: PackingStatus = field(default_factory=PackingStatus)
    offline: str | None = None
    is_deleted: bool = False
    is_unreadable: bool = False
    unflushed_since_ms: int | None = None
    residency: Residency | None = None
    forward_notes: ForwardNotes = field(default_factory=ForwardNotes)
    directory: str = field(init=False)

    def __post_init__(self) -> None:
        self.directory = self.topic_partition.directory


def _of_state(name: str) -> Any:  # noqa: ANN401 - the annotation of the attribute has the type
    """Return a property of a log that is an attribute of its state."""
    return property(attrgetter(f"state.{name}"))


class ReadableLog(abc.ABC):
    """A partition that can be read. Readers work on ``snapshot``, in any thread.

    Attributes:
        state: See ``ReadableState``; many of its attributes are attributes of the log as well.
        is_part: The log begins in the middle of the partition, with its own positions.
        is_followed: Another process writes it, so that it may change without notice.
    """

    is_part = False
    is_followed = False

    def __init__(self, state: ReadableState) -> None:
        self.state = state
        self.disk = state.disk
        self.topic_partition = state.topic_partition
        self.topic_id = state.topic_id
        self.cleaning = state.cleaning
        self.packing = state.packing

    # What changes: see ``ReadableState``

    snapshot: Snapshot = _of_state("snapshot")
    counters: LogCounters = _of_state("counters")
    directory: str = _of_state("directory")
    config: TopicConfig = _of_state("config")
    read_only: bool = _of_state("read_only")
    offline: str | None = _of_state("offline")
    is_deleted: bool = _of_state("is_deleted")
    is_unreadable: bool = _of_state("is_unreadable")
    last_modified_ms: int = _of_state("last_modified_ms")
    unflushed_since_ms: int | None = _of_state("unflushed_since_ms")
    residency: Residency | None = _of_state("residency")
    recovery_point: int = _of_state("recovery_point")

    # What follows from it

    @property
    def generation(self) -> bytes:
        """Random bytes that change only when positions had to start at 0 again."""
        return self.state.table.generation

    @property
    def log_start_offset(self) -> int:
        """Offset of the first record that is kept."""
        return self.state.snapshot.start.offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        return self.state.snapshot.end.offset

    @property
    def high_watermark(self) -> int:
        """The end for readers of that level: the log end, but in a running broker's directory."""
        return self.state.snapshot.visible_end(IsolationLevel.HIGH_WATERMARK).offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction; the log end if none is open."""
        return self.state.snapshot.visible_end(IsolationLevel.READ_COMMITTED).offset

    @property
    def losses(self) -> list[Loss]:
        """The losses, oldest first."""
        return self.state.losses.all()

    def batch_crc_at(self, offset: int) -> int | None:
        """Return the CRC of the batch that was appended at an offset; see ``lookup``."""
        return lookup.batch_crc_at(self.state.snapshot, offset)

    @property
    def local_bytes(self) -> int:
        """Bytes of the ``.log`` files on this disk."""
        return self.state.snapshot.size_bytes

    @property
    def quota_bytes(self) -> int:
        """Bytes on this disk as quotas measure them."""
        return self.local_bytes

    # Following another writer: by default there is none

    @property
    def refuses_records(self) -> bool:
        """Whether ``check_appendable`` refuses appends: it is a mirror, or fenced."""
        return False

    @property
    def mirror_meta(self) -> dict[str, object] | None:
        """The source of a mirror as ``.meta`` shows it; None: it is no mirror."""
        return None

    @property
    def quota_meta(self) -> Mapping[str, int | float] | None:
        """The quotas of the topic as ``.meta`` shows them; None: it has none, or they rest."""
        return None

    @property
    def forward_meta(self) -> list[dict[str, object]]:
        """The clusters to which the partition is forwarded, as ``.meta`` shows them."""
        known = self.state.forward_notes
        return [
            note.as_json(self.log_end_offset, known.oldest(note, self._timestamp_at))
            for note in known.read(self.disk, self.directory)
        ]

    def _timestamp_at(self, offset: int) -> int | None:
        snapshot = self.state.snapshot
        try:
            return lookup.timestamp_of(snapshot, max(offset, snapshot.start.offset))
        except (CorruptRecordError, OSError):
            return None

    @property
    def indexing(self) -> tuple[int, int] | None:
        """How far the positions of a followed log are known: (bytes done, bytes in all).

        None once all are known.
        """
        return None

    @property
    def is_settling(self) -> bool:
        """Whether files have been seen to change, and a second look has to agree."""
        return False

    def refresh(self, now_ms: int, limit_bytes: int = 0) -> bool:
        """Show what another writer has changed; see ``FollowedLog.refresh``."""
        return False

    def watch(self, *, is_watched: bool) -> None:
        """Note whether readers wait for records: only then the native thread tells of them."""
        return

    # Durability: what this process does not write, it need not make durable

    @property
    def maintenance_due(self) -> bool:
        """Whether ``PartitionLog.maintain`` has something to do."""
        return False

    def is_durable(self, offset: int) -> bool:
        """Whether a ``flush`` that is to cover every record below an offset would do nothing."""
        return True

    def flush(self) -> None:
        """Return once everything that this process appended before the call is durable."""
        return

    # What readers tell

    @abc.abstractmethod
    def pin(self, segments: Sequence[Segment]) -> None:
        """Keep the files of segments until ``unpin``; raise DeletedError if one is gone."""

    @abc.abstractmethod
    def unpin(self, segments: Sequence[Segment]) -> None:
        """Undo ``pin``."""

    @abc.abstractmethod
    def close_files(self) -> None:
        """Close every file without writing to the log."""

    def note_corrupt(self, error: CorruptRecordError, now_ms: int) -> None:
        """Note a corrupt batch that a reader has met as a loss; the next ``maintain`` saves it."""
        file, position = error.file or self.directory, error.position or 0
        loss = Loss(
            now_ms, CORRUPT, file, position, error.size_bytes, error.next_offset, error.message
        )
        if self.state.losses.note(loss):
            log_loss(self.topic_partition, loss._replace(detail=str(error)))

    def note_expired(self, view: View, position: int, size: int) -> None:
        """Note that retention deleted bytes that a slow reader had not read yet.

        They are in the counters, in the log and in ``.meta``, but not among the losses: retention
        was due.
        """
        self.counters.expired += 1
        self.counters.expired_bytes += size
        detail = (
            f"a reader of {view.name.lower()} fell behind retention: {size} bytes from byte "
            f"{position} on were deleted before it read them"
        )
        log_loss(
            self.topic_partition,
            Loss(0, EXPIRED, self.directory, position, size, self.log_start_offset, detail),
        )

    def look_at_cache(self, now_ms: int, is_over: Callable[[], bool]) -> None:
        """Find out what of it is in the page cache, the newest file first. Any thread.

        Args:
            is_over: Whether the call took long enough; the newest file is looked at in any case.
        """
        snapshot, cached, looked_at = self.snapshot, 0, 0
        segments: dict[int, int] = {}
        for number in range(len(snapshot.segments) - 1, -1, -1):
            try:
                found = self.disk.cached_bytes(snapshot.segments[number].name)
            except OSError:
                continue  # deleted meanwhile
            if found is None:
                return
            cached += found
            if len(segments) < MOST_SEGMENTS:
                segments[snapshot.segments[number].base_offset] = found
            looked_at += max(snapshot.end_of(number)[2], found)
            if is_over():
                break
        self.state.residency = Residency(now_ms, cached, looked_at, segments)
