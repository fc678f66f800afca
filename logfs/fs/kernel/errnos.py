"""Which errno a program gets for which error: one table, complete by test.

An ``OSError`` comes from the disk below: what a program can act on (no room left) is passed on, the
rest is EIO, since its errno speaks of a file the program never named. Anything that is not in the
table is a bug of logfs: the traceback goes to the log, the program gets EIO, the mount lives on.
"""

import errno
import logging
from typing import TYPE_CHECKING

from logfs import errors
from logfs.disk.waiting import InterruptedReadError
from logfs.errors import LogfsError, forget_frames, text_of

if TYPE_CHECKING:
    from logfs.log.reading.readable import ReadableLog

logger = logging.getLogger(__name__)


class RefusedError(LogfsError):
    """A change that files which only take appends do not allow, as after ``chattr +a``."""


class PermissionDeniedError(LogfsError):
    """A mode does not let the user do this."""


class NotADirectoryNodeError(LogfsError):
    """A name is looked up below something that is no directory."""


class IsADirectoryNodeError(LogfsError):
    """A directory is opened as a file."""


class StaleError(LogfsError):
    """The file of an inode is gone; looking the name up again may find another."""


class NoSuchAttributeError(LogfsError):
    """No extended attribute has this name."""


class TooManyOpenFilesError(LogfsError):
    """A user has as many files of the mount open as the mount lets users have; see ``quotas``."""


class ForeignAttributeError(LogfsError):
    """An extended attribute that logfs does not keep."""


class NotIndexedYetError(LogfsError):
    """A request needs positions of a log that are not known yet.

    Attributes:
        log: The log.
    """

    def __init__(self, log: "ReadableLog") -> None:
        super().__init__(f"{log.topic_partition}: its positions are not known yet")
        self.log = log


class InterruptedWaitError(LogfsError):
    """A program was interrupted while it waited."""


class NothingYetError(LogfsError):
    """There is nothing to read yet, and the file was opened with O_NONBLOCK."""


class SuspectRequestError(LogfsError):
    """A request may be what ends daemons; see ``suspects``."""


class StoppedError(LogfsError):
    """The mount stops, so no request waits any longer."""


ERRNOS: dict[type[LogfsError], int] = {
    errors.CorruptRecordError: errno.EIO,
    errors.CorruptIndexError: errno.EIO,
    errors.CorruptCheckpointError: errno.EIO,
    errors.UnsupportedFormatError: errno.ENOTSUP,
    errors.RecordTooLargeError: errno.EMSGSIZE,
    errors.UnparsableLineError: errno.EINVAL,
    errors.OffsetOutOfRangeError: errno.ERANGE,
    errors.NoOffsetsLeftError: errno.EFBIG,
    errors.OutOfOrderSequenceError: errno.EINVAL,
    errors.InvalidProducerEpochError: errno.EPERM,
    errors.InvalidTxnStateError: errno.EINVAL,
    errors.TransactionCoordinatorFencedError: errno.EPERM,
    errors.BadSelectorError: errno.EINVAL,
    errors.UnknownNameError: errno.ENOENT,
    errors.IllegalTopicNameError: errno.EINVAL,
    errors.NoSuchGroupError: errno.ENOENT,
    errors.NoSuchTopicError: errno.ENOENT,
    errors.NoSuchPartitionError: errno.ENOENT,
    errors.TopicExistsError: errno.EEXIST,
    errors.TopicNotEmptyError: errno.ENOTEMPTY,
    errors.InvalidConfigError: errno.EINVAL,
    errors.PolicyViolationError: errno.EPERM,
    errors.HeldError: errno.EBUSY,
    errors.ReadOnlyError: errno.EROFS,
    errors.MirrorError: errno.EROFS,
    errors.QuotaExceededError: errno.EDQUOT,
    errors.LogOfflineError: errno.EIO,
    errors.DeletedError: errno.ESTALE,
    errors.DataLossError: errno.ESTALE,
    errors.CleaningAbortedError: errno.EAGAIN,
    errors.LockedError: errno.EBUSY,
    errors.ControlError: errno.EPROTO,
    errors.ClusterUnreachableError: errno.EHOSTUNREACH,
    errors.ClusterRefusedError: errno.EACCES,
    errors.BrokerError: errno.EIO,
    errors.NoDataDirectoryError: errno.ENOENT,
    errors.NotThereYetError: errno.EAGAIN,
    NotIndexedYetError: errno.EAGAIN,
    InterruptedWaitError: errno.EINTR,
    NothingYetError: errno.EAGAIN,
    SuspectRequestError: errno.EIO,
    StoppedError: errno.ENOTCONN,
    RefusedError: errno.EPERM,
    PermissionDeniedError: errno.EACCES,
    NotADirectoryNodeError: errno.ENOTDIR,
    IsADirectoryNodeError: errno.EISDIR,
    StaleError: errno.ESTALE,
    NoSuchAttributeError: errno.ENODATA,
    ForeignAttributeError: errno.ENOTSUP,
    TooManyOpenFilesError: errno.EMFILE,
    errors.MountError: errno.EBUSY,
    errors.BackupError: errno.EINVAL,
    errors.SparkJobError: errno.EIO,
    errors.ExportError: errno.EINVAL,
    errors.UndecodableTextError: errno.EILSEQ,
    errors.ExpressionError: errno.EINVAL,
    errors.ExtraMissingError: errno.ENOTSUP,
    errors.RemoteStorageError: errno.EIO,
    errors.EarlierRecordsError: errno.EIO,
}

_PASSED_ON = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE
})  # fmt: skip

_WORTH_A_LINE = (
    OSError,
    errors.CorruptRecordError,
    errors.LogOfflineError,
    errors.RecordTooLargeError,
    errors.UnparsableLineError,
    errors.UnsupportedFormatError,
    errors.QuotaExceededError,
    TooManyOpenFilesError,
    SuspectRequestError,
)
"""Errors that are logged too: the errno alone does not explain them."""


def errno_of(error: Exception) -> int | None:
    """Return the errno for an error, None for one that only a bug of logfs can raise."""
    for kind in type(error).__mro__:
        number = ERRNOS.get(kind)
        if number is not None:
            return number
    if isinstance(error, InterruptedReadError):
        return errno.EINTR
    if isinstance(error, OSError):
        return error.errno if error.errno in _PASSED_ON else errno.EIO
    return None


class Translator:
    """Turns errors into errnos, and logs some.

    A message is logged once until another one comes, so a program that meets the same corrupt
    batch again and again does not fill the log.
    """

    def __init__(self) -> None:
        self._last_message = ""

    def translate(self, request: str, error: Exception) -> int:
        """Return the errno of the reply.

        Args:
            request: The name of the request, for the log message.
            error: What its handler raised.
        """
        number = errno_of(error)
        if number is None:
            logger.error("%s: a bug in logfs, answered with EIO", request, exc_info=error)
            return errno.EIO
        forget_frames(error)
        if isinstance(error, _WORTH_A_LINE) and number != errno.EINTR:
            message = f"{request}: {error}"
            if message != self._last_message:
                self._last_message = message
                logger.warning("%s: %s", request, text_of(error))
        return number
