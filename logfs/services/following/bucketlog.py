"""One partition of an object store, followed: the head says where everything is.

Nothing is scanned: positions, times and sizes of every segment are in the head. A look asks the
bucket for what it knows, which costs no request. When that is another version of the head, new
segments are added and removed ones go. An open file reads on in the segments that are left.
"""

from functools import cached_property

from logfs.disk.remote.treedisk import PartFile
from logfs.disk.vfs import Disk, File
from logfs.errors import CorruptIndexError, NotThereYetError
from logfs.log.indexes.index import Entries
from logfs.log.indexes.indexfile import IndexFile
from logfs.log.loading.context import LoadContext
from logfs.log.loading.loader import load_state
from logfs.log.names import FileKind
from logfs.log.producers.state import ProducerState
from logfs.log.remote.bucket import Bucket
from logfs.log.remote.headfiles import HeadFiles
from logfs.log.segments.segment import OpenSegments, Segment, SegmentFiles, sealed_indexes
from logfs.log.segments.snapshot import LogEnd, LogPoint, Snapshot
from logfs.log.topics import effective_config
from logfs.log.writing.state import PartitionState
from logfs.services.following.listing import list_names
from logfs.services.following.transactions import Transactions
from logfs.services.following.watched import STEP_BYTES, WatchedLog
from logfs.types import TopicPartition


class BucketSegmentFiles(SegmentFiles):
    """The files of one segment of a bucket."""

    @cached_property
    def log(self) -> File:
        """The ``.log``; a read that finds it removed lets readers take the segment for a hole."""
        file = self._disk.open(self._segment.name, uncached=True)
        if isinstance(file, PartFile):
            file.when_removed = self._note_removed
        return file

    def _entries(self, index: IndexFile, kind: FileKind) -> Entries:
        """Return the entries; what the store fails at is raised, and tried again by the next."""
        if kind in self._unusable:
            return b""
        try:
            return index.entries()
        except FileNotFoundError:
            self._note_removed()
            raise
        except CorruptIndexError as error:
            return self._without(kind, error)

    def _note_removed(self) -> None:
        self._segment.is_deleted = self._segment.is_gone = True


class BucketSegments(OpenSegments):
    """The segments of a bucket that are open."""

    def _open(self, segment: Segment) -> SegmentFiles:
        return BucketSegmentFiles(self._disk, segment, sealed_indexes(self._disk, segment))


class BucketLog(WatchedLog):
    """A partition of a bucket. Make it with ``follow_bucket``."""

    def __init__(
        self, state: PartitionState, bucket: Bucket, files: HeadFiles, loading: LoadContext
    ) -> None:
        super().__init__(state)
        self._bucket = bucket
        self._files = files
        self._opened = loading.opened
        self._defaults = loading.defaults
        self.transactions = Transactions(state.disk, state.producer_expiration_ms, state.producers)
        for segment in state.snapshot.segments:
            segment.inode = files.inode_at(segment.base_offset)
        self.is_caught_up = True

    @property
    def producers(self) -> ProducerState:
        """The state of the producers at the log end."""
        return self.transactions.state

    def close_files(self) -> None:
        """Let go of every file."""
        for segment in self.snapshot.segments:
            segment.close_files()

    def _refresh(self, now_ms: int, limit_bytes: int = STEP_BYTES) -> bool:
        files = self._bucket.head_files(self.directory)
        if files is not None and files is not self._files:
            self._show(files, now_ms)
            self._files = files
        return False

    def _show(self, files: HeadFiles, now_ms: int) -> None:
        """Show another version of the head."""
        old = self.snapshot
        known = {segment.inode: segment for segment in old.segments}
        segments = self._segments(files, known)
        first, active = segments[0], segments[-1]
        start = files.head.start
        if start.offset < first.base_offset:
            start = LogPoint(first.base_offset, first.bases)
        end = LogEnd(active.base_offset, active.bases, 0, -1)
        kept = {segment.inode for segment in segments}
        gone = [segment for segment in old.segments if segment.inode not in kept]
        sealed = set(old.segments[:-1]).intersection(gone)
        is_cut = end.offset < old.end.offset or any(
            segment.next_offset > first.base_offset for segment in sealed
        )
        truncations = old.truncations + is_cut
        snapshot = old.changed(segments, start, end, truncations)
        fresh = frozenset(s.base_offset for s in segments if s.inode not in known)
        self.state.config = effective_config(self._defaults, files.head.config)
        self.state.snapshot = self._with_transactions(snapshot, fresh, now_ms, is_cut=is_cut)
        self.state.last_modified_ms = self.disk.stat(active.name).mtime_ms
        self._let_go(gone)

    def _segments(self, files: HeadFiles, known: dict[int, Segment]) -> tuple[Segment, ...]:
        segments = []
        for entry in [*(tiered.entry for tiered in files.entries), files.active]:
            inode = files.inode_at(entry.base_offset)
            segment = known.get(inode)
            if segment is None:
                segment = Segment.from_entry(self._opened, self.directory, entry)
                segment.inode = inode
            segments.append(segment)
        return tuple(segments)

    def _with_transactions(
        self, snapshot: Snapshot, fresh: frozenset[int], now_ms: int, *, is_cut: bool
    ) -> Snapshot:
        """Read the transactions of new segments; after a cut those of all."""
        if is_cut:
            return self.transactions.look_up(snapshot, self.directory, now_ms)
        names = list_names(self.disk, self.directory)
        names = names._replace(indexed=names.indexed & fresh)
        known = snapshot.aborted
        return self.transactions.look_up(snapshot, self.directory, now_ms, names, known)


def follow_bucket(
    bucket: Bucket, disk: Disk, loading: LoadContext, topic_partition: TopicPartition
) -> BucketLog:
    """Begin to follow a partition of a bucket; everything that it holds is known on return.

    Raises:
        NotThereYetError: It has no head.
    """
    files = bucket.head_files(topic_partition.directory)
    if files is None:
        raise NotThereYetError(f"{topic_partition}: the store has no head of it")
    return BucketLog(load_state(loading, topic_partition), bucket, files, loading)
