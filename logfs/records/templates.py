r"""Records in a form that a template gives, with the letters of kcat. Pure.

    %t topic   %p partition   %o offset   %T timestamp (ms)   %d date and time in UTC   %k key
    %s value   %S its length (-1: null)   %K length of the key   %h headers, as a=b,c=d   %% %

Null is nothing; ``\n``, ``\t``, ``\r``, ``\\``, ``\xHH`` are bytes. A record ends with a newline:
with one only, if the template ends with one, as those of kcat do.

Source: kcat, ``-f``, which prints no newline by itself.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from logfs.records.record import Record
from logfs.types import TopicPartition

Piece = Callable[[TopicPartition, Record], bytes]

TEMPLATE_TABLE: tuple[tuple[str, str], ...] = (
    ("%s, %S", "value, its length in bytes (-1: null)"),
    ("%k, %K", "key, its length"),
    ("%T, %d", "timestamp in ms, as a date and time in UTC"),
    ("%t, %p, %o", "topic, partition, offset"),
    ("%h", "headers, as a=b,c=d"),
    (r"\n \t \r \\ \xHH", "bytes; a newline follows unless FORMAT ends with one"),
    ("%%", "%"),
)
"""Rows (letters, meaning)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOKEN = rb"(?s)%(.?)|\\(x[0-9a-fA-F]{2}|.?)"
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\"}


class RecordTemplate:
    """A template for records; raises ValueError for one that does not parse."""

    def __init__(self, text: bytes) -> None:
        self._pieces: list[Piece] = []
        self._ends_line = False
        position = 0
        for token in re.finditer(_TOKEN, text):
            self._add(text[position : token.start()])
            position = token.end()
            letter, escape = token.groups()
            if letter is None:
                self._add(_escaped(escape))
            elif letter == b"%":
                self._add(b"%")
            elif letter in _LETTERS:
                self._pieces.append(_LETTERS[letter])
                self._ends_line = False
            else:
                raise ValueError(
                    f"%{letter.decode(errors='backslashreplace')}: expected % and one of "
                    f"{b' '.join(_LETTERS).decode()} %"
                )
        self._add(text[position:])
        if not self._ends_line:
            self._add(b"\n")

    def format(self, name: TopicPartition, record: Record) -> bytes:
        """Return a record of a partition as a line."""
        return b"".join([piece(name, record) for piece in self._pieces])

    def _add(self, text: bytes) -> None:
        if text:
            self._pieces.append(lambda _name, _record: text)
            self._ends_line = text.endswith(b"\n")


def _escaped(escape: bytes) -> bytes:
    if escape[:1] == b"x" and len(escape) > 1:
        return bytes.fromhex(escape[1:].decode())
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    raise ValueError(
        f"\\{escape.decode(errors='backslashreplace')}: expected \\n, \\t, \\r, \\\\ or \\xHH"
    )


def _date(_name: TopicPartition, record: Record) -> bytes:
    try:
        moment = _EPOCH + timedelta(milliseconds=record.timestamp)
    except OverflowError:
        return b"%d" % record.timestamp
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


def _length(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


_LETTERS: dict[bytes, Piece] = {
    b"s": lambda _, record: record.value or b"",
    b"S": lambda _, record: _length(record.value),
    b"k": lambda _, record: record.key or b"",
    b"K": lambda _, record: _length(record.key),
    b"T": lambda _, record: b"%d" % record.timestamp,
    b"d": _date,
    b"t": lambda name, _: name.topic.encode(),
    b"p": lambda name, _: b"%d" % name.partition,
    b"o": lambda _, record: b"%d" % record.offset,
    b"h": lambda _, record: b",".join(k + b"=" + (v or b"") for k, v in record.headers),
}
