"""The control protocol: frames and errors, as bytes."""

import contextlib
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs import errors
from logfs.control import frames
from logfs.errors import ControlError, LogfsError, OffsetOutOfRangeError, RecordTooLargeError
from logfs.fs.errnos import RefusedError


@given(
    st.dictionaries(st.text(), st.none() | st.text() | st.integers() | st.lists(st.text())),
    st.binary(),
)
def test_what_is_sent_arrives(header: dict[str, object], payload: bytes) -> None:
    frame = frames.encode_frame(header, payload)
    head = frames.decode_head(frame[: frames.HEAD_BYTES])
    rest = frame[frames.HEAD_BYTES :]
    assert frames.decode_header(rest[: head.header_bytes]) == header
    assert rest[head.header_bytes :] == payload
    assert len(rest) == sum(head)


@given(st.binary(min_size=frames.HEAD_BYTES, max_size=frames.HEAD_BYTES))
def test_any_head_is_one_or_refused(data: bytes) -> None:
    try:
        head = frames.decode_head(data)
    except ControlError:
        return
    assert head.header_bytes <= frames.MAX_HEADER_BYTES


@given(st.binary() | st.text().map(str.encode))
def test_any_header_is_an_object_or_refused(data: bytes) -> None:
    with contextlib.suppress(ControlError):
        assert isinstance(frames.decode_header(data), dict)


def test_other_versions_and_sizes_are_refused() -> None:
    frame = frames.encode_frame({})
    with pytest.raises(ControlError, match="version 2 of the control protocol, this logfs speaks"):
        frames.decode_head(frame[:4] + b"\0\0\0\2" + frame[8:16])
    with pytest.raises(ControlError, match="too large"):
        frames.decode_head(frame[:8] + b"\x7f\xff\xff\xff" + frame[12:16])
    with pytest.raises(ControlError, match="at most 1048576"):
        frames.encode_frame({"x": "y" * frames.MAX_HEADER_BYTES})


@pytest.mark.parametrize(
    "error",
    [
        OffsetOutOfRangeError(7, 2, 5),
        RecordTooLargeError("too large", 9, 5),
        errors.CorruptRecordError("bad", 5, "t-0/0.log", 10),
        errors.InvalidConfigError("retention.ms='x': expected a number"),
    ],
)
def test_errors_come_back_as_they_were(error: LogfsError) -> None:
    back = frames.decode_error(frames.encode_error(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_errors_of_the_system_and_of_other_layers() -> None:
    back = frames.decode_error(frames.encode_error(OSError(errno.ENOSPC, "No space left", "/x")))
    assert isinstance(back, OSError)
    assert (back.errno, back.strerror, back.filename) == (errno.ENOSPC, "No space left", "/x")
    refused = frames.decode_error(frames.encode_error(RefusedError("files only take appends")))
    assert (type(refused), str(refused)) == (LogfsError, "files only take appends")
    assert str(frames.decode_error({"type": "Nonsense"})) == "an error without a message"


def test_every_error_can_be_sent() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, LogfsError)]
    assert len(kinds) > 15
    for kind in kinds:
        error = kind.__new__(kind)
        error.args = ("text",)
        back = frames.decode_error(frames.encode_error(error))
        assert (type(back), str(back)) == (kind, "text")
