"""Kafka's own messages: bytes to JSON, driven by schemas.

    type            bytes; where the message's version is flexible: compact
    int8 … int64    big-endian; uint16 unsigned; bool one byte; float64 IEEE
    uuid            16 bytes
    string          int16 length, -1: null; compact: unsigned varint length + 1, 0: null
    bytes           int32 length, -1: null; compact: the same as string
    []type          int32 count, -1: null; compact: unsigned varint count + 1, 0: null
    struct          its fields; if it may be null: int8 before it, negative: null; in a tagged field
                    unsigned varint before it, 0: null
    tagged fields   after the fields of every struct of a flexible version: unsigned varint count,
                    then for each unsigned varint tag, unsigned varint size, value

A schema is text, a line for each field, those of a struct indented below it:

    NAME key=API-KEY versions=FIRST-LAST flexible=FIRST+
      FIELD TYPE [versions=RANGE] [null=RANGE] [tag=N [tagged=RANGE] [default=VALUE]]

Fields that several messages have are written once, below a name alone. Later this name is the type
of a struct, or a message has ``fields=NAME``.

As JSON a message is an object of its fields in the order of the schema; a tagged field is left out
where it has its default. Numbers as they are, uuids as 22 characters of base64 (URL-safe), bytes as
base64. Source: Kafka's message generator, MessageGenerator and JsonConverterGenerator.
"""

import base64
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from logfs.errors import CorruptRecordError

_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
_ARRAY = "[]"
_EVERY = (0, 2**15 - 1)
_NONE = (1, 0)
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", '"': '"', "\\": "\\"}
_WORDS = {None: "null", True: "true", False: "false"}
_ZERO_UUID = "A" * 22
_MAX_VARINT_BYTES = 5


class Range(NamedTuple):
    """Versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: see the module."""

    name: str
    type: str
    versions: Range
    nullable: Range
    tag: int | None
    tagged: Range
    default: str | None
    fields: "tuple[Field, ...]" = ()


@dataclass(frozen=True, slots=True)
class Schema:
    """A message in all its versions."""

    name: str
    key: int
    versions: Range
    flexible: Range
    fields: tuple[Field, ...]


class Reader:
    """Reads bytes from the start on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._place

    def take(self, size: int) -> bytes:
        """Return the next bytes; raise CorruptRecordError if there are fewer."""
        if not 0 <= size <= self.left:
            raise CorruptRecordError(f"{self.left} bytes where {size} are expected")
        self._place += size
        return self._data[self._place - size : self._place]

    def number(self, kind: str) -> int | float:
        """Return the next number of a type."""
        layout = _NUMBERS[kind]
        value: int | float = layout.unpack(self.take(layout.size))[0]
        return value

    def unsigned_varint(self) -> int:
        """Return the next unsigned varint."""
        value = 0
        for place in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise CorruptRecordError("a varint that is too long")


def parse_schemas(text: str) -> dict[str, Schema]:
    """Parse schemas, by name of the message."""
    lines = [line for line in text.splitlines() if line]
    starts = [n for n, line in enumerate(lines) if not line.startswith(" ")] + [len(lines)]
    found: dict[str, Schema] = {}
    shared: dict[str, tuple[Field, ...]] = {}
    for start, stop in pairwise(starts):
        name, *words = lines[start].split()
        facts, fields = _facts(words), _parse_fields(lines[start + 1 : stop], 2, shared)
        if not words:
            shared[name] = fields
            continue
        found[name] = Schema(
            name,
            int(facts.get("key", "-1")),
            _range(facts["versions"]),
            _range(facts["flexible"]) if "flexible" in facts else Range(*_NONE),
            shared[facts["fields"]] if "fields" in facts else fields,
        )
    return found


def decode_message(schema: Schema, reader: Reader, version: int) -> dict[str, Any]:
    """Decode a message into an object for ``json_text``; raise CorruptRecordError."""
    if version not in schema.versions:
        raise CorruptRecordError(f"{schema.name} of version {version}")
    return _Decoder(reader, version, is_flexible=version in schema.flexible).struct(schema.fields)


def json_text(value: object) -> str:
    """Write JSON like Kafka's tools: no spaces, and only the escapes that JSON requires."""
    match value:
        case str():
            text = f'"{_SPECIAL.sub(_escape, value)}"'
        case float():
            text = _java_double(value)
        case Mapping():
            pairs = (f"{json_text(key)}:{json_text(item)}" for key, item in value.items())
            text = f"{{{','.join(pairs)}}}"
        case list():
            text = f"[{','.join(map(json_text, value))}]"
        case _:
            text = _WORDS[value] if value is None or isinstance(value, bool) else str(value)
    return text


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    short = _SHORT_ESCAPES.get(character)
    return f"\\u{ord(character):04X}" if short is None else f"\\{short}"


def _java_double(value: float) -> str:
    """Write a number as Java does: 5.0, 1.0E7, 1.0E-4."""
    if not math.isfinite(value):
        return {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    number = Decimal(repr(value))
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"


class _Decoder:
    """One message in one version."""

    def __init__(self, reader: Reader, version: int, *, is_flexible: bool) -> None:
        self._reader = reader
        self._version = version
        self._is_flexible = is_flexible

    def struct(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        present = [field for field in fields if self._version in field.versions]
        tagged = {
            field.tag: field
            for field in present
            if field.tag is not None and self._version in field.tagged
        }
        plain = [field for field in present if field not in tagged.values()]
        values = {field.name: self._value(field) for field in plain}
        if self._is_flexible:
            values |= self._tagged(tagged)
        return {field.name: values[field.name] for field in present if field.name in values}

    def _tagged(self, fields: dict[int, Field]) -> dict[str, Any]:
        values = {}
        for _ in range(self._reader.unsigned_varint()):
            tag, size = self._reader.unsigned_varint(), self._reader.unsigned_varint()
            data = self._reader.take(size)
            field = fields.get(tag)
            if field is not None:
                decoder = _Decoder(Reader(data), self._version, is_flexible=self._is_flexible)
                value = decoder._value(field)
                if not _is_default(field, value):
                    values[field.name] = value
        return values

    def _value(self, field: Field) -> object:
        if field.type.startswith(_ARRAY):
            return self._array(field)
        if field.type != "struct":
            return self._single(field.type)
        if self._version in field.nullable and self._is_null_struct(field):
            return None
        return self.struct(field.fields)

    def _is_null_struct(self, field: Field) -> bool:
        if field.tag is None:
            return self._reader.number("int8") < 0
        return self._reader.unsigned_varint() == 0

    def _array(self, field: Field) -> list[object] | None:
        count = self._length("int32")
        if count < 0:
            return None
        if count > self._reader.left:
            raise CorruptRecordError(f"{count} elements in {self._reader.left} bytes")
        kind = field.type.removeprefix(_ARRAY)
        if kind == "struct":
            return [self.struct(field.fields) for _ in range(count)]
        return [self._single(kind) for _ in range(count)]

    def _single(self, kind: str) -> object:
        if kind in _NUMBERS:
            return self._reader.number(kind)
        if kind == "bool":
            return self._reader.take(1) != b"\0"
        if kind == "uuid":
            return base64.urlsafe_b64encode(self._reader.take(16)).decode().rstrip("=")
        length = self._length("int16" if kind == "string" else "int32")
        if length < 0:
            return None
        data = self._reader.take(length)
        return (
            data.decode(errors="replace") if kind == "string" else base64.b64encode(data).decode()
        )

    def _length(self, kind: str) -> int:
        if self._is_flexible:
            return self._reader.unsigned_varint() - 1
        return int(self._reader.number(kind))


def _is_default(field: Field, value: object) -> bool:
    if field.default is not None:
        return value == (None if field.default == "null" else int(field.default))
    return _is_zero(value)


def _is_zero(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_zero, value.values()))
    return value in (0, "", []) or value == _ZERO_UUID


def _parse_fields(
    lines: list[str], indent: int, shared: Mapping[str, tuple[Field, ...]]
) -> tuple[Field, ...]:
    starts = [n for n, line in enumerate(lines) if line[indent] != " "] + [len(lines)]
    return tuple(
        _parse_field(
            lines[start], _parse_fields(lines[start + 1 : stop], indent + 2, shared), shared
        )
        for start, stop in pairwise(starts)
    )


def _parse_field(
    line: str, below: tuple[Field, ...], shared: Mapping[str, tuple[Field, ...]]
) -> Field:
    name, kind, *words = line.split()
    facts, shape = _facts(words), kind.removeprefix(_ARRAY)
    if shape in shared:
        kind, below = kind.replace(shape, "struct"), shared[shape]
    return Field(
        name,
        kind,
        _range(facts.get("versions", "0+")),
        _range(facts["null"]) if "null" in facts else Range(*_NONE),
        int(facts["tag"]) if "tag" in facts else None,
        _range(facts.get("tagged", "0+")),
        facts.get("default"),
        below,
    )


def _facts(words: list[str]) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in words)


def _range(text: str) -> Range:
    if text.endswith("+"):
        return Range(int(text[:-1]), _EVERY[1])
    first, _, last = text.partition("-")
    return Range(int(first), int(last or first))
