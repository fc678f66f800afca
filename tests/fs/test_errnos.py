import errno
import logging

import pytest
from pyfuse3 import FUSEError

import logfs.fs.session.mount  # noqa: F401 - so that every error there is has been defined
from logfs import errors
from logfs.errors import CorruptRecordError, LogfsError, RecordTooLargeError
from logfs.fs.kernel.errnos import ERRNOS, StaleError, Translator, errno_of
from logfs.fs.kernel.suspects import SuspectRequests
from logfs.fs.tree.accesslog import AccessLog
from logfs.fs.tree.replies import RequestCounts, request_handler


def every_error(base: type[LogfsError]) -> set[type[LogfsError]]:
    kinds = set(base.__subclasses__())
    return kinds.union(*(every_error(kind) for kind in kinds))


def test_every_error_has_an_errno() -> None:
    kinds = {kind for kind in every_error(LogfsError) if kind.__module__.startswith("logfs.")}
    assert set(ERRNOS) <= kinds
    # Its own, or that of the kind it is one of.
    assert not [kind for kind in kinds if ERRNOS.keys().isdisjoint(kind.__mro__)]
    assert all(number in errno.errorcode for number in ERRNOS.values())


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (errors.NoSuchTopicError("t"), errno.ENOENT),
        (errors.BadSelectorError("s"), errno.EINVAL),
        (RecordTooLargeError("r", 2, 1), errno.EMSGSIZE),
        (CorruptRecordError("c"), errno.EIO),
        (errors.DeletedError("d"), errno.ESTALE),
        (errors.ReadOnlyError("r"), errno.EROFS),
        (StaleError("s"), errno.ESTALE),
        (OSError(errno.ENOSPC, "full"), errno.ENOSPC),
        (OSError(errno.EDQUOT, "full"), errno.EDQUOT),
        (FileNotFoundError(errno.ENOENT, "a data file is gone"), errno.EIO),
        (PermissionError(errno.EACCES, "a data file cannot be opened"), errno.EIO),
        (OSError("without a number"), errno.EIO),
    ],
    ids=str,
)
def test_the_errno_of_an_error(error: Exception, number: int) -> None:
    assert errno_of(error) == number


def test_an_error_derived_from_a_known_one_has_its_errno() -> None:
    class WorseError(errors.NoSuchTopicError):
        pass

    assert errno_of(WorseError("w")) == errno.ENOENT


class Handlers:
    def __init__(self) -> None:
        self.translator = Translator()
        self.request_counts = RequestCounts()
        self.access_log: AccessLog | None = None
        self.suspects: SuspectRequests | None = None

    @request_handler
    async def fails(self, error: Exception) -> int:
        raise error

    @request_handler
    async def works(self, number: int) -> int:
        return number + 1


async def test_a_handler_answers_with_an_errno() -> None:
    handlers = Handlers()
    with pytest.raises(FUSEError) as caught:
        await handlers.fails(errors.NoSuchTopicError("t"))
    assert caught.value.errno == errno.ENOENT
    assert await handlers.works(1) == 2
    assert handlers.request_counts.failed == {("fails", errno.ENOENT): 1}
    assert handlers.request_counts.done == {"works": 1}


async def test_a_fuse_error_passes_as_it_is() -> None:
    error = FUSEError(errno.ENODATA)
    with pytest.raises(FUSEError) as caught:
        await Handlers().fails(error)
    assert caught.value is error


@pytest.mark.expect_log("a bug in logfs")
async def test_a_bug_is_logged_and_answered_with_eio() -> None:
    with pytest.raises(FUSEError) as caught:
        await Handlers().fails(KeyError("oops"))
    assert caught.value.errno == errno.EIO


@pytest.mark.expect_log("batch at byte 7")
def test_the_same_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    translator = Translator()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            translator.translate("read", CorruptRecordError("batch at byte 7"))
    assert len(caplog.records) == 1


def test_a_name_that_does_not_exist_is_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    Translator().translate("lookup", errors.NoSuchTopicError("t"))
    assert not caplog.records
