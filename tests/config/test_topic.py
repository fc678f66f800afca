import dataclasses

import pytest

from logfs.config import TOPIC_KEYS, TopicConfig
from logfs.errors import InvalidConfigError


def make_topic(**properties: str) -> TopicConfig:
    return TopicConfig.from_properties({k.replace("_", "."): v for k, v in properties.items()})


def test_what_was_given_counts_even_if_it_is_the_default() -> None:
    assert TopicConfig().overrides() == {}
    assert make_topic(retention_ms="604800000").overrides() == {"retention.ms": "604800000"}
    assert TopicConfig(retention_ms=5).overrides() == {"retention.ms": "5"}
    assert TopicConfig(retention_ms=604800000).overrides() == {}


def test_equality_is_that_of_the_values_in_effect() -> None:
    assert make_topic(retention_ms="604800000") == TopicConfig()
    assert make_topic(retention_ms="5") == TopicConfig(retention_ms=5)
    assert hash(make_topic(retention_ms="5")) == hash(TopicConfig(retention_ms=5))
    assert make_topic(retention_ms="5") != TopicConfig()


def test_changes() -> None:
    config = make_topic(retention_ms="5", segment_ms="604800000")
    changed = config.with_changes({"retention.ms": None, "cleanup.policy": "compact"})
    assert changed.overrides() == {"cleanup.policy": "compact", "segment.ms": "604800000"}
    assert changed.retention_ms == 604800000
    assert config.overrides() == {"retention.ms": "5", "segment.ms": "604800000"}
    assert config.with_changes({}).overrides() == config.overrides()
    assert config.with_changes({"flush.ms": None}) == config
    with pytest.raises(InvalidConfigError, match=r"segment\.bytes"):
        config.with_changes({"segment.bytes": "1"})


def test_a_base_is_fallen_back_to_and_not_written() -> None:
    base = make_topic(retention_ms="5", segment_ms="6")
    config = TopicConfig.from_properties({"segment.ms": "7"}, base)
    assert (config.retention_ms, config.segment_ms) == (5, 7)
    assert config.overrides() == {"segment.ms": "7"}
    assert config.effective()["retention.ms"] == "5"
    back = config.with_changes({"segment.ms": None})
    assert back.segment_ms == 6
    assert back.overrides() == {}
    # Kafka's own default is an override where the store has another.
    assert dataclasses.replace(config, retention_ms=604800000).overrides() == {
        "retention.ms": "604800000",
        "segment.ms": "7",
    }


def test_unset_has_no_text() -> None:
    config = make_topic(internal_segment_bytes="65536")
    assert dataclasses.replace(config, internal_segment_bytes=None).overrides() == {}
    assert "internal.segment.bytes" not in TopicConfig().effective()


def test_effective_round_trip() -> None:
    config = make_topic(cleanup_policy="compact", internal_segment_bytes="65536")
    assert TopicConfig.from_properties(config.effective()) == config
    assert list(TopicConfig().effective()) == [
        key for key in TOPIC_KEYS if key != "internal.segment.bytes"
    ]


def test_segment_bytes() -> None:
    assert make_topic(segment_bytes="1048576").effective_segment_bytes == 1048576
    config = make_topic(segment_bytes="1048576", internal_segment_bytes="65536")
    assert config.effective_segment_bytes == 65536


def test_is_compacted() -> None:
    assert not TopicConfig().is_compacted
    assert make_topic(cleanup_policy="compact").is_compacted
    assert make_topic(cleanup_policy="delete,compact").is_compacted
    assert not make_topic(cleanup_policy="").is_compacted


def test_max_segment_ms() -> None:
    assert make_topic(segment_ms="9", max_compaction_lag_ms="5").max_segment_ms == 9
    config = make_topic(segment_ms="9", max_compaction_lag_ms="5", cleanup_policy="compact")
    assert config.max_segment_ms == 5
    assert config.with_changes({"segment.ms": "4"}).max_segment_ms == 4


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        ("producer", None),
        ("uncompressed", None),
        ("snappy", None),
        ("gzip", None),
        ("lz4", 9),
        ("zstd", 3),
    ],
)
def test_compression_level(codec: str, level: int | None) -> None:
    assert make_topic(compression_type=codec).compression_level == level


def test_levels_that_are_given() -> None:
    assert make_topic(compression_type="gzip", compression_gzip_level="6").compression_level == 6
    config = make_topic(compression_type="zstd", compression_zstd_level="-1")
    assert config.compression_level == -1


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("retention.mss", "did you mean retention.ms?"),
        ("segment_bytes", "did you mean segment.bytes?"),
        ("Retention.ms", "did you mean retention.ms?"),
        ("compresion.type", "did you mean compression.type?"),
        ("qqq", "the keys are those of Kafka 4.1"),
        ("", "the keys are those of Kafka 4.1"),
        ("log.retention.hours", "it is a broker's; the topic's is retention.ms"),
        ("message.max.bytes", "it is a broker's; the topic's is max.message.bytes"),
        ("message.format.version", "Kafka 4.0 removed it"),
        ("message.downconversion.enable", "Kafka 4.0 removed it"),
        ("message.timestamp.difference.max.ms", "set message.timestamp.before.max.ms and"),
    ],
)
def test_unknown_keys(key: str, hint: str) -> None:
    for change in ("1", None):
        with pytest.raises(InvalidConfigError) as caught:
            TopicConfig().with_changes({key: change})
        assert str(caught.value).startswith(f"{key!r}: no such topic setting; ")
        assert hint in str(caught.value)
    with pytest.raises(InvalidConfigError):
        TopicConfig.from_properties({key: "1"})
    with pytest.raises(InvalidConfigError):
        TopicConfig().get(key)
