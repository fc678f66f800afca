"""The control protocol: frames and errors, as bytes."""

import contextlib
import errno
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs import errors
from logfs.control import frames
from logfs.control.requests import (
    REQUESTS,
    decode_lines,
    encode_lines,
    line_fields,
    line_form,
    parse_request,
)
from logfs.errors import ControlError, LogfsError, OffsetOutOfRangeError, RecordTooLargeError
from logfs.fs.kernel.errnos import RefusedError
from logfs.log.lines.form import AppendedLines, LineForm, Lines, LineTarget
from logfs.types import View


@given(
    st.dictionaries(st.text(), st.none() | st.text() | st.integers() | st.lists(st.text())),
    st.binary(),
)
def test_a_frame_decodes_to_what_was_encoded(header: dict[str, object], payload: bytes) -> None:
    frame = frames.encode_frame(header, payload)
    head = frames.decode_head(frame[: frames.HEAD_BYTES])
    rest = frame[frames.HEAD_BYTES :]
    assert frames.decode_header(rest[: head.header_bytes]) == header
    assert rest[head.header_bytes :] == payload
    assert len(rest) == sum(head)


@given(st.binary(min_size=frames.HEAD_BYTES, max_size=frames.HEAD_BYTES))
def test_other_bytes_are_refused_as_a_head(data: bytes) -> None:
    try:
        head = frames.decode_head(data)
    except ControlError:
        return
    assert head.header_bytes <= frames.MAX_HEADER_BYTES


@given(st.binary() | st.text().map(str.encode))
def test_a_header_is_an_object_or_refused(data: bytes) -> None:
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
def test_an_error_decodes_to_the_same_error(error: LogfsError) -> None:
    back = frames.decode_error(frames.encode_error(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_os_errors_decode_and_other_errors_become_their_base_class() -> None:
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


def ignore(_text: str) -> None:
    """Take progress."""


def test_a_request_has_the_checked_fields_of_its_row() -> None:
    header = {"request": "trim", "names": ["orders@-1d"], "at_once": True, "unknown": 1}
    request = parse_request(header, b"", ignore)
    fields = {"names": ["orders@-1d"], "at_once": True, "even_if_held": None}
    assert (request.name, request.fields) == ("trim", fields)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_field_of_another_type_is_refused(name: str) -> None:
    for field in REQUESTS[name].fields:
        with pytest.raises(ControlError):
            parse_request({"request": name, field: 0.5}, b"", ignore)


def test_optional_fields_may_be_null_or_missing() -> None:
    header = {"request": "create", "topic": "orders", "config": {}}
    assert parse_request(header, b"", ignore)["partitions"] is None
    assert parse_request({**header, "partitions": None}, b"", ignore)["partitions"] is None


def test_the_form_of_lines_decodes_to_what_was_encoded() -> None:
    form = LineForm(View.TSV, b"\t", ((b"host", b"web1"), (b"empty", None)))
    fields = line_fields(LineTarget("orders", None, form, 7))
    request = parse_request({"request": "lines", "is_durable": False, **fields}, b"", ignore)
    assert line_form(request) == form
    assert (request["topic"], request["partition"], request["unkeyed"]) == ("orders", None, 7)


def test_the_answer_to_lines_decodes_to_what_was_encoded() -> None:
    refusal = RecordTooLargeError("too large", 9, 5)
    lines = Lines([AppendedLines(0, 2, 5, 6)], 20, refusal)
    back = decode_lines(json.loads(json.dumps(encode_lines(lines))))
    assert back[:2] == lines[:2]
    assert (type(back.refusal), str(back.refusal)) == (RecordTooLargeError, str(refusal))
