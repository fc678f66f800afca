"""Members of JSON values as columns, a whole set of values at a time.

A value is a JSON object. A member that it lacks is null, and other members are ignored. Arrow
parses a set of values at once, unless one of them is malformed: it is no object, or a member has
another type than its column. Then the halves are parsed, and a few values one by one. A value that
is no object has no members, and a member of another type is null. A column of strings takes
the JSON text of any other member.

Source: Spark JacksonParser, of from_json in its mode PERMISSIVE.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from logfs.records.jsontext import decode_record

_FEW = 64
_ROW, _VALUE = "row", "value"


class MemberParser:
    """Parses members of JSON values.

    Args:
        fields: The names and types of the members. All types but strings, booleans and numbers may
            be any that ``pyarrow.json`` reads.
    """

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self._fields = fields
        self._type = pa.struct(fields)
        rows = pa.schema([(_ROW, pa.int64()), (_VALUE, self._type)])
        self._options = pj.ParseOptions(explicit_schema=rows, unexpected_field_behavior="ignore")
        self._numbers = pa.array((), pa.int64())

    def parse(self, values: pa.Array) -> Iterator[tuple[pa.StructArray, pa.Array]]:
        """Yield the members of values, in parts, and the texts of those that are malformed.

        Args:
            values: Bytes; null has no members.

        Returns:
            Pairs of a struct for each value, and a string that is null for each that is well
            formed. Bytes of a malformed value that are not UTF-8 are U+FFFD.
        """
        found = self._at_once(values)
        if found is not None:
            yield found, pa.nulls(len(values), pa.string())
        elif len(values) > _FEW:
            half = len(values) // 2
            yield from self.parse(values.slice(0, half))
            yield from self.parse(values.slice(half))
        else:
            rows = [self._one(value) for value in values.to_pylist()]
            yield (
                pa.array([row for row, _ in rows], self._type),
                pa.array([text for _, text in rows], pa.string()),
            )

    def _at_once(self, values: pa.Array) -> pa.StructArray | None:
        """Return the members of values; None if one of them is malformed, or may be."""
        count = len(values)
        if len(self._numbers) < count:
            self._numbers = pa.array(range(count), pa.int64())
        numbers = self._numbers.slice(0, count)
        try:
            lines = pc.binary_join_element_wise(
                f'{{"{_ROW}":',
                numbers.cast(pa.string()),
                f',"{_VALUE}":',
                values.cast(pa.string()),
                "}\n",
                "",
                null_handling="replace",
                null_replacement="null",
            )
            size = pc.sum(pc.binary_length(lines)).as_py() or 0
            table = pj.read_json(
                pa.BufferReader(lines.buffers()[2].slice(0, size)),
                read_options=pj.ReadOptions(use_threads=False, block_size=size + 1),
                parse_options=self._options,
            )
        except pa.ArrowInvalid:
            return None
        # A value may close its line and begin others: its rows are too many then.
        if not table[_ROW].combine_chunks().equals(numbers):
            return None
        return table[_VALUE].combine_chunks()

    def _one(self, value: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
        """Return the members of a value, and its text if it is malformed."""
        if value is None:
            return None, None
        text = value.decode(errors="replace")
        try:
            found = decode_record(value.decode())
            if found is None:
                return None, None
            if not isinstance(found, dict):
                return None, text
            row = {one.name: self._member(one, found.get(one.name)) for one in self._fields}
        except (ValueError, RecursionError):
            return None, text
        is_whole = all((found.get(name) is None) == (one is None) for name, one in row.items())
        return row, None if is_whole else text

    def _member(self, field: pa.Field, member: object) -> object:
        """Return a member as a value of its column; None if it has another type."""
        kind = field.type
        if member is None:
            return None
        if pa.types.is_string(kind):
            return _text(member)
        if pa.types.is_boolean(kind):
            return member if isinstance(member, bool) else None
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return _number(kind, member)
        line = pa.array([json.dumps({field.name: member}).encode()])
        found = MemberParser([field])._at_once(line)
        return None if found is None else found.flatten()[0][0].as_py()


def _number(kind: pa.DataType, member: object) -> int | float | None:
    if not isinstance(member, int | float) or isinstance(member, bool):
        return None
    if pa.types.is_floating(kind):
        with suppress(OverflowError):
            return float(member)
        return None
    most = 1 << kind.bit_width - 1
    return member if isinstance(member, int) and -most <= member < most else None


def _text(member: object) -> str:
    """Return a string, or the JSON text of another value."""
    if not isinstance(member, str):
        member = json.dumps(member, ensure_ascii=False, separators=(",", ":"))
    return member.encode(errors="replace").decode()
