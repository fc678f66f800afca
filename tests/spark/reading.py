"""What a table holds, without a JVM: the reader is asked as Spark asks it."""

from collections.abc import Iterable, Mapping
from datetime import UTC
from pathlib import Path

from logfs.arrow.columns import HEADERS, PLAIN
from logfs.records.record import Record
from logfs.spark.options import parse_options
from logfs.spark.schema import chosen
from logfs.types import TopicPartition

Row = tuple[object, ...]
ALL = tuple((column.name, column.kind) for column in (*PLAIN, HEADERS))


def rows(path: Path | str, columns: Iterable[str] = (), **options: str) -> list[Row]:
    """All rows of a table, in the order of its tasks."""
    return [row for task in tasks(path, columns, **options) for row in task]


def tasks(path: Path | str, columns: Iterable[str] = (), **options: str) -> list[list[Row]]:
    """The rows of each task; names of options have ``_`` for a dot."""
    from logfs.spark.batch import LogfsReader

    named = {name.replace("_", "."): text for name, text in options.items()}
    parsed = parse_options({"path": str(path), **named}, UTC, is_stream=False)
    kinds = dict(ALL)
    wanted = chosen([(name, kinds[name]) for name in columns or kinds])
    reader = LogfsReader(parsed, wanted)
    found: list[list[Row]] = []
    for partition in reader.partitions():
        read = [batch.to_pydict() for batch in reader.read(partition)]
        found.append([row for columns in read for row in zip(*columns.values(), strict=True)])
    return found


def places(path: Path | str, **options: str) -> dict[str, list[int]]:
    """The offsets that are read of each partition: ``orders/0`` -> [0, 1, 2]."""
    found: dict[str, list[int]] = {}
    for topic, partition, offset in rows(path, ("topic", "partition", "offset"), **options):
        assert isinstance(offset, int)
        found.setdefault(f"{topic}/{partition}", []).append(offset)
    return found


def records(path: Path | str, topic: str, level: str) -> list[Record]:
    """The records of partition 0 of a topic, as an isolation level shows them."""
    from datetime import datetime

    wanted = ("offset", "timestamp", "key", "value", "headers")
    found = []
    for row in rows(path, wanted, subscribe=topic, kafka_isolation_level=level):
        offset, moment, key, value, headers = row
        assert isinstance(offset, int)
        assert isinstance(moment, datetime)
        assert key is None or isinstance(key, bytes)
        assert value is None or isinstance(value, bytes)
        assert headers is None or isinstance(headers, list)
        pairs = tuple((one["key"].encode(), one["value"]) for one in headers or ())
        found.append(Record(offset, round(moment.timestamp() * 1000), key, value, pairs))
    return found


def expected(written: Mapping[TopicPartition, list[Record]]) -> list[Row]:
    """All columns of what was written, in order; times in microseconds."""
    return [
        (
            record.key,
            record.value,
            topic,
            partition,
            record.offset,
            record.timestamp * 1000,
            0,
            [{"key": key.decode(), "value": value} for key, value in record.headers] or None,
        )
        for (topic, partition), records in sorted(written.items())
        for record in records
    ]


def plain(found: Iterable[Row]) -> list[Row]:
    """Rows with times in microseconds and values as in Python."""
    return [tuple(_plain(value) for value in row) for row in found]


def _plain(value: object) -> object:
    from datetime import datetime

    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1_000_000)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [_header(one) for one in value]
    return value


def _header(header: object) -> dict[str, object]:
    if isinstance(header, dict):
        return header
    assert isinstance(header, tuple)  # a Row of Spark
    return {"key": header[0], "value": None if header[1] is None else bytes(header[1])}
