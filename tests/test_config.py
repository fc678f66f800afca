import dataclasses
import pickle
from enum import Enum
from typing import Any, NamedTuple

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from logfs.config import (
    STORE_KEYS,
    TOPIC_KEYS,
    CleanupPolicy,
    CompressionType,
    StoreConfig,
    TimestampType,
    TopicConfig,
    format_properties,
    parse_properties,
)
from logfs.errors import InvalidConfigError

MAX_INT = 2147483647
MAX_LONG = 9223372036854775807
MIN_INT = -2147483648
MIN_LONG = -9223372036854775808


class Row(NamedTuple):
    """A row of the format reference, sections 11.1 and 11.2, copied by hand."""

    key: str
    type_name: str
    default: str | None
    valid: tuple[str, ...]
    invalid: tuple[str, ...]
    broker: tuple[str, ...] = ()


def whole(key: str, type_name: str, default: int | None, lower: int | None, *broker: str) -> Row:
    least = {"int": MIN_INT, "long": MIN_LONG}[type_name] if lower is None else lower
    most = {"int": MAX_INT, "long": MAX_LONG}[type_name]
    text = None if default is None else str(default)
    return Row(key, type_name, text, (str(least), str(most)), outside(least, most), broker)


def outside(least: int, most: int) -> tuple[str, ...]:
    return (str(least - 1), str(most + 1))


def boolean(key: str, default: str, *broker: str) -> Row:
    return Row(key, "boolean", default, ("true", "false"), ("yes", "1", ""), broker)


TOPIC_ROWS = [
    Row(
        "cleanup.policy",
        "list",
        "delete",
        ("delete", "compact", "compact,delete"),
        ("deleted", "delete,", "compact;delete", "*"),
        ("log.cleanup.policy",),
    ),
    Row(
        "compression.type",
        "string",
        "producer",
        ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ("none", "LZ4", ""),
        ("compression.type",),
    ),
    Row(
        "compression.gzip.level",
        "int",
        "-1",
        ("-1", "1", "9"),
        ("0", "10", "-2"),
        ("compression.gzip.level",),
    ),
    Row("compression.lz4.level", "int", "9", ("1", "17"), ("0", "18"), ("compression.lz4.level",)),
    Row(
        "compression.zstd.level",
        "int",
        "3",
        ("-131072", "22"),
        ("-131073", "23"),
        ("compression.zstd.level",),
    ),
    whole("delete.retention.ms", "long", 86400000, 0, "log.cleaner.delete.retention.ms"),
    whole("file.delete.delay.ms", "long", 60000, 0, "log.segment.delete.delay.ms"),
    whole("flush.messages", "long", 2**63 - 1, 1, "log.flush.interval.messages"),
    whole(
        "flush.ms",
        "long",
        2**63 - 1,
        0,
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
    ),
    whole("index.interval.bytes", "int", 4096, 0, "log.index.interval.bytes"),
    whole("max.compaction.lag.ms", "long", 2**63 - 1, 1, "log.cleaner.max.compaction.lag.ms"),
    whole("max.message.bytes", "int", 1048588, 0, "message.max.bytes"),
    Row(
        "message.timestamp.type",
        "string",
        "CreateTime",
        ("CreateTime", "LogAppendTime"),
        ("createtime", "NoTimestampType", ""),
        ("log.message.timestamp.type",),
    ),
    whole(
        "message.timestamp.before.max.ms",
        "long",
        2**63 - 1,
        0,
        "log.message.timestamp.before.max.ms",
    ),
    whole(
        "message.timestamp.after.max.ms", "long", 3600000, 0, "log.message.timestamp.after.max.ms"
    ),
    Row(
        "min.cleanable.dirty.ratio",
        "double",
        "0.5",
        ("0.0", "1.0", "0.01"),
        ("-0.1", "1.1", "nan", "half"),
        ("log.cleaner.min.cleanable.ratio",),
    ),
    whole("min.compaction.lag.ms", "long", 0, 0, "log.cleaner.min.compaction.lag.ms"),
    whole("min.insync.replicas", "int", 1, 1, "min.insync.replicas"),
    boolean("preallocate", "false", "log.preallocate"),
    whole("retention.bytes", "long", -1, None, "log.retention.bytes"),
    whole(
        "retention.ms",
        "long",
        604800000,
        -1,
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    ),
    whole("segment.bytes", "int", 1073741824, 1048576, "log.segment.bytes"),
    whole("internal.segment.bytes", "int", None, None),
    whole("segment.index.bytes", "int", 10485760, 4, "log.index.size.max.bytes"),
    whole("segment.jitter.ms", "long", 0, 0, "log.roll.jitter.ms", "log.roll.jitter.hours"),
    whole("segment.ms", "long", 604800000, 1, "log.roll.ms", "log.roll.hours"),
    boolean("unclean.leader.election.enable", "false", "unclean.leader.election.enable"),
    *(
        Row(
            f"{side}.replication.throttled.replicas",
            "list",
            "",
            ("*", "0:1,1:2", ""),
            ("0", "0:1,*", "a:b", "0:1,"),
        )
        for side in ("leader", "follower")
    ),
    boolean("remote.storage.enable", "false"),
    boolean("remote.log.copy.disable", "false"),
    boolean("remote.log.delete.on.disable", "false"),
    whole("local.retention.ms", "long", -2, -2, "log.local.retention.ms"),
    whole("local.retention.bytes", "long", -2, -2, "log.local.retention.bytes"),
    boolean("logfs.remote.freshness", "true", "logfs.remote.freshness"),
    Row(
        "logfs.sealed.compression.type",
        "string",
        "uncompressed",
        ("uncompressed", "zstd", "lz4", "snappy", "gzip"),
        ("producer", "ZSTD", ""),
        ("logfs.sealed.compression.type",),
    ),
    whole("logfs.quota.bytes", "long", -1, -1, "logfs.quota.bytes"),
    Row(
        "logfs.quota.producer.byte.rate",
        "long",
        "-1",
        ("-1", "1", "9223372036854775807"),
        ("0", "-2", "9223372036854775808", "x"),
        ("logfs.quota.producer.byte.rate",),
    ),
]

STORE_ROWS = [
    whole("num.partitions", "int", 1, 1),
    whole("num.recovery.threads.per.data.dir", "int", 2, 1),
    whole("log.retention.check.interval.ms", "long", 300000, 1),
    whole("log.retention.total.bytes", "long", -1, -1),
    whole("log.retention.keep.free.bytes", "long", -1, -1),
    whole("log.flush.scheduler.interval.ms", "long", 2**63 - 1, 1),
    whole("log.flush.offset.checkpoint.interval.ms", "int", 60000, 0),
    whole("log.flush.start.offset.checkpoint.interval.ms", "int", 60000, 0),
    whole("log.initial.task.delay.ms", "long", 30000, 0),
    whole("log.segment.delete.delay.ms", "long", 60000, 0),
    whole("replica.high.watermark.checkpoint.interval.ms", "long", 5000, 1),
    whole("logfs.decompressed.max.bytes", "int", 134_217_728, 1 << 20),
    boolean("log.cleaner.enable", "true"),
    # With two threads and more the default buffer would have to be larger: see its own test.
    Row("log.cleaner.threads", "int", "1", ("0", "127"), ("-1", "two")),
    Row(
        "log.cleaner.dedupe.buffer.size",
        "long",
        "134217728",
        ("1048577", str(MAX_LONG)),
        ("1048576", "-1", str(MAX_LONG + 1)),
    ),
    whole("log.cleaner.io.buffer.size", "int", 524288, 0),
    Row("log.cleaner.io.buffer.load.factor", "double", "0.9", ("0.1", "1.0"), ("", "inf")),
    Row(
        "log.cleaner.io.max.bytes.per.second",
        "double",
        "1.7976931348623157e+308",
        ("1.0", "1000000.0"),
        ("1e309", "fast"),
    ),
    whole("log.cleaner.backoff.ms", "long", 15000, 0),
    whole("producer.id.expiration.ms", "int", 86400000, 1),
    whole("producer.id.expiration.check.interval.ms", "int", 600000, 1),
    whole("offsets.retention.minutes", "int", 10080, 1),
    whole("offsets.retention.check.interval.ms", "long", 600000, 1),
]


def cases(rows: list[Row], field: str) -> list[tuple[str, str]]:
    return [(row.key, text) for row in rows for text in getattr(row, field)]


def make_topic(**properties: str) -> TopicConfig:
    return TopicConfig.from_properties({k.replace("_", "."): v for k, v in properties.items()})


class TestTables:
    def test_all_keys_are_there_and_no_others(self) -> None:
        assert sorted(TOPIC_KEYS) == sorted(row.key for row in TOPIC_ROWS)
        assert sorted(STORE_KEYS) == sorted(row.key for row in STORE_ROWS)

    @pytest.mark.parametrize("row", TOPIC_ROWS + STORE_ROWS, ids=lambda row: row.key)
    def test_rows(self, row: Row) -> None:
        key = TOPIC_KEYS.get(row.key) or STORE_KEYS[row.key]
        config = TopicConfig() if row.key in TOPIC_KEYS else StoreConfig()
        assert key.key == row.key
        assert key.kind.type_name == row.type_name
        assert config.get(row.key) == (row.default or "")
        assert config.effective().get(row.key) == row.default
        assert key.synonyms == row.broker
        assert key.meaning
        assert "\n" not in key.meaning
        assert getattr(config, row.key.replace(".", "_")) == key.default

    def test_fields_have_the_types_they_declare(self) -> None:
        config = TopicConfig()
        assert config.cleanup_policy == frozenset({CleanupPolicy.DELETE})
        assert config.compression_type is CompressionType.PRODUCER
        assert config.message_timestamp_type is TimestampType.CREATE_TIME
        assert config.internal_segment_bytes is None
        assert config.min_cleanable_dirty_ratio == 0.5
        assert config.preallocate is False
        assert config.leader_replication_throttled_replicas == ()
        config = make_topic(
            cleanup_policy=" compact , delete ",
            compression_type="lz4",
            preallocate=" TRUE",
            segment_ms=" +007 ",
            min_cleanable_dirty_ratio="1e-2",
            internal_segment_bytes="65536",
            leader_replication_throttled_replicas="0:1, 1:2",
        )
        assert config.cleanup_policy == frozenset(CleanupPolicy)
        assert isinstance(config.compression_type, Enum)
        assert config.preallocate is True
        assert config.segment_ms == 7
        assert config.min_cleanable_dirty_ratio == 0.01
        assert config.internal_segment_bytes == 65536
        assert config.leader_replication_throttled_replicas == ("0:1", "1:2")


class TestValues:
    @pytest.mark.parametrize(("key", "text"), cases(TOPIC_ROWS, "valid"))
    def test_valid_for_a_topic(self, key: str, text: str) -> None:
        config = TopicConfig.from_properties({key: text})
        assert config.get(key) == text
        assert config.overrides() == {key: text}

    @pytest.mark.parametrize(("key", "text"), cases(TOPIC_ROWS, "invalid"))
    def test_invalid_for_a_topic(self, key: str, text: str) -> None:
        with pytest.raises(InvalidConfigError) as caught:
            TopicConfig.from_properties({key: text})
        assert str(caught.value).startswith(f"{key}={text!r}: expected ")

    @pytest.mark.parametrize(("key", "text"), cases(STORE_ROWS, "valid"))
    def test_valid_for_a_store(self, key: str, text: str) -> None:
        config = StoreConfig.from_properties({key: text})
        assert config.get(key) == text
        assert config.overrides() == {key: text}

    @pytest.mark.parametrize(("key", "text"), cases(STORE_ROWS, "invalid"))
    def test_invalid_for_a_store(self, key: str, text: str) -> None:
        with pytest.raises(InvalidConfigError) as caught:
            StoreConfig.from_properties({key: text})
        assert str(caught.value).startswith(key + "=")
        assert ": expected " in str(caught.value)

    @pytest.mark.parametrize(
        "text",
        [
            *("", " ", "x", "1.0", "1e3", "0x10", "1_000_000", "1 000", "--1", "+-1", "1\n"),
            *("\n1", "\u0661", "\uff11", "\u00b2", "9" * 10_000, "1;", "None", "true", "1L"),
        ],
    )
    def test_what_is_no_whole_number(self, text: str) -> None:
        with pytest.raises(InvalidConfigError, match=r"^flush.ms=.*expected a whole number in \[0"):
            make_topic(flush_ms=text)

    @pytest.mark.parametrize(
        "text", ["", ".", "e5", "1e", "0,5", "NaN", "Infinity", "0.5f", "1_0", "\u0661", "0x1p-1"]
    )
    def test_what_is_no_number(self, text: str) -> None:
        with pytest.raises(InvalidConfigError, match=r"expected a number in \[0, 1\]"):
            make_topic(min_cleanable_dirty_ratio=text)

    @given(st.sampled_from(sorted(TOPIC_KEYS)), st.text() | st.integers().map(str))
    def test_any_text_is_taken_or_refused(self, key: str, text: str) -> None:
        try:
            config = TopicConfig.from_properties({key: text})
        except InvalidConfigError:
            return
        assert TopicConfig.from_properties(config.overrides()) == config

    @pytest.mark.parametrize(
        "values",
        [
            {"segment_bytes": 1048575},
            {"segment_ms": True},
            {"segment_ms": 1.0},
            {"segment_ms": "604800000"},
            {"segment_ms": None},
            {"cleanup_policy": "delete"},
            {"cleanup_policy": frozenset({"forget"})},
            {"compression_type": "brotli"},
            {"min_cleanable_dirty_ratio": "0.25"},
            {"leader_replication_throttled_replicas": ["0:1"]},
        ],
        ids=str,
    )
    def test_there_is_no_instance_with_an_invalid_value(self, values: dict[str, Any]) -> None:
        key = next(iter(values)).replace("_", ".")
        with pytest.raises(InvalidConfigError, match=f"^{key}=.*: expected "):
            TopicConfig(**values)
        with pytest.raises(InvalidConfigError):
            dataclasses.replace(TopicConfig(), **values)

    def test_lags_go_together(self) -> None:
        with pytest.raises(InvalidConfigError) as caught:
            make_topic(min_compaction_lag_ms="10", max_compaction_lag_ms="9")
        assert str(caught.value) == (
            "max.compaction.lag.ms=9: expected at least min.compaction.lag.ms, which is 10"
        )
        make_topic(min_compaction_lag_ms="10", max_compaction_lag_ms="10")

    @given(
        st.dictionaries(st.sampled_from(sorted(TOPIC_KEYS)), st.integers(0, 5)),
        st.dictionaries(st.sampled_from(sorted(TOPIC_KEYS)), st.integers(0, 5)),
    )
    def test_round_trip_through_a_file(
        self, picks: dict[str, int], base_picks: dict[str, int]
    ) -> None:
        texts = {row.key: row.valid for row in TOPIC_ROWS}

        def choose(picks: dict[str, int]) -> dict[str, str]:
            chosen = {key: texts[key][i % len(texts[key])] for key, i in picks.items()}
            return {k: v for k, v in chosen.items() if not k.endswith("compaction.lag.ms")}

        try:
            base = TopicConfig.from_properties(choose(base_picks))
            config = TopicConfig.from_properties(choose(picks), base)
        except InvalidConfigError:  # settings of tiered storage that do not go together
            reject()
        text = format_properties(config.overrides())
        again = TopicConfig.from_properties(parse_properties(text), base)
        assert again == config
        assert again.overrides() == config.overrides() == choose(picks)
        assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("row", "synonym"),
    [(row, name) for row in TOPIC_ROWS for name in row.broker],
    ids=lambda value: value if isinstance(value, str) else value.key,
)
def test_every_synonym_gives_a_default(row: Row, synonym: str) -> None:
    text, factor = row.valid[-1], 1
    if synonym.endswith((".hours", ".minutes")):
        text, factor = "3", 3600000 if synonym.endswith(".hours") else 60000
    config = StoreConfig.from_properties({synonym: text})
    expected = text if factor == 1 else str(3 * factor)
    assert config.topic_defaults() == {row.key: expected}
    assert config.overrides() == {synonym: text}
    assert StoreConfig.from_properties(config.overrides()) == config
    base = TopicConfig.from_properties(config.topic_defaults())
    assert base.get(row.key) == expected
