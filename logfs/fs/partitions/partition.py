"""A partition in the mount: its log, its executor, and how many of its files are open.

The log may be replaced by one that was reloaded, after a failed write or fsync; everything else
that knows the partition (inodes, open files, the executor) stays.
"""

from logfs.disk.remote.overlay import has_store
from logfs.fs.partitions.executor import PartitionExecutor
from logfs.log.reading.readable import ReadableLog
from logfs.log.segments.segment import Segment
from logfs.services.following.followed import AnyLog
from logfs.types import IsolationLevel, TopicPartition

_NO_FLUSH = 2**63 - 1


def identity_of(log: ReadableLog) -> str:
    """Return a text for a log and its positions; another one if they had to start again."""
    topic = log.topic_id or f"name {log.topic_partition.topic}"
    return f"{topic}/{log.topic_partition.partition}/{log.generation.hex()}"


class MountedPartition:
    """One partition of a topic that exists or existed. Event loop only.

    Attributes:
        topic_partition: Its names.
        level: The isolation level of the mount.
        log: The log; see ``replace_log``.
        executor: Runs the calls of the partition.
        open_files: How many of its files are open, for reading or writing.
        reload_after_s: The time before which no reload is tried, because the last one failed.
    """

    __slots__ = (
        "_held",
        "executor",
        "identity",
        "level",
        "log",
        "open_files",
        "reload_after_s",
        "topic_partition",
    )

    def __init__(
        self,
        log: AnyLog,
        executor: PartitionExecutor,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.level = level
        self.executor = executor
        self.open_files = 0
        self.reload_after_s = 0.0
        self.log = log
        self.identity = ""
        self._held: tuple[Segment, ...] = ()
        self.replace_log(log)

    def replace_log(self, log: AnyLog) -> None:
        """Use a log that was reloaded.

        ``identity`` says which positions these are: it changes if they had to start again, and
        then every inode of the partition is another one.
        """
        if self.executor.lock is not None:
            self.executor.lock.unmark()
        self.log = log
        self.executor.has_store = has_store(log.disk)
        self.identity = identity_of(log)
        self.executor.lock = None if log.is_followed else log.writable.exclusive()
        self.note_config()

    def note_config(self) -> None:
        """Apply a change of the topic's configuration."""
        must_flush = self.log.config.flush_messages != _NO_FLUSH
        # Finding a place in a log whose positions are not known yet may mean reading much of it.
        self.executor.always_in_thread = must_flush or self.log.indexing is not None

    def hold(self) -> None:
        """Keep the files of a partition that is being deleted until its last file is closed."""
        if self.open_files:
            self._held = self.log.snapshot.segments
            self.log.pin(self._held)

    def leave(self, count: int) -> None:
        """Note that open files have been closed."""
        self.open_files -= count
        if self._held and not self.open_files:
            self.log.unpin(self._held)
            self._held = ()
