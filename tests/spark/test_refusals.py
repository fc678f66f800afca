"""Options and paths that make no sense are refused in one line that says what would."""

import json
from datetime import UTC
from typing import TYPE_CHECKING

import pytest

from logfs.errors import (
    BadSelectorError,
    InvalidConfigError,
    LogfsError,
    NoDataDirectoryError,
    NoSuchPartitionError,
    NoSuchTopicError,
    UnknownNameError,
)
from logfs.spark.options import parse_options
from tests.spark.logs import START_MS, Logs
from tests.spark.reading import places

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """``clicks`` with ten records."""
    logs = Logs(tmp_path_factory.mktemp("data"))
    logs.topic("clicks")
    logs.write("clicks", 0, *(b"click %d" % n for n in range(10)))
    logs.close()
    return logs


def each(**partitions: int) -> str:
    """``clicks=3`` as the options want it."""
    return json.dumps({topic: {"0": number} for topic, number in partitions.items()})


@pytest.mark.parametrize("option", ["owner", "location"])
def test_a_table_of_the_catalog_is_explained(logs: Logs, option: str) -> None:
    with pytest.raises(InvalidConfigError, match="use CREATE TEMPORARY VIEW"):
        places(logs.path, **{option: "x"})


def test_a_table_of_the_catalog_with_a_schema_is_explained() -> None:
    with pytest.raises(InvalidConfigError, match="use CREATE TEMPORARY VIEW"):
        parse_options({}, UTC, is_stream=False)


@pytest.mark.expect_log("startingTimestamp 1700000000 is a time in January or February 1970")
@pytest.mark.expect_log("in seconds it would be 2023-11-14T22:13:20+00:00")
def test_a_time_in_seconds_is_warned_of(logs: Logs) -> None:
    places(logs.path, subscribe="clicks", startingTimestamp="1700000000")


@pytest.mark.expect_log("startingOffsetsByTimestamp 1700000000 is a time in")
def test_a_time_in_seconds_of_a_partition_is_warned_of(logs: Logs) -> None:
    places(logs.path, subscribe="clicks", startingOffsetsByTimestamp=each(clicks=1_700_000_000))


@pytest.mark.parametrize(
    ("address", "options", "error", "text"),
    [
        (
            "",
            {"subscribe": "a", "assign": '{"a": [0]}'},
            InvalidConfigError,
            "both say what to read",
        ),
        ("", {"subscribe": " , "}, InvalidConfigError, "names no topic"),
        ("", {"subscribe": "orders,none"}, NoSuchTopicError, "there is no topic none, orders"),
        ("", {"subscribePattern": "("}, InvalidConfigError, "no regular expression"),
        ("", {"assign": "[1]"}, InvalidConfigError, "expected JSON such as"),
        ("", {"assign": '{"clicks": [7]}'}, NoSuchPartitionError, "no partition clicks/7"),
        (
            "",
            {"subscribe": "clicks", "startingOffsets": "latest"},
            InvalidConfigError,
            "after which a batch reads nothing",
        ),
        (
            "",
            {"subscribe": "clicks", "startingOffsets": each(clicks=-1)},
            InvalidConfigError,
            "after which",
        ),
        (
            "",
            {"subscribe": "clicks", "endingOffsets": "earliest"},
            InvalidConfigError,
            "before which there is nothing",
        ),
        (
            "",
            {"subscribe": "clicks", "startingOffsets": "5"},
            InvalidConfigError,
            "expected earliest, latest or JSON",
        ),
        (
            "",
            {"subscribe": "clicks", "startingOffsets": each(clicks=-3)},
            InvalidConfigError,
            "expected earliest, latest or JSON",
        ),
        (
            "",
            {"subscribe": "clicks", "startingOffsets": each(other=1)},
            InvalidConfigError,
            "names other/0, read are clicks/0",
        ),
        (
            "",
            {
                "subscribe": "clicks",
                "startingOffsets": each(clicks=5),
                "endingOffsets": each(clicks=4),
            },
            InvalidConfigError,
            "5 is after endingOffsets 4",
        ),
        (
            "",
            {"subscribe": "clicks", "startingTimestamp": str(START_MS + 99)},
            InvalidConfigError,
            "no record is at or after",
        ),
        (
            "",
            {"subscribe": "clicks", "startingTimestamp": "today"},
            InvalidConfigError,
            "expected milliseconds",
        ),
        (
            "",
            {"startingOffsetsByTimestampStrategy": "first"},
            InvalidConfigError,
            "expected error or latest",
        ),
        ("", {"from": "lastweek"}, BadSelectorError, "from 'lastweek': not a point"),
        ("", {"from": "byte=7"}, BadSelectorError, "a byte is no place in a table"),
        (
            "",
            {"from": "-1h", "startingOffsets": "earliest"},
            InvalidConfigError,
            "both say where to begin",
        ),
        (
            "",
            {"minPartitions": "0"},
            InvalidConfigError,
            "minPartitions '0': expected a positive number",
        ),
        ("", {"maxRecordsPerPartition": "x"}, InvalidConfigError, "maxRecordsPerPartition 'x'"),
        ("", {"failOnDataLoss": "maybe"}, InvalidConfigError, "expected true or false"),
        (
            "",
            {"kafka_isolation_level": "dirty"},
            InvalidConfigError,
            "expected read_uncommitted, read_committed",
        ),
        (
            "",
            {"kafka_auto_offset_reset": "latest"},
            InvalidConfigError,
            "kafka.auto.offset.reset is not supported",
        ),
        (
            "",
            {"endingOffset": "latest"},
            InvalidConfigError,
            "no option endingOffset; did you mean endingOffsets",
        ),
        ("clicks", {"subscribe": "clicks"}, InvalidConfigError, "the path names the topic clicks"),
        (
            "clicks/0@-1h",
            {"from": "-2h"},
            InvalidConfigError,
            "the path and from both say where to begin",
        ),
        (
            "clicks/0@-1h..now",
            {"endingOffsets": "latest"},
            InvalidConfigError,
            "both say where to end",
        ),
        ("clicks/0.jsonl", {}, UnknownNameError, "a table has no view .jsonl"),
        ("clicks/0@byte=7", {}, BadSelectorError, "use offset=N"),
        ("clicks/01", {}, UnknownNameError, "no such name"),
        ("orderz", {}, NoSuchTopicError, "there is no topic orderz"),
        ("click", {}, NoSuchTopicError, "no topic click; did you mean clicks?"),
        ("clicks/7", {}, NoSuchPartitionError, "there is no partition clicks/7"),
        ("/../..", {}, NoDataDirectoryError, "expected a data directory"),
    ],
)
def test_refusals(
    logs: Logs, address: str, options: dict[str, str], error: type[LogfsError], text: str
) -> None:
    with pytest.raises(error) as caught:
        places(f"{logs.path}/{address}" if address else logs.path, **options)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["hdfs://nn/logs", "s3a://bucket/logs"])
def test_a_url_is_not_the_path_of_a_directory(url: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"{url} is a URL; expected the path of a dir"):
        places(url)


def test_a_path_may_begin_with_file(logs: Logs) -> None:
    assert places(f"file://{logs.path}") == places(f"file:{logs.path}") == places(logs.path)
