"""The options of the data source: their names, defaults and refusals. Pure but for the path.

Names are those of Spark's Kafka source, in any case, and a few more. Options that only a network
needs are accepted and ignored. An option that neither knows is refused, as a typing error.

Source: Spark KafkaSourceProvider, and its documentation.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import tzinfo

from logfs.errors import InvalidConfigError
from logfs.library.selection import Selection
from logfs.library.table_path import LogsPath, parse_path
from logfs.log.reading.address import Earliest, Latest
from logfs.spark.bounds import Bound, check_order, parse_ending, parse_starting
from logfs.spark.limits import StreamLimits, parse_limits
from logfs.spark.selection import ASSIGN, PATTERN, SUBSCRIBE, parse_selection
from logfs.spark.values import flag, positive
from logfs.types import IsolationLevel, TopicPartition

OPTIONS: tuple[tuple[str, str, str], ...] = (
    ("path", "(required)", "data directories with commas in between, or one address"),
    (SUBSCRIBE, "", "topics with commas in between"),
    (PATTERN, "", "a regular expression, found anywhere in a topic's name"),
    (ASSIGN, "", 'partitions: {"orders": [0, 1]}'),
    ("from", "", "where to begin: -1h, 2026-11-20, offset=-100, earliest, latest"),
    ("to", "", "where a batch ends, exclusive"),
    (
        "startingOffsets",
        "earliest; a stream: latest",
        'earliest, latest or {"orders": {"0": 23}}; -2 earliest, -1 latest',
    ),
    ("endingOffsets", "latest", "the same, exclusive; not of a stream"),
    ("startingTimestamp", "", "milliseconds since the epoch"),
    ("endingTimestamp", "", "the same; not of a stream"),
    ("startingOffsetsByTimestamp", "", '{"orders": {"0": 1700000000000}}'),
    ("endingOffsetsByTimestamp", "", "the same; not of a stream"),
    ("startingOffsetsByTimestampStrategy", "error", "if no record is that new: error or latest"),
    ("failOnDataLoss", "true", "stop when records are gone that were to be read"),
    ("minPartitions", "", "at least so many tasks"),
    ("maxRecordsPerPartition", "", "at most so many offsets a task"),
    ("maxOffsetsPerTrigger", "", "at most so many offsets a batch of a stream"),
    ("maxBytesPerTrigger", "", "about so many bytes a batch of a stream, in whole record batches"),
    ("minOffsetsPerTrigger", "", "a batch of a stream waits for so many offsets"),
    ("maxTriggerDelay", "15m", "but no longer than this"),
    ("includeHeaders", "false", "a column headers"),
    ("contains", "", "only records whose value contains this text"),
    ("valueFormat", "bytes", "bytes, or json: the columns are members of the values"),
    ("table", "records", "records, or partitions: a row for each, with its offsets and its size"),
    (
        "kafka.isolation.level",
        "read_uncommitted",
        "read_uncommitted, read_committed or high_watermark",
    ),
)
"""Rows (name, default, meaning)."""

_WITHOUT_MEANING = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_OF_CREATE_TABLE = (
    "Spark gives a source no options of CREATE TABLE; use CREATE TEMPORARY VIEW … USING logfs "
    "OPTIONS (path '…')"
)
_REFUSED = {
    "kafka.auto.offset.reset": "where to begin is said by startingOffsets",
    "kafka.key.deserializer": "keys are read as bytes: cast them",
    "kafka.value.deserializer": "values are read as bytes: cast them",
    "kafka.enable.auto.commit": "no offsets are committed",
    "kafka.interceptor.classes": "nothing can come between",
    **dict.fromkeys(("owner", "location"), _OF_CREATE_TABLE),
}
_OF_A_BATCH = ("to", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_KAFKAS = "kafka."
_KNOWN = [*(name for name, _, _ in OPTIONS), *_WITHOUT_MEANING]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What is to be read.

    Attributes:
        fails_on_loss: Stop when records are gone that were to be read.
        min_partitions: Tasks at least; None: as many as there is work for.
        max_records: Offsets of a task at most; None: any number.
        contains: Bytes in the value of each record; empty: anything.
    """

    roots: tuple[str, ...]
    selection: Selection
    start: Bound
    end: Bound
    level: IsolationLevel
    fails_on_loss: bool
    min_partitions: int | None
    max_records: int | None
    contains: bytes
    limits: StreamLimits


def parse_options(options: Mapping[str, str], zone: tzinfo, *, is_stream: bool) -> ReadOptions:
    """Parse the options of a table or stream.

    Raises:
        LogfsError: One is unknown, does not parse, or does not go with another.
        OSError: The path cannot be read.
    """
    given = named(options, _KNOWN, _REFUSED)
    if is_stream:
        if is_of_partitions(options):
            raise InvalidConfigError("table=partitions is no stream: use spark.read")
        for name in _OF_A_BATCH:
            if name in given:
                raise InvalidConfigError(f"{name} is no option of a stream, which has no end")
    if not options:  # of a table that was created with a schema
        raise InvalidConfigError(
            f'a path is missing: expected .load("/var/lib/logfs"). {_OF_CREATE_TABLE}'
        )
    source = parse_path(given.get("path"), zone)
    selection = parse_selection(given)
    default = Latest() if is_stream else Earliest()
    start = parse_starting(given, zone, default, is_stream=is_stream)
    end = parse_ending(given, zone)
    if source.topic is not None:
        selection, start, end = _of_address(source, given, selection, (start, end), is_stream)
    check_order(start, end)
    return ReadOptions(
        roots=source.roots,
        selection=selection or Selection(),
        start=start,
        end=end,
        level=_level(given),
        fails_on_loss=flag(given, "failOnDataLoss", default=True),
        min_partitions=positive(given, "minPartitions"),
        max_records=positive(given, "maxRecordsPerPartition"),
        contains=given.get("contains", "").encode(),
        limits=parse_limits(given),
    )


def is_of_partitions(options: Mapping[str, str]) -> bool:
    """Return whether the table is that of partitions; raise InvalidConfigError if of neither."""
    return _is_second(options, "table", "records", "partitions")


def is_of_json(options: Mapping[str, str]) -> bool:
    """Return whether values are JSON; raise InvalidConfigError for another format than bytes."""
    return _is_second(options, "valueFormat", "bytes", "json")


def _is_second(options: Mapping[str, str], name: str, usual: str, other: str) -> bool:
    text = named(options, _KNOWN, _REFUSED).get(name, usual).strip().lower()
    if text not in {usual, other}:
        raise InvalidConfigError(f"{name} {text!r}: expected {usual} or {other}")
    return text == other


def has_headers(options: Mapping[str, str]) -> bool:
    """Return whether a column of headers is asked for."""
    return flag(named(options, _KNOWN, _REFUSED), "includeHeaders", default=False)


def named(
    options: Mapping[str, str], known: Iterable[str], refused: Mapping[str, str]
) -> dict[str, str]:
    """Return options under the names they are documented with.

    Args:
        known: The names that mean something, or may be given all the same; kafka.* may be too.
        refused: Why some are not supported, by their names in lower case.

    Raises:
        InvalidConfigError: One is refused or unknown.
    """
    names = {name.lower(): name for name in known}
    given: dict[str, str] = {}
    for name, text in options.items():
        lower = name.lower()
        if lower in refused:
            raise InvalidConfigError(f"{name} is not supported: {refused[lower]}")
        if lower not in names and not lower.startswith(_KAFKAS):
            near = difflib.get_close_matches(lower, names, 1)
            hint = f"; did you mean {names[near[0]]}?" if near else ""
            raise InvalidConfigError(f"there is no option {name}{hint}")
        given[names.get(lower, lower)] = text
    return given


def _level(given: Mapping[str, str]) -> IsolationLevel:
    name = "kafka.isolation.level"
    text = given.get(name, IsolationLevel.READ_UNCOMMITTED).strip().lower()
    try:
        return IsolationLevel(text)
    except ValueError:
        raise InvalidConfigError(
            f"{name} {given[name]!r}: expected {', '.join(IsolationLevel)}"
        ) from None


def _of_address(
    source: LogsPath,
    given: Mapping[str, str],
    selection: Selection | None,
    bounds: tuple[Bound, Bound],
    is_stream: bool,
) -> tuple[Selection, Bound, Bound]:
    """Return what an address in the path says; options must not say it again."""
    if selection is not None:
        raise InvalidConfigError(
            f"the path names the topic {source.topic}: leave out subscribe, subscribePattern and "
            "assign, or give the data directory alone"
        )
    topic, address, (start, end) = source.topic or "", source.address, bounds
    if address is None:
        return Selection(frozenset({topic})), start, end
    chosen = Selection(partitions=frozenset({TopicPartition(topic, address.partition)}))
    if address.start is not None:
        said = [name for name in given if name == "from" or name.startswith("starting")]
        if said:
            raise InvalidConfigError(f"the path and {said[0]} both say where to begin")
        start = Bound("the path", address.start, None, is_selector=True)
    if address.end is not None:
        said = [name for name in given if name in _OF_A_BATCH]
        if said:
            raise InvalidConfigError(f"the path and {said[0]} both say where to end")
        if is_stream:
            raise InvalidConfigError("the path says where to end, but a stream has no end")
        end = Bound("the path", address.end, None, is_selector=True)
    return chosen, start, end
