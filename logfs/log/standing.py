"""Whether a partition takes appends: it may be read-only, deleted, or offline.

After a failed write or fsync a log is *offline*: the kernel may have dropped the bytes, so nothing
but loading it again can tell what is on the disk.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from logfs.config import TopicConfig
from logfs.disk.vfs import DISK_FULL
from logfs.errors import DeletedError, LogOfflineError, ReadOnlyError
from logfs.log import options
from logfs.log.host import cache_mark
from logfs.log.reading.readable import ReadableLog
from logfs.log.segments.segment import Segment
from logfs.log.segments.table import SegmentState
from logfs.log.state import PartitionState
from logfs.log.writing.active import create_files
from logfs.log.writing.flushing import Flusher
from logfs.log.writing.lease import Lease
from logfs.log.writing.linefiles import LineFiles
from logfs.records.encoded import EncodeOptions
from logfs.types import Positions

logger = logging.getLogger(__name__)


class LogStanding(ReadableLog):
    """A partition that can be written or not.

    Attributes:
        adopt_later: Makes records of lines that a crash left and that wait for room; None: none do.
        lease: The lease of positions. For this package.
        line_files: The files of unfinished lines. For this package.
    """

    def __init__(self, state: PartitionState) -> None:
        super().__init__(state)
        self._state: PartitionState = state
        self.table = state.table
        self._epochs = state.epochs
        self._options = options.encode_options(state.config, state.epochs.latest)
        self._snapshot_offset = state.snapshot_offset
        self._has_new_epochs = state.has_new_epochs
        self._flusher = Flusher(
            state.disk,
            self.directory,
            None if state.read_only else state.table,
            state.recovery_point,
            state.counters,
            state.host.clock_s,
        )
        self.lease = Lease(state.table, cache_mark(state.host, state.disk), state.lease)
        self._lock = threading.RLock()
        self._deferred = state.deferred
        self.adopt_later: Callable[[], None] | None = None
        self.line_files = LineFiles(state.disk, self._state.directory, self._lock)

    @property
    def config(self) -> TopicConfig:
        """The topic's configuration."""
        return self._state.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._state.config = config
        self._options = options.encode_options(config, self._epochs.latest)

    @property
    def recovery_point(self) -> int:
        """First offset that is not known to be durable."""
        return self._flusher.recovery_point

    def encode_options(self) -> EncodeOptions:
        """Return how records for this topic become batches."""
        return self._options

    def exclusive(self) -> threading.RLock:
        """Return the lock that every change takes; hold it to make several changes one."""
        return self._lock

    def check_writable(self) -> None:
        """Raise the error that an append would meet before it touches the disk.

        Raises:
            ReadOnlyError: The store was opened read-only.
            DeletedError: The topic was deleted.
            LogOfflineError: An earlier write or fsync failed.
        """
        if self.read_only:
            raise ReadOnlyError(f"{self.topic_partition}: the data directory is open read-only")
        if self.is_deleted:
            raise DeletedError(f"{self.topic_partition}: the topic has been deleted")
        if self.offline is not None:
            raise LogOfflineError(
                f"{self.topic_partition} is offline: {self.offline}; it is reloaded once nobody "
                "has it open, or at the next mount"
            )

    def finish_loading(self) -> None:
        """Do what loading could not do because the disk was full, before anything is appended.

        Until then the directory is as the last owner left it, so a kill changes nothing. With the
        lock.

        Raises:
            OSError: With ENOSPC there is still no room, and the log is as before; anything else
                takes it offline.
        """
        if self._deferred is None:
            return
        with self.offline_on_failure("write", but_not_full=True):
            while self._deferred:
                self._deferred[0]()
                del self._deferred[0]
            *sealed, active = self.snapshot.segments
            if not self.disk.exists(active.name):
                create_files(self.disk, active, self.config)
            entries = [segment.entry(SegmentState.SEALED) for segment in sealed]
            self.table.rewrite([*entries, self.lease.open_entry(active)])
        self._deferred = None

    def adopt_waiting(self) -> None:
        """Make records of the lines that a crash left and that wait for room, if there is any.

        They come before whatever is appended from now on. Without room they go on waiting.
        """
        with self._lock:
            adopt, self.adopt_later = self.adopt_later, None
            if adopt is None or self.offline is not None or self.is_deleted:
                return
            room = self.disk.free()
            if not room.f_bfree:
                self.adopt_later = adopt
            else:
                adopt()

    def take_offline(self, reason: str) -> None:
        """Refuse appends and fsyncs until the partition is reloaded.

        A deleted partition refuses them already, and its directory has another name or is gone.
        """
        with self._lock:
            if self.offline is not None or self.is_deleted:
                return
            self._state.offline = reason
            logger.error(
                "%s is offline: %s", self.topic_partition, reason,
                extra={"fields": {"event": "offline", "offset": self.log_end_offset}},
            )  # fmt: skip
            with contextlib.suppress(OSError):
                self.lease.distrust(self.snapshot.active)

    @contextlib.contextmanager
    def offline_on_failure(self, what: str, *, but_not_full: bool = False) -> Iterator[None]:
        """Take the partition offline if the disk fails inside; ``but_not_full``: not if it is full.

        The error goes on to the caller; if the topic was deleted meanwhile, as DeletedError.
        """
        try:
            yield
        except OSError as error:
            if self.is_deleted:
                self.check_writable()
            if not (but_not_full and error.errno in DISK_FULL):
                self.take_offline(f"{what} failed: {error}")
            raise

    def _settle_lines(self, below: int) -> None:
        """Have no file say that a line is in a batch below an offset, which is about to change.

        Raises:
            OSError: One still does. With ENOSPC nothing else has changed.
        """
        with self.offline_on_failure("write", but_not_full=True):
            must_sync = self.line_files.settle(below)
        if must_sync:
            with self.offline_on_failure("fsync"):
                self.line_files.sync_settled(below)

    def _note_lease(self, segment: Segment, ends: Positions) -> Positions:
        with self.offline_on_failure("write", but_not_full=True):
            return self.lease.note(segment, ends)

    def _sync_lease(self, noted: Positions) -> None:
        with self.offline_on_failure("fsync"):
            self.lease.sync(noted)
