"""What a filter of Polars says about offsets and times, so that an index can find the records.

Polars gives an expression to a source of records, which it can write as JSON. Comparisons of the
columns ``offset`` and ``timestamp`` with constants, and conjunctions of them, are understood.
Any other part, also the JSON of another version, limits nothing: the filter is applied to
the records in any case, so it only costs time.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from logfs.records.jsontext import decode_json
from logfs.types import MAX_OFFSET

_FLIPPED = {"Gt": "Lt", "GtEq": "LtEq", "Lt": "Gt", "LtEq": "GtEq", "Eq": "Eq"}
_PER_MS: Mapping[str, int] = {"Milliseconds": 1, "Microseconds": 1000, "Nanoseconds": 1_000_000}
_CLOSED = {
    "Both": ("GtEq", "LtEq"),
    "Left": ("GtEq", "Lt"),
    "Right": ("Gt", "LtEq"),
    "None": ("Gt", "Lt"),
}


class ReadLimits(NamedTuple):
    """Records outside of this do not pass the filter.

    Attributes:
        first: The least offset.
        stop: The least offset above all.
        since_ms: The least timestamp; None: any.
        until_ms: The largest timestamp; None: any.
    """

    first: int = 0
    stop: int = MAX_OFFSET
    since_ms: int | None = None
    until_ms: int | None = None

    def both(self, other: "ReadLimits") -> "ReadLimits":
        """Return what is within both."""
        since = [one for one in (self.since_ms, other.since_ms) if one is not None]
        until = [one for one in (self.until_ms, other.until_ms) if one is not None]
        return ReadLimits(
            max(self.first, other.first),
            min(self.stop, other.stop),
            max(since, default=None),
            min(until, default=None),
        )


ANY = ReadLimits()


def limits_of(serialized: str) -> ReadLimits:
    """Return what an expression in the JSON of Polars says about offsets and times."""
    try:
        return decode_json(serialized, _limits)
    except ValueError:
        return ANY


def _limits(node: Any) -> ReadLimits:  # noqa: ANN401 - JSON
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            return _limits(left).both(_limits(right))
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": op, "right": {"Literal": value}}}:
            return _compared(name, op, value)
        case {"BinaryExpr": {"left": {"Literal": value}, "op": op, "right": {"Column": str(name)}}}:
            return _compared(name, _FLIPPED.get(op, ""), value)
        case {
            "Function": {
                "input": [{"Column": str(name)}, {"Literal": low}, {"Literal": high}],
                "function": {"Boolean": {"IsBetween": {"closed": closed}}},
            }
        }:
            above, below = _CLOSED[closed]
            return _compared(name, above, low).both(_compared(name, below, high))
    return ANY


def _compared(name: str, op: str, value: Any) -> ReadLimits:  # noqa: ANN401 - JSON
    compare = _COLUMNS.get(name)
    return ANY if compare is None else compare(op, value)


def _offset(op: str, value: Any) -> ReadLimits:  # noqa: ANN401, PLR0911 - JSON, a table
    match value:
        case {"Dyn": {"Int": int(number)}}:
            pass
        case {"Scalar": {"Int64": int(number)}} | {"Scalar": {"Int32": int(number)}}:
            pass
        case _:
            return ANY
    match op:
        case "Gt":
            return ReadLimits(first=number + 1)
        case "GtEq":
            return ReadLimits(first=number)
        case "Lt":
            return ReadLimits(stop=number)
        case "LtEq":
            return ReadLimits(stop=number + 1)
        case "Eq":
            return ReadLimits(number, number + 1)
    return ANY


def _time(op: str, value: Any) -> ReadLimits:  # noqa: ANN401, PLR0911 - JSON, a table
    match value:
        case {"Scalar": {"Datetime": [int(number), str(unit), {"inner": "UTC"}]}}:
            floor, rest = divmod(number, _PER_MS[unit])
        case _:
            return ANY
    ceiling = floor + (rest > 0)
    match op:
        case "Gt":
            return ReadLimits(since_ms=floor + 1)
        case "GtEq":
            return ReadLimits(since_ms=ceiling)
        case "Lt":
            return ReadLimits(until_ms=ceiling - 1)
        case "LtEq":
            return ReadLimits(until_ms=floor)
        case "Eq":
            return ReadLimits(since_ms=ceiling, until_ms=floor)
    return ANY


_COLUMNS: Mapping[str, Callable[[str, Any], ReadLimits]] = {"offset": _offset, "timestamp": _time}
