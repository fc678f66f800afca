"""Which records a query wants: by value, key, header and fields of JSON. Pure.

``search_for`` makes a search of conditions. Native code leaves out nearly all other records, by the
bytes that a wanted record must contain, and reads the fields of JSON. Python decides about the
rest: regular expressions, and JSON in which those bytes do not say what it is.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from logfs.records._native import RecordSearch

_META = frozenset(b".^$*+?{[\\|()")
_QUANTIFIERS = frozenset(b"*?{")
_REPEAT = rb"\{[0-9]*(,[0-9]*)?\}"
_ESCAPE = b"\\"


class FieldValue(NamedTuple):
    """A member of a JSON value and what it has to be.

    Attributes:
        path: Names of members and numbers of elements, from the outside in.
        text: A string, or how a number, true, false or null is written.
    """

    path: tuple[str, ...]
    text: str


def search_for(
    patterns: Sequence[bytes] = (),
    *,
    ignores_case: bool = False,
    keys: Sequence[bytes] = (),
    headers: Sequence[tuple[bytes, bytes]] = (),
    fields: Sequence[FieldValue] = (),
) -> RecordSearch:
    """Return a search for the records for which all of these conditions hold.

    Args:
        patterns: Regular expressions, of which one is found in the value.
        ignores_case: Letters of ASCII match in both cases.
        keys: The key is one of these.
        headers: Keys and values of headers, all of which the record has.
        fields: Members of the value, all of which are as they say.

    Raises:
        ValueError: A pattern is not a regular expression; the message names it.
    """
    compiled = [_compiled(pattern, ignores_case) for pattern in patterns]
    found = [] if ignores_case else [needles_of(pattern) for pattern in patterns]
    ranked: list[tuple[int, list[bytes]]] = []
    if found and all(found):
        group = [needle for needles in found for needle in needles]
        ranked.append((min(map(len, group)), group))
    # The backslash has no rank: few values contain one.
    ranked += [(len(field.text), _needles_of_field(field)) for field in fields if field.text]
    # The group whose shortest needle is the longest leaves out most.
    _, needles = max(ranked, key=lambda one: one[0], default=(0, []))
    is_plain = not ignores_case and all(_is_plain(pattern) for pattern in patterns)
    # One group is searched for. If fields have given it, Python searches for a plain pattern, too.
    is_decided = not patterns or (is_plain and needles == ranked[0][1])
    native = [one for one in map(_native_field, fields) if one is not None]

    def confirm(value: bytes) -> bool:
        if compiled and not any(pattern.search(value) for pattern in compiled):
            return False
        if not fields:
            return True
        parsed = _parsed(value)
        return all(_member(parsed, field.path) == field.text for field in fields)

    return RecordSearch(
        needles,
        keys,
        headers,
        native,
        compiled[0].search if len(compiled) == 1 and not fields else confirm,
        not is_decided or len(native) < len(fields),
    )


def needles_of(pattern: bytes) -> list[bytes]:
    """Return byte strings of which each match of a regular expression contains at least one.

    Returns:
        None of them if no such bytes can be told, as for ``[0-9]+``.
    """
    if _META.isdisjoint(pattern):
        return [pattern] if pattern else []
    parts = pattern.split(b"|")
    if len(parts) > 1 and all(part and _META.isdisjoint(part) for part in parts):
        return parts
    if b"|" in pattern or b"(" in pattern:
        return []
    longest = max(_runs(pattern), key=len, default=b"")
    return [longest] if longest else []


def _runs(pattern: bytes) -> list[bytes]:
    """Return the runs of literal bytes of a regular expression without groups or alternatives."""
    runs, run, position = [], bytearray(), 0
    while position < len(pattern):
        byte = pattern[position : position + 1]
        width = 1
        is_end = True
        if byte == _ESCAPE:
            escaped = pattern[position + 1 : position + 2]
            width = 2
            if escaped and not escaped.isalnum():
                run += escaped
                is_end = False
            elif not escaped or escaped in b"xuUN0123456789":
                return []  # more bytes belong to it
        elif byte == b"[":
            width = _class_width(pattern, position)
        elif byte[0] in _QUANTIFIERS:
            repeat = re.match(_REPEAT, pattern[position:]) if byte == b"{" else None
            width = len(repeat[0]) if repeat else 1
            del run[-1:]  # it may be missing
        elif byte[0] not in _META:
            run += byte
            is_end = False
        if is_end:
            runs.append(bytes(run))
            run.clear()
        position += width
    return [*runs, bytes(run)]


def _class_width(pattern: bytes, position: int) -> int:
    """Return how long a class of characters is; up to the end of the pattern if in doubt."""
    body = position + 1
    if pattern[body : body + 1] == b"^":
        body += 1
    end = pattern.find(b"]", body + 1)  # a bracket that comes first is one of the characters
    is_certain = end >= 0 and _ESCAPE not in pattern[body:end]
    return (end + 1 if is_certain else len(pattern)) - position


def _is_plain(pattern: bytes) -> bool:
    """Return whether containing one of its needles is to match a regular expression."""
    found = needles_of(pattern)
    return bool(found) and b"|".join(found) == pattern


def _compiled(pattern: bytes, ignores_case: bool) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern, re.IGNORECASE if ignores_case else re.NOFLAG)
    except (re.error, RecursionError, OverflowError) as error:
        text = pattern.decode(errors="backslashreplace")
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def _needles_of_field(field: FieldValue) -> list[bytes]:
    """Return what a value with this member contains: its text, or a backslash of an escape."""
    return [field.text.encode(errors="surrogateescape"), _ESCAPE]


def _native_field(field: FieldValue) -> tuple[tuple[bytes, ...], bytes] | None:
    """Return a field for native code; None if it is not UTF-8, or has digits of another script."""
    if any(name.isdecimal() and not name.isascii() for name in field.path):
        return None
    try:
        return tuple(name.encode() for name in field.path), field.text.encode()
    except UnicodeEncodeError:
        return None


def _parsed(value: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value in UTF-8 with numbers as they are written; None if it is none."""
    try:
        text = value.decode("utf-8-sig")
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None


_CONSTANTS = {True: "true", False: "false", None: "null"}


def _member(parsed: Any, path: Sequence[str]) -> str | None:  # noqa: ANN401 - any JSON value
    """Return a member as text; None if there is none, or it is an object or an array."""
    for name in path:
        if isinstance(parsed, dict) and name in parsed:
            parsed = parsed[name]
        elif isinstance(parsed, list) and name.isdecimal() and int(name) < len(parsed):
            parsed = parsed[int(name)]
        else:
            return None
    if isinstance(parsed, str):
        return parsed
    return _CONSTANTS[parsed] if isinstance(parsed, bool) or parsed is None else None
