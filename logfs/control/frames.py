"""The frames of the control protocol.

Both sides send frames:

    bytes  field
    0-3    magic            "LFSC"
    4-7    version          uint32   1; a reader refuses every other version
    8-11   header length    uint32   at most 1 MiB
    12-15  payload length   uint32   at most 64 MiB
    then   header           a JSON object
    then   payload          bytes that do not fit into JSON; usually empty

A request's header contains ``request``, its name, and its fields. The descriptor of a file
(SCM_RIGHTS) may come with the first byte. Any number of frames with ``progress``, a line of text,
precede one frame with ``result`` or ``error``. An error contains its class, its message and its
public attributes, so both sides raise the same error.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from logfs import errors
from logfs.errors import ControlError, LogfsError
from logfs.records.jsontext import decode_object

VERSION = 1
MAX_HEADER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 26

_MAGIC = b"LFSC"
_HEAD = struct.Struct(">4sIII")
HEAD_BYTES = _HEAD.size


class FrameHead(NamedTuple):
    """The first bytes of a frame."""

    header_bytes: int
    payload_bytes: int


def encode_frame(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """Return a frame.

    Raises:
        ControlError: The frame is larger than the protocol allows.
    """
    return encode_header(header, len(payload)) + payload


def encode_header(header: Mapping[str, Any], payload_bytes: int) -> bytes:
    """Return a frame without its payload, which the caller sends next.

    Raises:
        ControlError: The frame is larger than the protocol allows.
    """
    text = json.dumps(header).encode()
    if len(text) > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
        raise ControlError(
            f"a frame of {len(text)} and {payload_bytes} bytes; expected at most "
            f"{MAX_HEADER_BYTES} and {MAX_PAYLOAD_BYTES}"
        )
    return _HEAD.pack(_MAGIC, VERSION, len(text), payload_bytes) + text


def decode_head(data: bytes) -> FrameHead:
    """Parse the first ``HEAD_BYTES`` of a frame.

    Raises:
        ControlError: The bytes do not start a frame, or the frame has another version.
    """
    magic, version, header_bytes, payload_bytes = _HEAD.unpack(data)
    if magic != _MAGIC:
        raise ControlError(f"{magic!r}: expected a frame of logfs's control protocol")
    if version != VERSION:
        raise ControlError(
            f"version {version} of the control protocol, this logfs speaks version {VERSION}: use "
            "the daemon's version of logfs, or restart the daemon"
        )
    if header_bytes > MAX_HEADER_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
        raise ControlError(f"a frame of {header_bytes} and {payload_bytes} bytes is too large")
    return FrameHead(header_bytes, payload_bytes)


def decode_header(data: bytes) -> dict[str, Any]:
    """Parse the header of a frame.

    Raises:
        ControlError: The header is not a JSON object.
    """
    try:
        return decode_object(data)
    except ValueError as error:
        raise ControlError(f"the header of a frame is not a JSON object: {error}") from None


def encode_error(error: Exception) -> dict[str, Any]:
    """Return an error as JSON; ``decode_error`` is the inverse."""
    if isinstance(error, OSError):
        return {
            "type": "OSError",
            "errno": error.errno,
            "message": error.strerror or str(error),
            "file": None if error.filename is None else str(error.filename),
        }
    attributes = {
        key: value
        for key, value in vars(error).items()
        if not key.startswith("_") and isinstance(value, str | int | float | None)
    }
    kind = next((k.__name__ for k in type(error).__mro__ if k.__name__ in _ERRORS), "LogfsError")
    return {"type": kind, "message": str(error), "attributes": attributes}


def decode_error(data: Mapping[str, Any]) -> Exception:
    """Return the error that the other side sent: a LogfsError or an OSError."""
    message = str(data.get("message", "an error without a message"))
    if data.get("type") == "OSError":
        return OSError(data.get("errno"), message, data.get("file"))
    kind = _ERRORS.get(str(data.get("type")), LogfsError)
    error = kind.__new__(kind)
    error.args = (message,)
    attributes = data.get("attributes")
    if isinstance(attributes, dict):
        vars(error).update({str(key): value for key, value in attributes.items()})
    return error


_ERRORS: Mapping[str, type[LogfsError]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, LogfsError)
}
"""Errors by their names. Any other error is sent as its nearest base class in this table."""
