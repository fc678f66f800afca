"""Logs that an export reads, and the rows that it has written."""

from pathlib import Path
from typing import Any

from logfs.records.record import Record
from tests.spark.logs import START_MS, Logs

DAY_MS = 86_400_000


NOW_MS = START_MS + 3 * DAY_MS


DAYS = ("2023-11-14", "2023-11-15", "2023-11-16")


Row = tuple[str, int, int, int, bytes | None, bytes | None]


def three_days(first: int, count: int) -> list[Record]:
    """Records of three days, in no order, with everything that a record may have."""
    return [
        Record(
            0,
            START_MS + (n % 3) * DAY_MS + n,
            None if n % 5 == 0 else b"key %d" % n,
            None if n % 7 == 0 else b"value \xff %d" % n,
            ((b"h", b"\x00"), (b"h", None)) if n % 4 == 0 else (),
        )
        for n in range(first, first + count)
    ]


def rows_in(destination: Path) -> list[Row]:
    """What a reader finds; each file has the records of its directories alone, in order."""
    import pyarrow.parquet as pq

    rows = []
    for file in sorted(destination.glob("**/*.parquet")):
        table = pq.read_table(file, partitioning=None)
        topic, day = file.parts[-3].removeprefix("topic="), file.parts[-2].removeprefix("day=")
        offsets = table.column("offset").to_pylist()
        assert offsets == sorted(offsets)
        assert {str(time.date()) for time in table.column("timestamp").to_pylist()} == {day}
        assert set(table.column("topic").to_pylist()) == {topic}
        rows += rows_of(table)
    return sorted(rows)


def rows_of(table: Any) -> list[Row]:  # noqa: ANN401 - pyarrow's
    names = ("topic", "partition", "offset", "timestamp", "key", "value")
    columns = [table.column(name) for name in names]
    columns[3] = columns[3].cast("int64")
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def written(logs: Logs, *partitions: tuple[str, int]) -> list[Row]:
    return sorted(
        (*one, r.offset, r.timestamp * 1000, r.key, r.value)
        for one in partitions or [("orders", 0), ("orders", 1), ("clicks", 0)]
        for r in logs.records(*one)
    )
