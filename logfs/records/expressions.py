r"""Regular expressions of ``re`` in forms that native code can search for. Pure.

Python's parser reads a pattern. What it has read says which bytes each match contains, and it is
written again for the library PCRE2 if both libraries find the same:

    written          literals, classes, ``.``, ``^ $ \A \Z \b``, groups, alternatives, repetitions
    left to ``re``   references to groups, looking around, conditions, atomic groups, ``\B``, the
                     flag ``L``, repetitions of what may be empty or of more than 1000 times

What is written is regular, and the only question is whether there is a match. So it does not matter
which match an engine prefers. Nothing is left to be read in two ways: bytes are written as
numbers, classes as the bytes that are in them, and no option is set.
"""

import re
from collections.abc import Iterable, Sequence
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_MOST_TIMES = 1000
_MOST_NEEDLES = 16
_BYTES = range(256)
_SPACE = frozenset(b" \t\n\r\f\v")
_DIGIT = frozenset(b"0123456789")
_WORD = _DIGIT | frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_CATEGORIES = {
    ops.CATEGORY_DIGIT: _DIGIT,
    ops.CATEGORY_NOT_DIGIT: frozenset(_BYTES) - _DIGIT,
    ops.CATEGORY_SPACE: _SPACE,
    ops.CATEGORY_NOT_SPACE: frozenset(_BYTES) - _SPACE,
    ops.CATEGORY_WORD: _WORD,
    ops.CATEGORY_NOT_WORD: frozenset(_BYTES) - _WORD,
}
_PLACES = {
    # place: (written, written with the flag M)
    ops.AT_BEGINNING: (rb"\A", rb"(?:\A|(?<=\x0a))"),
    ops.AT_BEGINNING_STRING: (rb"\A", rb"\A"),
    ops.AT_END: (rb"(?:\z|(?=\x0a\z))", rb"(?:\z|(?=\x0a))"),
    ops.AT_END_STRING: (rb"\z", rb"\z"),
    ops.AT_BOUNDARY: (rb"\b", rb"\b"),
}
_REPETITIONS = {ops.MAX_REPEAT: b"", ops.MIN_REPEAT: b"?"}
_ONE_BYTE = frozenset({ops.LITERAL, ops.NOT_LITERAL, ops.IN, ops.ANY})

_Items = Iterable[tuple[Any, Any]]


class _OtherwiseReadError(Exception):
    """PCRE2 may find something else, or cannot find it."""


def pcre_of(patterns: Sequence[bytes], flags: int = 0) -> bytes | None:
    """Return an expression of PCRE2 that is found where one of some patterns is found.

    Args:
        patterns: Valid patterns of ``re``.
        flags: Flags of ``re`` for all of them.

    Returns:
        None if it may be found elsewhere, too, or cannot be written.
    """
    try:
        parsed = [_parser.parse(pattern, flags) for pattern in patterns]
        written = [_written(tree, tree.state.flags) for tree in parsed]
    except (_OtherwiseReadError, RecursionError):
        return None
    return b"|".join(written)


def needles_of(pattern: bytes, flags: int = 0) -> list[bytes]:
    """Return byte strings of which each match of a regular expression contains at least one.

    Returns:
        None of them if no such bytes can be told, as for ``[0-9]+``.
    """
    tree = _parser.parse(pattern, flags)
    return _needles(tree, tree.state.flags)


def _written(items: _Items, flags: int) -> bytes:
    if flags & re.LOCALE:
        raise _OtherwiseReadError
    return b"".join(_written_item(op, argument, flags) for op, argument in items)


def _written_item(op: Any, argument: Any, flags: int) -> bytes:  # noqa: ANN401 - of the parser
    if op in _ONE_BYTE:
        return _written_byte(_members(op, argument, flags))
    if op is ops.AT and argument in _PLACES:
        return _PLACES[argument][bool(flags & re.MULTILINE)]
    if op is ops.SUBPATTERN:
        _, added, removed, inner = argument
        return b"(?:" + _written(inner, _combined(flags, added, removed)) + b")"
    if op is ops.BRANCH:
        return b"(?:" + b"|".join(_written(inner, flags) for inner in argument[1]) + b")"
    if op in _REPETITIONS:
        return _written_repetition(op, argument, flags)
    raise _OtherwiseReadError


def _written_repetition(op: Any, argument: Any, flags: int) -> bytes:  # noqa: ANN401 - of the parser
    least, most, inner = argument
    is_open = most is ops.MAXREPEAT
    # The two treat an empty turn differently.
    if inner.getwidth()[0] == 0 or least > _MOST_TIMES or (most > _MOST_TIMES and not is_open):
        raise _OtherwiseReadError
    body = _written(inner, flags)
    if len(inner) != 1 or inner[0][0] not in _ONE_BYTE:
        body = b"(?:" + body + b")"
    return body + b"{%d,%s}" % (least, b"" if is_open else b"%d" % most) + _REPETITIONS[op]


def _combined(flags: int, added: int, removed: int) -> int:
    """Return the flags inside of a group, as ``re._compiler`` combines them."""
    if added & _parser.TYPE_FLAGS:
        flags &= ~_parser.TYPE_FLAGS
    return (flags | added) & ~removed


def _members(op: Any, argument: Any, flags: int) -> frozenset[int]:  # noqa: ANN401 - of the parser
    """Return the bytes that match an item of one byte."""
    if op is ops.ANY:
        return frozenset(_BYTES) if flags & re.DOTALL else frozenset(_BYTES) - frozenset(b"\n")
    if op is not ops.IN:
        argument = [(ops.LITERAL, argument)]
    lower = _lower if flags & re.IGNORECASE else int
    is_negated = op is ops.NOT_LITERAL
    literals, categories = set[int](), set[int]()
    for kind, value in argument:
        if kind is ops.NEGATE:
            is_negated = True
        elif kind is ops.CATEGORY and value in _CATEGORIES:
            categories |= _CATEGORIES[value]
        elif kind is ops.LITERAL:
            literals.add(lower(value))
        elif kind is ops.RANGE:
            literals |= {lower(byte) for byte in range(value[0], value[1] + 1)}
        else:
            raise _OtherwiseReadError
    found = literals | categories
    return frozenset(byte for byte in _BYTES if (lower(byte) in found) is not is_negated)


def _lower(byte: int) -> int:
    return bytes((byte,)).lower()[0]


def _written_byte(members: frozenset[int]) -> bytes:
    if not members:
        raise _OtherwiseReadError
    if len(members) == 1:
        return b"\\x%02x" % next(iter(members))
    if len(members) == 2 and len({_lower(byte) for byte in members}) == 1:
        return b"(?i:\\x%02x)" % min(members)  # quicker than a class
    ranges, begin = b"", None
    for byte in range(257):
        if byte in members and begin is None:
            begin = byte
        elif byte not in members and begin is not None:
            ranges += b"\\x%02x-\\x%02x" % (begin, byte - 1)
            begin = None
    return b"[" + ranges + b"]"


def _needles(items: _Items, flags: int) -> list[bytes]:
    """Return the best group of needles of a sequence: the one whose shortest is the longest."""
    groups: list[list[bytes]] = []
    run = bytearray()
    for op, argument in items:
        if op is ops.LITERAL and len(_members(op, argument, flags)) == 1:
            run.append(argument)
            continue
        groups.append([bytes(run)])
        run.clear()
        groups.append(_needles_of_item(op, argument, flags))
    groups.append([bytes(run)])
    best = max(groups, key=lambda group: min(map(len, group), default=0))
    return best if all(best) else []


def _needles_of_item(op: Any, argument: Any, flags: int) -> list[bytes]:  # noqa: ANN401
    if op is ops.SUBPATTERN:
        _, added, removed, inner = argument
        return _needles(inner, _combined(flags, added, removed))
    if op in _REPETITIONS and argument[0] > 0:
        return _needles(argument[2], flags)
    if op is ops.BRANCH:
        groups = [_needles(inner, flags) for inner in argument[1]]
        found = [needle for group in groups for needle in group]
        return found if all(groups) and len(found) <= _MOST_NEEDLES else []
    return []
