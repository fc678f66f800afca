"""Scans merged by time, and lazy frames of Polars whose filters become look-ups."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import logfs
from logfs import NewRecord
from logfs.arrow.pruning import ANY, ReadLimits, limits_of
from tests.mounting import ROOT

BEGIN_MS = 1_700_000_000_000
BEGIN = datetime.fromtimestamp(BEGIN_MS / 1000, UTC)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three partitions of 400 records; their times go up but for some records that come late."""
    chance = random.Random(7)
    with logfs.open_store(tmp_path) as store:
        store.create_topic("orders", 3)
        for number in range(3):
            late = set(chance.sample(range(400), 20))
            store.partition("orders", number).append_many(
                NewRecord(b"%d" % n, timestamp=BEGIN_MS + 1000 * n - (300_000 if n in late else 0))
                for n in range(400)
            )
    return tmp_path


def rows(data: Path, **arguments: object) -> Iterator[tuple[datetime, int, int]]:
    scan = logfs.scan(data, columns=["offset", "partition", "timestamp"], **arguments)  # type: ignore[arg-type]
    for batch in scan.read_arrow():
        columns = [batch.column(name).to_pylist() for name in ("timestamp", "partition", "offset")]
        yield from zip(*columns, strict=True)


def test_a_merged_scan_keeps_the_order_of_partitions_and_of_times(data: Path) -> None:
    plain, merged = list(rows(data)), list(rows(data, merged=True))
    assert sorted(plain) == sorted(merged)
    assert plain != merged
    highest: dict[int, datetime] = {}
    keyed = []
    for time, number, offset in plain:
        highest[number] = max(highest.get(number, time), time)
        keyed.append((highest[number], number, offset))
    expected = [(number, offset) for _, number, offset in sorted(keyed)]
    assert [(number, offset) for _, number, offset in merged] == expected


def test_a_merged_scan_does_not_need_the_time_among_its_columns(data: Path) -> None:
    scan = logfs.scan(data, columns=["offset"], merged=True)
    assert scan.schema.names == ["offset"]
    assert sum(batch.num_rows for batch in scan.read_arrow()) == 1200


QUERIES = """
import sys
from datetime import UTC, datetime, timedelta
import logfs
import logfs.arrow.reading as reading
import polars as pl

data, begin = sys.argv[1], datetime.fromtimestamp(int(sys.argv[2]) / 1000, UTC)
looked = []
read_range = reading.read_range
def watched(disk, offsets, columns, **more):
    looked.append((offsets.start, offsets.end, [column.name for column in columns]))
    return read_range(disk, offsets, columns, **more)
reading.read_range = watched

offset, time = pl.col("offset"), pl.col("timestamp")
filters = [
    offset >= 390, offset.is_between(5, 7), (offset > 10) & (offset < 14), offset == 3,
    pl.lit(5) > offset, time >= begin + timedelta(seconds=350), time < begin,
    (time >= begin + timedelta(seconds=100)) & (time <= begin + timedelta(seconds=110)),
    (offset < 3) | (offset > 397), pl.col("value") == "17", ~(offset < 395), offset < 0,
]
scan = logfs.scan(data, text=True)
whole = pl.DataFrame(scan)
for one in filters:
    assert scan.lazy().filter(one).collect().equals(whole.filter(one)), one
    assert scan.lazy().filter(one).select(pl.len()).collect().item() == whole.filter(one).height
assert scan.lazy().head(5).collect().equals(whole.head(5))
assert scan.lazy().select("value").collect().equals(whole.select("value"))
assert scan.lazy(sorted_times=False).filter(offset < 2).select("partition").collect().height == 6

looked.clear()
scan.lazy().filter(offset.is_between(5, 7)).select("value").collect()
assert [row[:2] for row in looked] == [(5, 8)] * 3, looked
assert {name for row in looked for name in row[2]} == {"offset", "value"}
looked.clear()
scan.lazy().filter(time >= begin + timedelta(seconds=350)).collect()
assert all(0 < start <= 371 and end == 400 for start, end, _ in looked), looked
looked.clear()
scan.lazy(sorted_times=True).filter(time < begin + timedelta(seconds=50)).collect()
assert all(start == 0 and end < 60 for start, end, _ in looked), looked
print("done")
"""


@pytest.mark.slow
def test_a_lazy_frame_reads_what_its_filter_needs(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUERIES, str(data), str(BEGIN_MS)],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", '{"BinaryExpr": 3}', "[" * 5000,
        '{"BinaryExpr":{"left":{"Column":"offset"},"op":"NotEq","right":{"Literal":{"Dyn":{"Int":5}}}}}',
        '{"BinaryExpr":{"left":{"Column":"offset"},"op":"Gt","right":{"Literal":{"Dyn":{"Float":5.5}}}}}',
        '{"BinaryExpr":{"left":{"Column":"timestamp"},"op":"Gt","right":{"Literal":{"Scalar":'
        '{"Datetime":[5,"Fortnights",{"inner":"UTC"}]}}}}}',
    ],
)  # fmt: skip
def test_a_filter_that_is_not_understood_limits_nothing(text: str) -> None:
    assert limits_of(text) == ANY


def test_times_between_milliseconds_are_rounded_to_the_safe_side() -> None:
    def limits(op: str, microseconds: int) -> ReadLimits:
        value = {"Scalar": {"Datetime": [microseconds, "Microseconds", {"inner": "UTC"}]}}
        sides = {"left": {"Column": "timestamp"}, "right": {"Literal": value}}
        return limits_of(json.dumps({"BinaryExpr": {**sides, "op": op}}))

    assert limits("GtEq", 5000).since_ms == 5
    assert limits("GtEq", 5001).since_ms == limits("Gt", 5000).since_ms == 6
    assert limits("Lt", 5000).until_ms == 4
    assert limits("Lt", 5001).until_ms == limits("LtEq", 5999).until_ms == 5
