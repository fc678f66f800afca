"""Which records a query wants: by value, key, header and fields of JSON. Pure.

``search_for`` makes a search of conditions. Native code leaves out nearly all other records, by the
bytes that a wanted record must contain, reads the fields of JSON, and searches for regular
expressions as ``expressions`` writes them. Python decides about the rest: other expressions, all
where the library PCRE2 is missing, and JSON in which those bytes do not say what it is.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from logfs.records._reading import RecordSearch
from logfs.records.expressions import needles_of, pcre_of
from logfs.records.jsontext import decode_record

_META = frozenset(b".^$*+?{[\\|()")
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
    texts: Sequence[bytes] = (),
    ignores_case: bool = False,
    keys: Sequence[bytes] = (),
    headers: Sequence[tuple[bytes, bytes]] = (),
    fields: Sequence[FieldValue] = (),
) -> RecordSearch:
    """Return a search for the records for which all of these conditions hold.

    Args:
        patterns: Regular expressions.
        texts: Texts. One of them, or a match of one of the patterns, is in the value.
        ignores_case: Letters of ASCII match in both cases.
        keys: The key is one of these.
        headers: Keys and values of headers, all of which the record has.
        fields: Members of the value, all of which are as they say.

    Raises:
        ValueError: A pattern is not a regular expression; the message names it.
    """
    flags = re.IGNORECASE if ignores_case else re.NOFLAG
    plain = [_plain_needles(pattern) for pattern in patterns]
    plain += [[text] if text else [] for text in texts]
    plain = [] if ignores_case else plain
    patterns = [*patterns, *map(re.escape, texts)]
    compiled = [_compiled(pattern, flags) for pattern in patterns]
    is_plain = bool(plain) and all(plain)
    found = plain if is_plain else [needles_of(pattern, flags) for pattern in patterns]
    ranked: list[tuple[int, list[bytes]]] = []
    if found and all(found):
        group = [needle for needles in found for needle in needles]
        ranked.append((min(map(len, group)), group))
    # The backslash has no rank: few values contain one.
    ranked += [(len(field.text), _needles_of_field(field)) for field in fields if field.text]
    # The group whose shortest needle is the longest leaves out most.
    _, needles = max(ranked, key=lambda one: one[0], default=(0, []))
    # One group is searched for. If fields have given it, an expression does it for the patterns.
    is_decided = not patterns or (is_plain and needles == ranked[0][1])
    expression = None if is_decided else pcre_of(patterns, flags)
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
        len(native) < len(fields) or (expression is None and not is_decided),
        expression,
    )


def _plain_needles(pattern: bytes) -> list[bytes]:
    """Return the texts of which one is to be there; none if a pattern is more than texts."""
    parts = pattern.split(b"|")
    return parts if all(part and _META.isdisjoint(part) for part in parts) else []


def _compiled(pattern: bytes, flags: re.RegexFlag) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern, flags)
    except (re.error, RecursionError, OverflowError) as error:
        text = pattern.decode(errors="backslashreplace")
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def _needles_of_field(field: FieldValue) -> list[bytes]:
    """Return what a value with this member contains: its text, or a backslash of an escape."""
    try:
        return [field.text.encode(), _ESCAPE]
    except UnicodeEncodeError:  # a lone surrogate: only an escape can write it
        return [_ESCAPE]


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
        return decode_record(value.decode("utf-8-sig"), numbers_as_written=True)
    except ValueError:
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
