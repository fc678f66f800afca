"""Records as a program gives them, and what is appended of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from itertools import islice
from typing import NamedTuple, TypeAlias

from logfs.library.points import milliseconds_of
from logfs.records.record import Header, Record

Headers: TypeAlias = Sequence[tuple[str | bytes, bytes | None]]
"""Keys and values of headers; a ``str`` is encoded as UTF-8."""

CHUNK_RECORDS = 8192
_CHUNK_BYTES = 8 * 1024 * 1024


class NewRecord(NamedTuple):
    """A record to be appended.

    Attributes:
        value: None is a null value.
        key: None is a null key, which differs from an empty one.
        headers: In order; keys may repeat.
        timestamp: In ms since the epoch, or a moment; None: the time of the append.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | datetime | None = None


Appendable: TypeAlias = bytes | NewRecord | Record
"""A value, a new record, or a record that was read; the offset of the latter is ignored."""


def chunks(records: Iterable[Appendable], now_ms: int, zone: tzinfo) -> Iterator[list[Record]]:
    """Yield records in parts that one request can hold; none of them is empty."""
    if isinstance(records, bytes | bytearray | memoryview | str | NewRecord | Record):
        raise TypeError(
            f"{_short(records)}: expected several records, as in [value]; append() takes one"
        )
    iterator = iter(records)
    while items := list(islice(iterator, CHUNK_RECORDS)):
        if {*map(type, items)} == {bytes}:  # values alone, and many of them as a rule
            new = tuple.__new__
            yield from _halves([new(Record, (0, now_ms, None, value, ())) for value in items])
        else:
            yield from _halves([to_record(item, now_ms, zone) for item in items])


def to_record(item: Appendable, now_ms: int, zone: tzinfo) -> Record:
    """Return what is appended of an item (``zone`` of its datetime); raise TypeError."""
    if isinstance(item, bytes):
        return Record(0, now_ms, None, item)
    if isinstance(item, Record):
        return item
    if not isinstance(item, NewRecord):
        raise TypeError(f"{_short(item)}: expected bytes, a NewRecord or a Record")
    value, key, headers, timestamp = item
    for name, what in (("value", value), ("key", key)):
        if what is not None and not isinstance(what, bytes):
            raise TypeError(f"{name}={_short(what)}: expected bytes or None")
    if timestamp is None:
        timestamp = now_ms
    elif isinstance(timestamp, datetime):
        timestamp = milliseconds_of(timestamp, zone)
    elif type(timestamp) is not int:
        raise TypeError(f"timestamp={timestamp!r}: expected ms since the epoch (int) or a datetime")
    if isinstance(headers, Mapping | str | bytes):
        raise TypeError(f'headers={_short(headers)}: expected pairs, as in [("host", b"web1")]')
    return Record(0, timestamp, key, value, tuple(map(_header, headers)))


def _header(header: tuple[str | bytes, bytes | None]) -> Header:
    if type(header) not in (tuple, list) or len(header) != 2:
        raise TypeError(f"header {_short(header)}: expected a pair of a key and a value")
    key, value = header
    if not isinstance(key, str | bytes):
        raise TypeError(f"header {_short(header)}: the key is {_short(key)}; expected str or bytes")
    if value is not None and not isinstance(value, bytes):
        raise TypeError(
            f"header {_short(header)}: the value is {_short(value)}; expected bytes or None"
        )
    return key.encode() if isinstance(key, str) else key, value


def _short(what: object) -> str:
    return repr(what)[:80]


def _halves(records: list[Record]) -> Iterator[list[Record]]:
    if len(records) > 1 and sum(map(_size, records)) > _CHUNK_BYTES:
        middle = len(records) // 2
        yield from _halves(records[:middle])
        yield from _halves(records[middle:])
    else:
        yield records


def _size(record: Record) -> int:
    _, _, key, value, headers = record
    size = (len(key) if key else 0) + (len(value) if value else 0)
    if headers:
        size += sum(len(key) + len(value or b"") for key, value in headers)
    return size


def check_range(name: str, value: object, stop: int) -> None:
    """Refuse what is no integer from 0 up to, but not including, a power of two.

    Raises:
        TypeError: It is no integer.
        ValueError: It is outside the range.
    """
    if type(value) is not int:
        raise TypeError(f"{name}={value!r}: expected an int")
    if not 0 <= value < stop:
        raise ValueError(f"{name}={value}: expected 0 to 2**{stop.bit_length() - 1} - 1")
