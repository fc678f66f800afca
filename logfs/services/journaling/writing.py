"""The rounds of the daemon that owns a journal; see the rules in the package. One thread."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import local_part
from logfs.errors import LogfsError, RemoteStorageError, text_of
from logfs.log.names import parse_topic_id
from logfs.log.partition import PartitionLog
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogPoint, Snapshot
from logfs.log.topics import read_properties
from logfs.services.journaling.assembly import ReadJournal
from logfs.services.journaling.kept import FoundNotes, Held, KeptObjects, SegmentId
from logfs.services.journaling.objects import (
    MOST_PAYLOAD_BYTES,
    JournalObject,
    ObjectName,
    PartitionFacts,
    PartitionId,
    Row,
    encode_object,
    read_object,
)
from logfs.services.journaling.root import JournalRoot, confirm_root, fenced, read_root
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

SMALL_BYTES = 256 << 10
"""So much of a segment is sent again to free an object."""
MOST_PENDING_BYTES = 64 << 20
"""A partition with more to send is sealed: its segment is copied as a whole."""
MOST_COMPACTED_BYTES = 1 << 30
"""A compacted log that is larger is not in the journal."""
PAUSE_MS = 10_000


class SentBefore(NamedTuple):
    """What the journal has of a segment that has the same bytes in the log.

    Attributes:
        content: See ``Row.content``.
        position: Bytes that are in the store.
        is_complete: The segment is sealed, and all of it is in the store.
    """

    content: int
    position: int
    is_complete: bool


class _Mark(NamedTuple):
    """What changes when bytes of a segment do that were read before."""

    truncations: int
    is_packed: bool
    rewrites: int


class _Sent(NamedTuple):
    """What was sent of one segment.

    Attributes:
        content, position, is_complete: See ``SentBefore``.
        is_whole: All that the segment had at a moment is in the store.
        mark: None after a start: what was sent then has the bytes of the log.
    """

    content: int
    position: int
    is_complete: bool
    is_whole: bool
    mark: _Mark | None


class _Told(NamedTuple):
    """What facts of a partition were sent last; a change of its settings makes another object."""

    config: TopicConfig
    start: LogPoint

    def is_same(self, other: "_Told | None") -> bool:
        """Whether nothing has changed."""
        return other is not None and self.config is other.config and self.start == other.start


class _Piece(NamedTuple):
    """A row that is going to be sent, and what was sent of its segment and partition then."""

    row: Row
    data: bytes
    sent: _Sent
    told: _Told


class _Wanted(NamedTuple):
    """A segment that is to be in the journal.

    Attributes:
        end: Where its records end in the file now.
        following: The base offset of the next segment; -1: there is none yet.
        sent: What was sent of the bytes that it has now.
    """

    segment: Segment
    end: int
    following: int
    sent: _Sent

    @property
    def pending(self) -> int:
        """Bytes that are still to be sent."""
        return 0 if self.sent.is_complete else max(self.end - self.sent.position, 0)


class _Unsure(NamedTuple):
    """An object of which it is not known whether the store has it."""

    name: ObjectName
    one: JournalObject
    data: bytes
    pieces: Sequence[_Piece]


class RemoteJournal:
    """The journal of one data directory, for one run of its daemon. One thread at a time.

    Args:
        store: The store.
        root: The root, in the epoch of this writer.
        found: The journal as it was when the epoch began.
        same: The segments whose bytes in the journal are those of the log; see ``healing``.
        new_id: Gives 16 random bytes.

    Attributes:
        objects, size_bytes: Objects that were created, and their bytes.
    """

    def __init__(
        self,
        store: ObjectStore,
        root: JournalRoot,
        found: ReadJournal,
        same: Mapping[SegmentId, SentBefore],
        new_id: Callable[[], bytes],
    ) -> None:
        self.objects = self.size_bytes = 0
        self._store = store
        self._root = root
        self._new_id = new_id
        self._next = ObjectName(root.epoch, 0)
        self._sent = {one: _Sent(*before, True, None) for one, before in same.items()}
        self._content = root.epoch << 32  # larger than that of any earlier epoch
        self._told: dict[PartitionId, _Told] = {}
        self._kept = KeptObjects(found)
        self._unsure: _Unsure | None = None
        self._put_ms: int | None = None
        self._news: dict[str, bytes] = {}
        self._late: set[PartitionId] = set()
        self._copied: dict[PartitionId, tuple[int, LogPoint]] | None = None
        self._moved: set[PartitionId] = set()

    def round(
        self, logs: Iterable[PartitionLog], now_ms: int, found: FoundNotes | None = None
    ) -> list[PartitionLog]:
        """Send what the store does not have of some logs, and delete what it does not need.

        Args:
            logs: All partitions of the data directory.
            now_ms: The clock.
            found: The notes of the data directory; None: they are as before.

        Returns:
            The logs of which the store now has all that was appended before the round.

        Raises:
            FencedError: Another writer owns the journal.
            LogfsError, OSError: The store failed; the next round continues.
        """
        known, self._late = _Known.of(logs), set()
        self._repeat(now_ms)
        self._free_oldest(known, now_ms)
        self._news = {} if found is None else self._kept.changed(found)
        pieces: list[_Piece] = []
        size = 0
        for partition, log in known.journaled.items():
            for piece in self._readable_pieces(partition, log, now_ms):
                if pieces and size + piece.row.length > MOST_PAYLOAD_BYTES:
                    self._put(pieces, now_ms)
                    pieces, size = [], 0
                pieces.append(piece)
                size += piece.row.length
        self._kept.note_gone(known.is_gone)
        self._note_moved(known)
        if pieces or self._kept.has_news or self._news or self._moved:
            self._put(pieces, now_ms)
        self._delete_unneeded(known, now_ms)
        return [log for partition, log in known.journaled.items() if partition not in self._late]

    # What is sent

    def _readable_pieces(
        self, partition: PartitionId, log: PartitionLog, now_ms: int
    ) -> Iterator[_Piece]:
        """Yield what is to be sent of a log; a log that fails is late, and holds up no other."""
        if log.offline is not None or log.state.deferred is not None:
            self._late.add(partition)
            return
        try:
            yield from self._pieces(partition, log, now_ms)
        except (LogfsError, OSError) as error:
            self._late.add(partition)
            text = f"it is not sent to the journal: {text_of(error)}"
            if log.state.remote is None or log.state.remote.journal_error != text:
                logger.warning("%s: %s", log.topic_partition, text)
            if log.state.remote is not None:
                log.state.remote.journal_error = text  # until a round has all of it

    def _pieces(self, partition: PartitionId, log: PartitionLog, now_ms: int) -> Iterator[_Piece]:
        """Yield what is to be sent of a log, in ranges of at most the payload of an object."""
        snapshot = log.snapshot
        wanted = [
            _Wanted(*found, self._sent_of(partition, found[0], log))
            for found in ends_in_files(snapshot, copied_offset(log))
        ]
        if wanted and wanted[-1].pending > MOST_PENDING_BYTES:
            self._late.add(partition)
            log.roll(now_ms)
            return
        if log.config.is_compacted:
            wanted = self._some_of(partition, wanted)
        elif sum(one.pending for one in wanted[:-1]) > MOST_PENDING_BYTES:
            self._late.add(partition)  # until they are copied
            wanted = wanted[-1:]
        for one in wanted:
            if not one.sent.is_complete:
                yield from self._pieces_of(partition, log, one)

    def _some_of(self, partition: PartitionId, wanted: list[_Wanted]) -> list[_Wanted]:
        """Return what a round sends of a compacted log, of which no segment is copied."""
        if sum(one.end for one in wanted) > MOST_COMPACTED_BYTES:
            self._late.add(partition)
            raise RemoteStorageError(
                f"a compacted log has at most {MOST_COMPACTED_BYTES} bytes in the journal"
            )
        left = MOST_PENDING_BYTES
        for number, one in enumerate(wanted):
            left -= one.pending
            if left < 0 and number:
                self._late.add(partition)  # the next round continues
                return wanted[:number]
        return wanted

    def _sent_of(self, partition: PartitionId, segment: Segment, log: PartitionLog) -> _Sent:
        """Return what was sent of the bytes that a segment has now."""
        mark = _mark_of(log.snapshot, segment)
        one = SegmentId(partition, segment.base_offset)
        sent = self._sent.get(one)
        if sent is not None and sent.mark is None:
            return sent._replace(mark=mark)
        if sent is not None and sent.mark is not None:
            is_cut = sent.mark.truncations != mark.truncations
            is_packed = sent.is_complete and not log.config.is_compacted  # the records are the same
            if not is_cut and (sent.mark == mark or is_packed):
                return sent
        self._content += 1
        return _Sent(self._content, 0, False, False, mark)

    def _pieces_of(
        self, partition: PartitionId, log: PartitionLog, wanted: _Wanted
    ) -> Iterator[_Piece]:
        segment, end, following, sent = wanted
        told = _Told(log.config, log.snapshot.start)
        is_news = not told.is_same(self._told.get(partition))
        is_sealed, is_last = following >= 0, False
        while sent.position < end or (not is_last and (is_sealed or is_news or not sent.is_whole)):
            at = sent.position
            length = min(end - at, MOST_PAYLOAD_BYTES)
            data = _read(log, segment, at, length) if length else b""
            if data is None:  # it is another file by now, or gone: the next round finds out
                self._late.add(partition)
                return
            is_last = at + length == end
            facts = None
            if is_news or not at:
                config = read_properties(log.disk, log.directory)
                facts = PartitionFacts(log.generation, told.start, config)
            row = Row(
                log.topic_partition.topic, partition, segment.base_offset, segment.bases,
                sent.content, at, length, following if is_last else -1, is_last,
                tuple(log.state.epochs.entries), facts,
            )  # fmt: skip
            sent = sent._replace(
                position=at + length,
                is_complete=is_last and is_sealed,
                is_whole=sent.is_whole or is_last,
            )
            is_news = False
            yield _Piece(row, data, sent, told)

    def _put(self, pieces: Sequence[_Piece], now_ms: int) -> None:
        """Create an object; what it has is noted as sent once it is there."""
        one = JournalObject(
            self._new_id().hex(),
            now_ms,
            [piece.row for piece in pieces],
            b"".join(piece.data for piece in pieces),
            self._kept.gone,
            notes=self._news,
            heads=sorted(self._moved),
        )
        self._news = {}
        self._unsure = _Unsure(self._next, one, encode_object(one), pieces)
        self._repeat(now_ms)

    def _repeat(self, now_ms: int) -> None:
        """Create the object of which it is not known whether it is there, if there is one."""
        if self._unsure is None:
            return
        if self._put_ms is None or now_ms - self._put_ms > PAUSE_MS:
            confirm_root(self._store, self._root)
        name, one, data, pieces = self._unsure
        try:
            self._store.create(name.key, data)
        except FileExistsError:
            if read_object(self._store, name).nonce != one.nonce:
                found = read_root(self._store)
                raise fenced(self._store, None if found is None else found[0]) from None
        self._unsure, self._put_ms = None, now_ms
        self.objects, self.size_bytes = self.objects + 1, self.size_bytes + len(data)
        self._next = ObjectName(name.epoch, name.sequence + 1)
        self._kept.add(name, one)
        self._moved.difference_update(one.heads)
        for piece in pieces:
            segment = SegmentId(piece.row.id, piece.row.base_offset)
            self._sent[segment] = piece.sent
            self._told[piece.row.id] = piece.told

    def _note_moved(self, known: "_Known") -> None:
        """Note the partitions whose head names other segments by now: readers ask for it then."""
        copied = {
            partition: (copied_offset(log), log.snapshot.start)
            for partition, log in known.journaled.items()
            if log.offline is None
        }
        before = copied if self._copied is None else self._copied
        self._moved.update(one for one, found in copied.items() if before.get(one) != found)
        self._copied = copied

    # What is not needed any more

    def _free_oldest(self, known: "_Known", now_ms: int) -> None:
        """Send again, or seal, what holds the oldest objects."""

        def is_settled(held: Held, objects: int) -> bool:
            """Whether a sealed segment of a compacted log is in as few objects as it can be."""
            sent = self._sent.get(held.segment)
            if sent is None or not sent.is_complete or sent.content != held.content:
                return False
            is_large = sent.position > SMALL_BYTES
            return is_large and objects <= 2 + sent.position // MOST_PAYLOAD_BYTES

        for held in list(self._kept.oldest(is_settled)):
            log, sent = known.journaled.get(held.segment.partition), self._sent.get(held.segment)
            if log is None or sent is None or sent.content != held.content:
                continue
            is_spread = sent.is_complete and log.config.is_compacted
            if sent.position <= SMALL_BYTES or is_spread:
                self._sent.pop(held.segment)  # this round begins another content
            elif log.snapshot.active.base_offset == held.segment.base_offset:
                with contextlib.suppress(LogfsError, OSError):  # programs that append are told
                    log.roll(now_ms)

    def _delete_unneeded(self, known: "_Known", now_ms: int) -> None:
        copied = {partition: copied_offset(log) for partition, log in known.journaled.items()}
        compacted = {
            partition: {segment.base_offset for segment in log.snapshot.segments}
            for partition, log in known.journaled.items()
            if log.config.is_compacted and partition not in self._late
        }

        def is_void(held: Held) -> bool:
            partition, base_offset = held.segment
            if partition not in copied:
                return held.topic_partition not in known.unreadable
            if base_offset < copied[partition]:
                return True  # a head names it
            if base_offset > known.journaled[partition].snapshot.active.base_offset:
                return True  # it was cut off
            if base_offset not in compacted.get(partition, (base_offset,)):
                return True  # its records are in the segment that compaction made of it
            sent = self._sent.get(held.segment)
            return sent is not None and sent.content > held.content and sent.is_whole

        self._kept.release(is_void)
        for name in self._kept.unneeded(now_ms):
            self._store.delete(name.key)
            self._kept.remove(name)
        for one in list(self._sent):
            # What is copied; and a topic that is gone: if it is restored, it is sent again.
            if one.partition not in copied or one.base_offset < copied[one.partition]:
                self._sent.pop(one)


class _Known(NamedTuple):
    """The partitions of the data directory.

    Attributes:
        journaled: Those that are to be in the journal.
        others: Those that are not.
        unreadable: Those that could not be loaded: what the journal has of them stays.
    """

    journaled: dict[PartitionId, PartitionLog]
    others: set[PartitionId]
    unreadable: set[TopicPartition]

    @classmethod
    def of(cls, logs: Iterable[PartitionLog]) -> "_Known":
        """Sort the partitions."""
        found = cls({}, set(), set())
        for log in logs:
            if log.is_unreadable:
                found.unreadable.add(log.topic_partition)
            elif log.topic_id is not None and not log.is_deleted:
                if is_journaled(log.config):
                    found.journaled[partition_id(log)] = log
                else:
                    found.others.add(partition_id(log))
        return found

    def is_gone(self, partition: PartitionId, topic_partition: TopicPartition) -> bool:
        """Whether a partition was deleted."""
        is_there = partition in self.journaled or partition in self.others
        return not is_there and topic_partition not in self.unreadable


def is_journaled(config: TopicConfig) -> bool:
    """Whether the partitions of a topic with these settings are to be in the journal."""
    return config.is_journaled


def partition_id(log: PartitionLog) -> PartitionId:
    """Return which partition a log is."""
    assert log.topic_id is not None
    return PartitionId(parse_topic_id(log.topic_id), log.topic_partition.partition)


def copied_offset(log: PartitionLog) -> int:
    """Return the offset up to which the head names segments, or the log has deleted them."""
    tiered = 0 if log.tier is None else log.tier.next_offset or 0
    return max(tiered, log.snapshot.segments[0].base_offset)


def ends_in_files(snapshot: Snapshot, copied: int) -> Iterator[tuple[Segment, int, int]]:
    """Yield the segments from an offset on, where each ends in its file, and the next base offset.

    There is no segment after the active one: -1.
    """
    last = len(snapshot.segments) - 1
    for number, segment in enumerate(snapshot.segments):
        if segment.base_offset < copied:
            continue
        if number == last:
            yield segment, snapshot.end.file_size, -1
        else:
            yield segment, segment.size_bytes, snapshot.segments[number + 1].base_offset


def _mark_of(snapshot: Snapshot, segment: Segment) -> _Mark:
    return _Mark(snapshot.truncations, segment.is_packed, segment.rewrites)


def _read(log: PartitionLog, segment: Segment, position: int, length: int) -> bytes | None:
    """Read bytes of a segment; None if its file was replaced or removed meanwhile."""
    mark = _mark_of(log.snapshot, segment)
    try:
        file = local_part(log.disk).open(segment.name)
    except FileNotFoundError:
        return None
    try:
        data = bytes(file.pread(length, position))
    finally:
        file.close()
    snapshot = log.snapshot
    is_same = _mark_of(snapshot, segment) == mark
    is_there = any(one is segment for one in snapshot.segments)
    return data if len(data) == length and is_same and is_there else None
