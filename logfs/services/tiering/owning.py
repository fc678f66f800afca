"""What one process does with one partition of the store: copies, drops, removes.

    tiering = PartitionTiering(log, store, writer, new_id)
    tiering.begin()                 # once: compares the head with the log, fences other writers
    tiering.copy(throttle)          # all segments that can be copied
    tiering.drop(now_ms)
    tiering.remove(now_ms)

Once it is fenced, or the store has other records than the log, it does nothing any more: every
local byte stays.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import local_part
from logfs.errors import DivergedError, FencedError, RemoteStorageError, text_of
from logfs.log.names import parse_topic_id
from logfs.log.partition import PartitionLog
from logfs.log.reading.lookup import timestamp_of
from logfs.log.remote.catalog import TieredPartition
from logfs.log.remote.entries import TieredEntry
from logfs.log.remote.head import Head, WritingDirectory
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.of_disk import catalog_of
from logfs.log.remote.reading import read_entries
from logfs.log.remote.status import RemoteStatus, copy_lag
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogPoint
from logfs.log.segments.table import SegmentState
from logfs.log.topics import read_properties
from logfs.services.tiering.copying import (
    SegmentToCopy,
    Throttle,
    check_same,
    describe_local,
    put_segment,
    segments_to_copy,
    start_of,
)
from logfs.services.tiering.dropping import Dropped, drop_local
from logfs.services.tiering.heads import FirstFacts, HeadWriter
from logfs.services.tiering.ownership import OwnedVersions
from logfs.services.tiering.removing import (
    DroppedSegments,
    Removed,
    delete_doomed,
    doom_dropped,
)
from logfs.services.tiering.securing import commit, lost_entries, restore, secure
from logfs.services.tiering.stores import check_name
from logfs.services.tiering.uncopied import NearDeletion, near_deletion

logger = logging.getLogger(__name__)

COPIED_AT_ONCE = 8
"""Segments after which the head is changed, so that an interruption repeats no more."""


def _at_once(_: int) -> None:
    """Send without a pause."""


class PartitionTiering:
    """The objects of one partition, as the process sees them that writes it. One thread at a time.

    Args:
        log: The partition.
        store: Its store.
        writer: This data directory.
        new_id: Gives 16 random bytes.
        refusal: Why this directory must not write it, except to take it over; None: it may.

    Attributes:
        log: The partition.
        place: The place of its objects.
        problem: Why nothing is done any more; None while all is well.
        status: The counters and the error, for people.
    """

    def __init__(
        self,
        log: PartitionLog,
        store: ObjectStore,
        writer: WritingDirectory,
        new_id: Callable[[], bytes],
        *,
        refusal: str | None = None,
    ) -> None:
        if log.topic_id is None:
            raise RemoteStorageError(
                f"{log.topic_partition}: its topic has no id, so that its objects cannot be named"
            )
        self.log = log
        self.store = store
        self.problem: RemoteStorageError | None = None
        self.status = log.state.remote or RemoteStatus(store.url)
        self._is_begun = False
        self._is_over = False
        self._lost: list[TieredEntry] = []
        self._first_not_copied = -1
        self._new_id = new_id
        self._refusal = refusal
        self.place = PartitionPlace(log.topic_partition, parse_topic_id(log.topic_id))
        owned = OwnedVersions(local_part(log.disk), log.directory, self._writing)
        self._writer = HeadWriter(store, self.place, writer, new_id, owned)
        self._dropped = DroppedSegments(store)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock of the log for a change in its directory, if there may be one."""
        with self.log.exclusive():
            self._check_running()
            yield

    def _check_running(self) -> None:
        """See that the directory may be changed; the lock of the log is held."""
        if self._is_over:
            raise RemoteStorageError(f"{self.log.topic_partition}: the daemon is stopping")
        self.log.check_writable()

    def stop(self) -> None:
        """Change nothing in the data directory from now on, even during a request. Any thread."""
        with self.log.exclusive():
            self._is_over = True

    def give_up(self, error: RemoteStorageError) -> None:
        """Do nothing any more: another process owns the store. Any thread."""
        self.problem = self.problem or error
        self.status.error, self.status.is_stopped = text_of(error), True

    @property
    def has_work(self) -> bool:
        """Whether the partition has, or will have, anything in the store."""
        log = self.log
        if log.tier is not None:
            return True
        return log.config.remote_storage_enable and copy_lag(log.snapshot, None).segments > 0

    def seal(self, now_ms: int) -> None:
        """Seal the active segment when nothing was appended for ``segment.ms``.

        The store has only sealed segments, so a quiet topic's newest records would never get there.
        Kafka rolls at appends only.

        Raises:
            LogOfflineError, DeletedError, OSError: See ``PartitionLog.roll``.
        """
        config = self.log.config
        if config.remote_storage_enable and not config.remote_log_copy_disable:
            with self._writing():
                self.log.roll(now_ms, only_if_quiet=True)

    def look_at_retention(self, now_ms: int) -> NearDeletion | None:
        """Note in the status, and return, what retention deletes before it is copied."""
        is_copied = self.log.config.remote_storage_enable
        found = near_deletion(self.log, now_ms) if is_copied else None
        self.status.near_deletion = 0 if found is None else found.segments
        return found

    def look_at_lag(self) -> None:
        """Note in the status the timestamp of the oldest record that the store does not have.

        Raises:
            LogfsError, OSError: The record could not be read.
        """
        log = self.log
        if not log.config.remote_storage_enable or log.config.remote_log_copy_disable:
            self.status.oldest_ms = None
            return
        snapshot = log.snapshot
        done = None if log.tier is None else log.tier.next_offset
        first = max(snapshot.start.offset, done or 0)
        if first == self._first_not_copied and self.status.oldest_ms is not None:
            return
        self.status.oldest_ms = timestamp_of(snapshot, first)
        self._first_not_copied = first

    def run_once(self, throttle: Throttle, now_ms: int) -> None:
        """Do what is due: copy, drop and remove.

        Raises:
            RemoteStorageError, OSError: See ``copy`` and ``remove``.
        """
        config = self.log.config
        if not config.remote_storage_enable:
            if config.remote_log_delete_on_disable:
                self.switch_off(now_ms)
        else:
            try:
                if not config.remote_log_copy_disable:
                    self._make_room()
                    self.copy(throttle)
            finally:
                if self._is_begun and self.problem is None:
                    self.drop(now_ms, throttle)  # also on a full disk
        self.remove(now_ms)

    def _make_room(self) -> None:
        """Have room to note segments in ``logfs.tiered`` on a disk that is going to be full."""
        with self.log.exclusive():
            if not self._is_over and not self.log.is_deleted:
                self.tier.rows.make_room()

    @property
    def tier(self) -> TieredPartition:
        """The tiered segments of the partition."""
        log = self.log
        if log.state.tier is None:
            catalog = catalog_of(log.disk)
            if catalog is None:
                raise RemoteStorageError(f"{log.topic_partition}: its data directory has no store")
            log.state.tier = catalog.begin(log.directory, self.place.topic_id, log.generation)
        return log.state.tier

    def begin(self, throttle: Throttle = _at_once, *, takes_over: bool = False) -> None:
        """Own the partition of the store; nothing happens if that was done.

        Raises:
            FencedError: A copy of this data directory writes it, or this one is a copy.
            RemoteStorageError: Another data directory writes it, or the store has other records.
            OSError: The store or the disk failed.
        """
        if self.problem is not None:
            raise self.problem
        if self._is_begun and self._writer.epoch:
            return
        self._is_begun = False  # also if the head is gone
        log = self.log
        self.status.epoch = 0
        config = read_properties(log.disk, log.directory)
        first = FirstFacts(self.place.topic_id, log.generation, start_of(log), config)
        added: list[TieredEntry] = []

        def compare(head: Head) -> None:
            added[:] = self._compared(head)

        with self._noting_problems():
            if self._refusal is not None and not takes_over:
                raise FencedError(self._refusal)
            if self._writer.epoch:  # owned, but the segments could not be noted
                head = self._writer.head()
                compare(head)
            else:
                if self._writer.owned.is_new and not takes_over:
                    check_name(self.store, self.place, self._writer.writer.directory_id)
                # Compared before: a copy with other records must not fence its original.
                head = self._writer.fence(lambda _: first, check=compare, takes_over=takes_over)
            self._note(added)
            self.status.copies += restore(self._writer, log, self._lost, throttle)
        self.status.epoch = head.epoch
        self._is_begun = True

    def copy(self, throttle: Throttle) -> int:
        """Copy the segments that can be copied, oldest first; returns how many.

        Raises:
            RemoteStorageError: See ``begin``; FencedError: another process has taken over.
            OSError: The store or the disk failed; what is complete is copied.
        """
        self.begin(throttle)
        count = 0
        sealed = self.log.snapshot.segments[:-1]
        if sealed and self.log.recovery_point < sealed[-1].next_offset:
            self.log.flush()  # after a recovery no append may come for days
        with self._noting_problems():
            while wanted := segments_to_copy(self.log)[:COPIED_AT_ONCE]:
                copied: list[TieredEntry] = []
                try:
                    copied.extend(self._put(segment, throttle) for segment in wanted)
                finally:
                    if copied:
                        count += self._commit(copied, throttle)
        return count

    def drop(self, now_ms: int, throttle: Throttle = _at_once) -> Dropped:
        """Drop local files that local retention does not keep; see ``drop_local``.

        The store is asked first: another process may have taken over and removed the objects, or
        objects were lost. Those are stored again.

        Raises:
            FencedError: Another process has taken over.
            RemoteStorageError, OSError: The store or the disk failed; see ``secure``.
        """
        self.begin(throttle)

        def secured(segments: Sequence[Segment]) -> None:
            self.status.copies += secure(self._writer, self.log, segments, throttle)

        with self._noting_problems():
            dropped = drop_local(self.log, now_ms, secured, self._writing)
        self.status.dropped_segments += dropped.segments
        return dropped

    def remove(self, now_ms: int) -> Removed:
        """Remove from the store what the log has dropped.

        Raises:
            FencedError: Another process has taken over.
            OSError: The store failed; the rest is done later.
        """
        self.begin()
        log = self.log
        with self._noting_problems():
            segments = doom_dropped(self._writer, self._dropped, start_of(log), now_ms)
            with log.exclusive():
                if not self._is_over:
                    self.tier.rows.shrink(start_of(log))
            objects, waiting = delete_doomed(
                self._writer, log.config.file_delete_delay_ms, now_ms, self.tier.is_used
            )
        self.status.deletions += objects
        self.status.waiting = waiting
        return Removed(segments, objects, waiting)

    def switch_off(self, now_ms: int) -> None:
        """Give up what only the store has, and let the store forget the partition.

        The log starts at its first local segment then.

        Raises:
            RemoteStorageError, OSError: See ``remove``. It can be called again.

        Source: Kafka RemoteLogManager.stopPartitions, ``remote.log.delete.on.disable``.
        """
        self.begin()
        log, tier = self.log, self.tier
        with log.exclusive():
            if self._is_over or log.is_deleted:
                return
            segments = log.snapshot.segments
            first = next(
                s.base_offset
                for s in segments
                if s.base_offset not in tier.entries or s.base_offset in tier.local
            )
            if first > segments[0].base_offset:
                log.advance_log_start_offset(first, now_ms)
            if tier.entries:
                tier.forget_all()
        with self._noting_problems():
            head = self._writer.head()
            if head.next_offset is not None:
                end = LogPoint(head.next_offset, start_of(log).positions)
                doom_dropped(self._writer, self._dropped, end, now_ms)

    def _commit(self, copied: Sequence[TieredEntry], throttle: Throttle) -> int:
        done = commit(self._writer, self.log, copied, throttle)
        kept = self._note(done.named)
        self.status.copies += kept + done.stored_again
        self.status.copied_bytes += sum(entry.size_bytes for entry in done.named)
        return kept

    def _note(self, named: Iterable[TieredEntry]) -> int:
        """Note segments that the head names in ``logfs.tiered``; returns how many."""
        log, tier = self.log, self.tier
        with log.exclusive():
            self._check_running()
            kept = [entry for entry in named if entry.next_offset > log.log_start_offset]
            segments = {segment.base_offset: segment for segment in log.snapshot.segments[:-1]}
            for entry in kept:
                local = segments[entry.base_offset].entry(SegmentState.SEALED)
                source = f"{self.store.url}/{self.place.head}"
                check_same(entry._replace(entry=local), entry, source)
            tier.rows.add(kept)
            tier.local.update(entry.base_offset for entry in kept)
        return len(kept)

    def _put(self, wanted: SegmentToCopy, throttle: Throttle) -> TieredEntry:
        segment_id = self._new_id()
        return put_segment(self.log, wanted, self.store, self.place, segment_id, throttle)

    def _compared(self, head: Head) -> list[TieredEntry]:
        """See that the store and the log agree; returns the segments that only the head names."""
        log, tier = self.log, self.tier
        source = f"{self.store.url}/{self.place.head}"
        if head.generation != log.generation:
            raise DivergedError(
                f"{source}: its positions are of another generation than those of the data "
                "directory, whose segment table was lost. Nothing is copied or dropped any more"
            )
        named = {entry.base_offset: entry for entry in self._named(head)}
        self._lost = lost_entries(self._writer, log, head)
        for base_offset, row in tier.entries.items():
            stored = named.get(base_offset)
            if row in self._lost:
                continue
            if stored != row and row.next_offset > head.start.offset:
                raise DivergedError(
                    f"{source}: it does not name the segment at offset {base_offset} that was "
                    "copied. Nothing is copied or dropped any more"
                )
        segments = {segment.base_offset: segment for segment in log.snapshot.segments[:-1]}
        added = []
        for base_offset, entry in named.items():
            if base_offset in tier.entries or entry.next_offset <= log.log_start_offset:
                continue
            if base_offset not in segments:
                raise DivergedError(
                    f"{source}: it names a segment at offset {base_offset} that the data "
                    f"directory does not have; its log ends at offset {log.log_end_offset}. "
                    "Nothing is copied or dropped any more"
                )
            check_same(describe_local(log, segments[base_offset], entry), entry, source)
            added.append(entry)
        return added

    def _named(self, head: Head) -> list[TieredEntry]:
        """Return the entries of a head; those of tables only if some are not noted."""
        ends = {row.next_offset for row in self.tier.entries.values()}
        if all(table.next_offset in ends for table in head.tables):
            first = head.tables[-1].next_offset if head.tables else 0
            noted = [row for row in self.tier.entries.values() if row.next_offset <= first]
            return [*noted, *head.entries]
        return read_entries(self.store, head)

    def _noting_problems(self) -> "_NotingProblems":
        return _NotingProblems(self)


class _NotingProblems:
    """Notes that a partition is fenced or has diverged, once and loudly."""

    def __init__(self, tiering: PartitionTiering) -> None:
        self._tiering = tiering

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, FencedError | DivergedError):
            self._tiering.problem = error
            logger.error("%s: %s", self._tiering.log.topic_partition, error)
