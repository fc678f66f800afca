"""What a stream reads: everything once, in order, with changes of the log between two batches."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logfs.disk.posix import PosixDisk
from logfs.errors import DataLossError, InvalidConfigError, NoSuchTopicError
from logfs.library.spark_checkpoint import read_checkpoint
from logfs.log.checkpoints import write_offsets
from logfs.log.names import LOG_START_OFFSET_CHECKPOINT
from logfs.types import TopicPartition
from tests.processes import wait_until
from tests.spark.logs import START_MS, Logs
from tests.spark.streams import Places, Stream, offsets, without_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    """``t`` with two partitions of ten and four records."""
    logs = Logs(tmp_path / "data")
    logs.topic("t", 2)
    logs.write("t", 0, *(b"%d" % n for n in range(10)))
    logs.write("t", 1, *(b"%d" % n for n in range(4)))
    return logs


def test_it_begins_at_the_end_and_continues(logs: Logs) -> None:
    stream = Stream(logs)
    assert without_ids(stream.offset) == {"t": {"0": 10, "1": 4}}
    assert stream.batch() is None
    logs.write("t", 1, b"x", b"y")
    assert stream.batch() == {"t/1": [4, 5]}
    assert stream.batch() is None
    logs.write("t", 0, b"z")
    assert stream.batch() == {"t/0": [10]}


@pytest.mark.parametrize(
    ("options", "begin"),
    [
        ({"startingOffsets": "earliest"}, {"0": 0, "1": 0}),
        ({"startingOffsets": '{"t": {"0": -1, "1": 3}}'}, {"0": 10, "1": 3}),
        ({"startingTimestamp": str(START_MS + 2)}, {"0": 2, "1": 2}),
        (
            {
                "startingTimestamp": str(START_MS + 6),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            {"0": 6, "1": 4},
        ),
        ({"from": "offset=-2"}, {"0": 8, "1": 2}),
    ],
)
def test_where_it_begins(logs: Logs, options: dict[str, str], begin: dict[str, int]) -> None:
    assert without_ids(Stream(logs, **options).offset) == {"t": begin}


def test_where_it_began_does_not_change(logs: Logs) -> None:
    stream = Stream(logs)
    logs.write("t", 0, b"x")
    assert without_ids(stream.reader.initialOffset()) == {"t": {"0": 10, "1": 4}}


@pytest.mark.parametrize(
    "options", [{"endingOffsets": "latest"}, {"to": "now"}, {"endingTimestamp": "1"}]
)
def test_it_has_no_end(logs: Logs, options: dict[str, str]) -> None:
    with pytest.raises(InvalidConfigError, match="a stream, which has no end"):
        Stream(logs, **options)


def test_a_topic_that_is_not_there_is_refused(logs: Logs) -> None:
    with pytest.raises(NoSuchTopicError, match="there is no topic u"):
        Stream(logs, subscribe="u")


def test_a_batch_has_at_most_so_many_offsets_in_proportion(logs: Logs) -> None:
    stream = Stream(logs, startingOffsets="earliest", maxOffsetsPerTrigger="7")
    assert stream.batch() == {"t/0": offsets(0, 5), "t/1": [0, 1]}
    assert stream.batch() == {"t/0": offsets(5, 10), "t/1": [2, 3]}
    assert stream.batch() is None


def test_all_that_there_is_knows_no_limit(logs: Logs) -> None:
    stream = Stream(logs, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert stream.batch(is_all=True) == {"t/0": offsets(0, 10), "t/1": offsets(0, 4)}


def test_a_batch_has_at_most_so_many_bytes(logs: Logs) -> None:
    for _ in range(8):
        logs.write("t", 0, b"x" * 5000)
    stream = Stream(logs, startingOffsets="earliest", maxBytesPerTrigger="20k")
    sizes, found = [], []
    while batch := stream.batch():
        sizes.append(len(batch.get("t/0", [])))
        found += batch.get("t/0", [])
    assert found == offsets(0, 18)
    assert len(sizes) > 1


def test_batches_by_bytes_do_not_get_ever_smaller(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("t", 6)
    for number in range(6):
        logs.write("t", number, *[b"x" * 100] * 1000)  # one record batch
    stream = Stream(logs, startingOffsets="earliest", maxBytesPerTrigger="200k")
    found = []
    while batch := stream.batch():
        assert all(len(rows) == 1000 for rows in batch.values()), "whole record batches"
        found.append(sorted(batch))
    assert found == [["t/0", "t/1"], ["t/2", "t/3"], ["t/4", "t/5"]]


def test_a_large_partition_does_not_keep_small_ones_from_their_turn(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("t", 2)
    for _ in range(20):
        logs.write("t", 0, *[b"x" * 100] * 100)
    logs.write("t", 1, b"small")
    stream = Stream(logs, startingOffsets="earliest", maxBytesPerTrigger="30k")
    first, second = stream.batch(), stream.batch()
    assert first is not None
    assert second is not None
    assert "t/1" in {**first, **second}
    assert len({**first, **second}["t/0"]) < 1000


def test_a_batch_waits_for_so_many_offsets(logs: Logs) -> None:
    stream = Stream(
        logs, startingOffsets="earliest", minOffsetsPerTrigger="3", maxTriggerDelay="1h"
    )
    assert stream.batch() == {"t/0": offsets(0, 10), "t/1": offsets(0, 4)}
    logs.write("t", 0, b"x", b"y")
    assert stream.batch() is None
    logs.write("t", 1, b"z")
    assert stream.batch() == {"t/0": [10, 11], "t/1": [4]}


def test_but_not_for_ever(logs: Logs) -> None:
    stream = Stream(logs, minOffsetsPerTrigger="100", maxTriggerDelay="0s")
    logs.write("t", 0, b"x")
    assert stream.batch() == {"t/0": [10]}


def test_available_now_reads_what_was_there_within_the_limits(logs: Logs) -> None:
    stream = Stream(
        logs, startingOffsets="earliest", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="9"
    )
    stream.reader.prepareForTriggerAvailableNow()
    logs.write("t", 0, b"too late")
    logs.topic("u")
    logs.write("u", 0, b"too late as well")
    found: Places = {}
    while batch := stream.batch():
        for name, some in batch.items():
            found.setdefault(name, []).extend(some)
    assert found == {"t/0": offsets(0, 10), "t/1": offsets(0, 4)}


def test_topics_and_partitions_that_appear_are_read_from_their_start(logs: Logs) -> None:
    stream = Stream(logs, subscribePattern="^[tu]$")
    logs.topic("u")
    logs.write("u", 0, b"x", b"y")
    logs.topic("other")
    logs.write("other", 0, b"not this one")
    assert stream.batch() == {"u/0": [0, 1]}
    logs.store.grow_topic("t", 3, logs.now_ms)
    logs.write("t", 2, b"z")
    assert stream.batch() == {"t/2": [0]}


def test_a_restart_continues_after_the_last_batch_and_reads_one_again_as_it_was(logs: Logs) -> None:
    first = Stream(logs, startingOffsets="earliest", maxOffsetsPerTrigger="7")
    before = first.offset
    read = first.batch()
    again = Stream(logs, offset=first.offset, maxOffsetsPerTrigger="7")
    logs.write("t", 0, b"x")
    assert again.read(before, first.offset) == read
    assert again.batch() == {"t/0": offsets(5, 10), "t/1": [2]}


def test_the_lag_is_reported(logs: Logs) -> None:
    stream = Stream(logs, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    stream.batch()
    assert stream.reader.reportLatestOffset() == {"t": {"0": 10, "1": 4}}
    logs.write("t", 0, b"x")
    stream.batch()  # Spark asks for both in each trigger
    assert stream.reader.reportLatestOffset() == {"t": {"0": 11, "1": 4}}


def lose_the_begin(logs: Logs) -> None:
    write_offsets(
        PosixDisk(str(logs.path)), LOG_START_OFFSET_CHECKPOINT, {TopicPartition("t", 0): 12}
    )


def lose_a_partition(logs: Logs) -> None:
    shutil.rmtree(logs.path / "t-0")


def lose_the_end(logs: Logs) -> None:
    (log,) = logs.path.glob("t-0/*.log")
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 3])


@pytest.mark.parametrize(
    ("happens", "text", "left"),
    [
        (lose_the_begin, "t/0: offsets 10 to 11 are gone", {"t/0": [12, 13], "t/1": [4]}),
        (lose_a_partition, "t/0 is gone", {"t/1": [4]}),
        (lose_the_end, "t/0: the log ends at 0, but was read up to 9", {"t/1": [4]}),
    ],
)
@pytest.mark.allow_log("continuing with what is left")
def test_what_is_gone_stops_it_or_not(
    logs: Logs, happens: Callable[[Logs], None], text: str, left: Places
) -> None:
    strict, lax = Stream(logs), Stream(logs, failOnDataLoss="false")
    logs.write("t", 0, b"a", b"b", b"c", b"d")
    logs.write("t", 1, b"e")
    happens(logs)
    with pytest.raises(DataLossError, match=text):
        strict.batch()
    assert lax.batch() == left
    assert lax.batch() is None


@pytest.mark.expect_log("t/0: offsets 2 to 11 are gone")
def test_what_is_gone_is_passed_over_in_one_batch(logs: Logs) -> None:
    options = {"assign": '{"t": [0]}', "failOnDataLoss": "false", "maxOffsetsPerTrigger": "2"}
    logs.write("t", 0, b"a", b"b", b"c", b"d")
    lose_the_begin(logs)
    stream = Stream(logs, {"t": {"0": 2}}, **options)
    assert stream.batch() == {"t/0": [12, 13]}


def test_a_topic_that_is_not_asked_for_any_more_is_named_so(logs: Logs) -> None:
    logs.topic("u")
    logs.write("u", 0, b"x")
    before = Stream(logs, subscribe="t,u")
    after = Stream(logs, before.offset, subscribe="t")
    logs.write("t", 0, b"y")
    with pytest.raises(DataLossError, match="u/0 was read up to offset 0, but the options do not"):
        after.batch()


# With a JVM


def read_now(table: "DataFrame", directory: Path, **trigger: bool) -> list[list[int]]:
    """Run a query to its end; the offsets of each of its batches."""
    batches: list[list[int]] = []

    def note(batch: "DataFrame", _number: int) -> None:
        batches.append(sorted(row.offset for row in batch.collect()))

    query = (
        table.writeStream.foreachBatch(note)
        .option("checkpointLocation", str(directory))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    assert query.awaitTermination(300)
    return batches


@pytest.fixture
def table(logs: Logs, spark: "SparkSession") -> "DataFrame":
    return (
        spark.readStream.format("logfs")
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "10")
        .schema("topic string, offset long")
        .load(str(logs.path))
    )


def test_spark_continues_from_its_checkpoint(
    logs: Logs, table: "DataFrame", tmp_path: Path
) -> None:
    assert [len(batch) for batch in read_now(table, tmp_path / "checkpoint")] == [9, 5]
    logs.write("t", 1, b"x", b"y")
    assert read_now(table, tmp_path / "checkpoint") == [[4, 5]]
    offset = (tmp_path / "checkpoint" / "offsets" / "2").read_text().splitlines()[-1]
    assert without_ids(json.loads(offset)) == {"t": {"0": 10, "1": 6}}
    positions = read_checkpoint(tmp_path / "checkpoint")
    assert {str(one): at.offset for one, at in positions.items()} == {"t/0": 10, "t/1": 6}


def test_spark_reads_all_of_it_once(table: "DataFrame", tmp_path: Path) -> None:
    assert [len(batch) for batch in read_now(table, tmp_path / "once", once=True)] == [14]


def test_a_listener_reports_the_lag_after_each_batch(
    spark: "SparkSession", table: "DataFrame", tmp_path: Path
) -> None:
    from logfs.spark.lag import LagListener, QueryLag

    found: list[QueryLag] = []
    listener = LagListener(found.append)
    spark.streams.addListener(listener)
    try:
        query = (
            table.writeStream.format("noop").queryName("copy").trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        )  # fmt: skip
        assert query.awaitTermination(300)
        wait_until(lambda: len(found) >= 2, "two batches were reported")
    finally:
        spark.streams.removeListener(listener)
    assert [(one.query, one.batch, one.rows, one.total) for one in found[:2]] == [
        ("copy", 0, 9, 5),
        ("copy", 1, 5, 0),
    ]
    assert str(found[0]) == "copy: batch 0, 9 rows, lag 5"
