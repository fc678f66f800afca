"""One line of the jsonl view, as a writer may send it.

    field      type                                      missing
    offset     ignored                                   -
    timestamp  integer, epoch milliseconds               now
    key        string, {"base64": "..."} or null         null
    value      string, {"base64": "..."} or null         null
    headers    [[key, value], ...]; a key is not null    []

Any other field is an error. The way out, records to lines, is in ``_native``.
"""

import binascii
from typing import NamedTuple

from logfs.errors import UnparsableLineError
from logfs.records.jsontext import decode_record
from logfs.records.record import Header

_FIELDS = frozenset({"offset", "timestamp", "key", "value", "headers"})
_INT64_BOUND = 2**63


class Line(NamedTuple):
    """The contents of one line."""

    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def parse_line(line: bytes) -> Line:
    """Parse one line; raise UnparsableLineError for anything else than the table says."""
    try:
        found = decode_record(line.decode())
    except ValueError as error:
        raise UnparsableLineError(f"not JSON in UTF-8: {error}") from None
    if not isinstance(found, dict):
        raise UnparsableLineError(f"expected a JSON object, found {_kind(found)}")
    unknown = found.keys() - _FIELDS
    if unknown:
        raise UnparsableLineError(f"unknown field {min(unknown)!r}")
    return Line(
        _timestamp(found["timestamp"]) if "timestamp" in found else None,
        _bytes(found.get("key"), "key"),
        _bytes(found.get("value"), "value"),
        _headers(found["headers"]) if "headers" in found else (),
    )


def _timestamp(found: object) -> int:
    if type(found) is not int:
        raise UnparsableLineError(f"timestamp must be an integer, found {_kind(found)}")
    if not -_INT64_BOUND <= found < _INT64_BOUND:
        raise UnparsableLineError("timestamp does not fit 64 bits")
    return found


def _bytes(found: object, name: str) -> bytes | None:
    try:
        match found:
            case None:
                return None
            case str():
                return found.encode()
            case {"base64": str(digits), **others} if not others:
                return binascii.a2b_base64(digits, strict_mode=True)
    except ValueError as error:
        raise UnparsableLineError(f"{name}: {error}") from None
    raise UnparsableLineError(f'{name} must be a string, {{"base64": …}} or null')


def _headers(found: object) -> tuple[Header, ...]:
    if not isinstance(found, list):
        raise UnparsableLineError(f"headers must be an array, found {_kind(found)}")
    return tuple(_header(item) for item in found)


def _header(found: object) -> Header:
    if not isinstance(found, list) or len(found) != 2:
        raise UnparsableLineError("a header must be an array of key and value")
    key = _bytes(found[0], "header key")
    if key is None:
        raise UnparsableLineError("a header key must not be null")
    return key, _bytes(found[1], "header value")


def _kind(found: object) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return kinds.get(type(found), "null" if found is None else "a number")
