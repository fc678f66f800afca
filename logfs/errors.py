"""The exception tree: every error logfs raises on purpose, one screen.

The file system turns each into an errno in one table (``logfs.fs.kernel.errnos``). The command line
prints the message. Messages say what, where (file, position, offset), what was expected and what to
do.
"""

from datetime import UTC, datetime


class LogfsError(Exception):
    """Base of every error raised on purpose."""


class CorruptRecordError(LogfsError):
    """Bytes of a log do not decode, or their checksum differs.

    Attributes:
        position: Byte position of the batch in the file or buffer that was read; None if unknown.
        file: Name of the file below the data directory; None if only a buffer was read.
        size_bytes: Bytes that cannot be read; 0 if unknown.
        next_offset: At which reading continues after the damage; None if unknown.
    """

    next_offset: int | None = None

    def __init__(
        self,
        message: str,
        position: int | None = None,
        file: str | None = None,
        size_bytes: int = 0,
    ) -> None:
        super().__init__(message)
        self.position = position
        self.file = file
        self.size_bytes = size_bytes

    def name_file(self, file: str) -> None:
        """Add the name of the file, if only a buffer was known so far."""
        if self.file is None:
            self.file = file
            self.args = (f"{file}: {self.message}",)

    @property
    def message(self) -> str:
        """The damage, without the offset at which reading continues."""
        return str(self.args[0])

    def __str__(self) -> str:
        """Return what is wrong, and how to read on."""
        return self.message + read_on(self.next_offset)


def text_of(error: BaseException) -> str:
    """Return what an error says to people: of an ``OSError`` the file and the reason, no number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def forget_frames(error: BaseException) -> None:
    """Let an error that was answered keep nothing alive but what it says.

    Its traceback has the variables of each function that it passed, perhaps an open file, and it is
    often one of them itself: then only the garbage collector would close that file.
    """
    found: BaseException | None = error
    while found is not None:
        found.__traceback__, found = None, found.__context__


def moment_of(timestamp_ms: int) -> str:
    """Return a moment as messages show it, in UTC to the second."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms after the epoch"  # far outside the calendar


def read_on(next_offset: int | None) -> str:
    """Return how to read on after damage, as the end of a message; empty if that is not known."""
    return "" if next_offset is None else f"; read on with @offset={next_offset}"


class OversizedBatchError(CorruptRecordError):
    """The records of a batch take more memory, when decompressed, than they may."""


class CorruptIndexError(LogfsError):
    """An index or segment table does not decode; it is rebuilt and never reaches the user."""


class CorruptCheckpointError(LogfsError):
    """A small text file does not parse; ``line`` is counted from 1, None for the whole file."""

    def __init__(self, message: str, name: str, line: int | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.line = line


class UnsupportedFormatError(LogfsError):
    """A magic, codec or file version that this logfs does not know."""


class RecordTooLargeError(LogfsError):
    """A record, alone in an uncompressed batch with its header, exceeds ``max.message.bytes``."""

    def __init__(self, message: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class UnparsableLineError(LogfsError):
    """A line written to a view does not parse as that view, or the topic refuses the record."""


class ExpressionError(LogfsError):
    """A regular expression cannot be searched for in a value: that takes too long, or fails."""


class UndecodableTextError(LogfsError):
    """A key or value that is to be read as text is not UTF-8."""


class OffsetOutOfRangeError(LogfsError):
    """An offset outside ``[log_start_offset, log_end_offset]``."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"offset {offset} is outside the log, which holds "
            f"[{log_start_offset}, {log_end_offset})"
        )
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class NoOffsetsLeftError(LogfsError):
    """A log ends so close to the largest offset that it takes no more records."""


class OutOfOrderSequenceError(LogfsError):
    """A producer's batch does not follow the one before it: records in between are missing."""


class InvalidProducerEpochError(LogfsError):
    """A batch or marker comes from an older epoch of its producer: a newer instance took over."""


class EarlierRecordsError(LogfsError):
    """Earlier records of the producer, in another segment, are not durable: flush, and try again.

    Otherwise a power cut could keep the later records and lose the earlier ones.
    """


class InvalidTxnStateError(LogfsError):
    """A producer writes outside of the transaction that it has open."""


class TransactionCoordinatorFencedError(LogfsError):
    """A marker comes from an older epoch of the transaction coordinator."""


class BadSelectorError(LogfsError):
    """The part of a name after ``@`` does not parse.

    Attributes:
        part: The refused text; "" if the name as a whole is wrong.
    """

    def __init__(self, message: str, part: str = "") -> None:
        super().__init__(message)
        self.part = part


class UnknownNameError(LogfsError):
    """A name that is not in the grammar of addresses."""


class IllegalTopicNameError(LogfsError):
    """A topic name Kafka would refuse, or one that logfs keeps for itself."""


class NoSuchGroupError(LogfsError):
    """There is no consumer group of that name."""


class NoSuchTopicError(LogfsError):
    """The topic does not exist."""


class NoSuchPartitionError(LogfsError):
    """The topic exists, the partition does not."""


class NotThereYetError(LogfsError):
    """A partition directory is just being made: it has no segment or no topic id."""


class TopicExistsError(LogfsError):
    """A topic of that name is there already."""


class TopicNotEmptyError(LogfsError):
    """A topic that holds records is deleted by a name that deletes empty topics only."""


class InvalidConfigError(LogfsError):
    """A configuration key is unknown or its value out of bounds."""


class PolicyViolationError(LogfsError):
    """The cleanup policy of the topic does not allow what was asked for."""


class HeldError(LogfsError):
    """Records that were not forwarded to a cluster yet are to be deleted."""


class ReadOnlyError(LogfsError):
    """A change was asked of a store that was opened read-only."""


class MirrorError(LogfsError):
    """A change of a mirror that only its source may make, or that does not fit the source."""


class QuotaExceededError(LogfsError):
    """More than a topic or a user may have: a quota of the topic, or a limit of the mount."""


class LogOfflineError(LogfsError):
    """An earlier write or fsync failed, or the partition could not be loaded."""


class DeletedError(LogfsError):
    """The topic, or a segment that a fixed name was resolved to, has been deleted."""


class DataLossError(LogfsError):
    """Records that a job was to read are gone, or are not there as they were."""


class CleaningAbortedError(LogfsError):
    """A compaction ended before it was done; the log is as before, or smaller, and as valid."""


class ExtraMissingError(LogfsError, ImportError):
    """A package is missing that only some functions need; the message says how to add it."""


class LockedError(LogfsError):
    """Another process owns the data directory."""


class ControlError(LogfsError):
    """The bytes of a control socket are not its protocol, or the other side has gone."""


class ClusterUnreachableError(LogfsError):
    """No broker of a Kafka cluster answers, or the right one does not."""


class ClusterRefusedError(LogfsError):
    """A Kafka cluster refuses the client or what it asks for; waiting changes nothing."""


class BrokerError(LogfsError):
    """A Kafka broker answers a request with an error.

    Attributes:
        code: Kafka's number of the error.
        is_retriable: Whether the same request may succeed later.
    """

    def __init__(self, message: str, code: int, *, is_retriable: bool) -> None:
        super().__init__(message)
        self.code = code
        self.is_retriable = is_retriable


class NoDataDirectoryError(LogfsError):
    """No leading part of a path is a data directory or a mount point."""


class MountError(LogfsError):
    """The file system cannot be mounted or unmounted there; the message says why."""


class BackupError(LogfsError):
    """A backup cannot be made or restored as was asked, or is not whole."""


class RemoteStorageError(LogfsError):
    """Tiered storage is not set up as it must be, or the store is not what it should be."""


class FencedError(RemoteStorageError):
    """Another process writes this partition to the object store: it has the larger epoch."""


class DivergedError(RemoteStorageError):
    """The store has other records than the data directory: nothing is copied or dropped."""


class SparkJobError(LogfsError):
    """Spark does not start, or a task of a job failed."""


class ExportError(LogfsError):
    """Records cannot be exported there, or not as was asked."""
