"""What is read while a daemon compacts and shortens the logs: what stays, once and in order."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mounting import Mount, wait_until
from tests.semantics.programs import append_all, configure, meta, numbered
from tests.spark import reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.fuse, pytest.mark.slow]

KEYS = 50
ROUND = 500
ROUNDS = 4
Values = dict[str, list[tuple[int, bytes]]]
"""Offset and value of each record of a topic."""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A daemon that cleans all the time: ``prices`` is compacted, ``orders`` kept short."""
    options = ("log.initial.task.delay.ms=0", "log.retention.check.interval.ms=20")
    with Mount(tmp_path / "data", tmp_path / "mnt", *options, "log.cleaner.backoff.ms=20") as mount:
        for topic in ("prices", "orders"):
            (mount.point / topic).mkdir()
            configure(mount.point / topic, internal_segment_bytes=4000, file_delete_delay_ms=0)
        configure(mount.point / "prices", cleanup_policy="compact", min_cleanable_dirty_ratio=0)
        configure(mount.point / "orders", max_message_bytes=2000, retention_bytes=20_000)
        yield mount


def price(number: int) -> bytes:
    return b"price %d" % number


def write(mount: Mount, first: int) -> None:
    """Append the records of a round to both topics; number N is at offset N."""
    rows = [b"key %d\t%b\n" % (n * 7 % KEYS, price(n)) for n in range(first, first + ROUND)]
    append_all(mount.point / "prices" / "0.tsv", b"".join(rows))
    append_all(mount.point / "orders" / "0", b"".join(numbered(first, first + ROUND)))


def wait_until_cleaned(mount: Mount, written: int) -> None:
    def is_done() -> bool:
        cleaner = meta(mount.point / "prices" / "0")["cleaner"]
        start: int = meta(mount.point / "orders" / "0")["log_start_offset"]
        return (cleaner["first_dirty_offset"] or 0) > written - 200 and start > written - ROUND

    wait_until(is_done, f"what is below {written} is compacted and shortened")


def kept(mount: Mount) -> Values:
    """Return what there is now."""
    found: Values = {"prices": [], "orders": []}
    for topic, offset, value in reading.rows(mount.data, ("topic", "offset", "value")):
        assert isinstance(topic, str)
        assert isinstance(offset, int)
        assert isinstance(value, bytes)
        found[topic].append((offset, value))
    return found


def check(seen: Values, left: Values) -> None:
    """Check that what was seen was written like that, came once and in order, and lacks nothing."""
    for topic, records in seen.items():
        offsets = [offset for offset, _ in records]
        assert offsets == sorted(set(offsets)), topic
        assert set(left[topic]) <= set(records), topic
    assert all(value == price(offset) for offset, value in seen["prices"])
    lines = [line.rstrip(b"\n") for line in numbered(0, ROUND * ROUNDS)]
    assert all(value == lines[offset] for offset, value in seen["orders"])


@pytest.mark.allow_log("continuing with what is left")
def test_a_batch(mount: Mount) -> None:
    from datetime import UTC

    from logfs.spark.batch import LogfsReader
    from logfs.spark.options import parse_options
    from logfs.spark.schema import chosen

    write(mount, 0)
    parsed = parse_options(
        {"path": str(mount.data), "failOnDataLoss": "false", "maxRecordsPerPartition": "100"},
        UTC,
        is_stream=False,
    )
    columns = chosen([("topic", "string"), ("offset", "bigint"), ("value", "binary")])
    reader = LogfsReader(parsed, columns)
    planned = reader.partitions()
    seen: Values = {"prices": [], "orders": []}
    for number, task in enumerate(planned):
        for batch in reader.read(task):
            for row in batch.to_pylist():
                seen[row["topic"]].append((row["offset"], row["value"]))
            if number == 0:
                for first in range(ROUND, ROUND * ROUNDS, ROUND):
                    write(mount, first)
                wait_until_cleaned(mount, ROUND * ROUNDS)
    ends = dict.fromkeys(seen, ROUND)
    left = {t: [r for r in records if r[0] < ends[t]] for t, records in kept(mount).items()}
    check(seen, left)
    assert len(planned) > 2
    assert 0 < len(seen["prices"]) + len(seen["orders"]) < 2 * ROUND


def test_a_stream(mount: Mount, spark: "SparkSession") -> None:
    table = (
        spark.readStream.format("logfs")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", "700")
        .schema("topic string, offset long, value binary")
        .load(str(mount.data))
    )
    seen: Values = {"prices": [], "orders": []}

    def note(batch: "DataFrame", number: int) -> None:
        for row in sorted(batch.collect()):
            seen[row.topic].append((row.offset, bytes(row.value)))
        if number == 0:
            for first in range(ROUND, ROUND * ROUNDS, ROUND):
                write(mount, first)
            wait_until_cleaned(mount, ROUND * ROUNDS)

    write(mount, 0)
    checkpoint = str(mount.data.with_name("checkpoint"))
    query = table.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    left = kept(mount)
    check(seen, left)
    assert len(seen["prices"]) < 2 * ROUND
    assert len(seen["orders"]) < 2 * ROUND
    assert seen["prices"][-1][0] == seen["orders"][-1][0] == ROUND * ROUNDS - 1
