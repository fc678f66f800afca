from logfs.config import TopicConfig, warnings

MAX_LONG = 9223372036854775807
DAY_MS = 86400000


def make_topic(**properties: str) -> TopicConfig:
    return TopicConfig.from_properties({k.replace("_", "."): v for k, v in properties.items()})


def test_the_defaults_are_fine() -> None:
    assert warnings(TopicConfig()) == []
    assert warnings(make_topic(cleanup_policy="compact")) == []
    assert warnings(make_topic(cleanup_policy="compact,delete")) == []
    assert warnings(make_topic(retention_ms="-1", min_insync_replicas="1")) == []


def test_segment_longer_than_retention() -> None:
    [warning] = warnings(make_topic(retention_ms="3600000", segment_ms="604800000"))
    assert warning.startswith("segment.ms=604800000 is longer than retention.ms=3600000: ")
    assert warning.endswith("set segment.ms=3600000 or less, or leave it out")
    assert warnings(make_topic(retention_ms="3600000", segment_ms="3600000")) == []
    assert warnings(make_topic(retention_ms="3600000", cleanup_policy="compact")) == []
    assert "set segment.ms=1 or less" in warnings(make_topic(retention_ms="0", segment_ms="2"))[0]
    both = {"cleanup.policy": "compact,delete", "max.compaction.lag.ms": "5", "segment.ms": "9"}
    assert warnings(TopicConfig.from_properties({**both, "retention.ms": "5"})) == []


def test_an_unset_segment_ms_is_limited_to_the_retention() -> None:
    config = make_topic(retention_ms="3600000")
    [warning] = warnings(config)
    assert warning.startswith("segment.ms=604800000 is longer than retention.ms=3600000: since")
    assert "rolled after 3600000 ms instead" in warning
    assert warning.endswith("set segment.ms=3600000 or less")
    assert config.max_segment_ms == 3_600_000
    assert config.with_changes({"segment.ms": "604800000"}).max_segment_ms == 604_800_000
    assert config.with_changes({"cleanup.policy": "compact"}).max_segment_ms == 604_800_000
    assert config.with_changes({"retention.ms": "-1"}).max_segment_ms == 604_800_000
    assert make_topic(retention_ms="0").max_segment_ms == 60_000, "or there would be no end of them"
    base = make_topic(segment_ms="604800000")
    assert TopicConfig.from_properties({"retention.ms": "5"}, base).max_segment_ms == 604_800_000


def test_compacted_and_never_rolled() -> None:
    config = make_topic(cleanup_policy="compact", segment_ms=str(MAX_LONG))
    [warning] = warnings(config)
    assert warning.startswith(f"segment.ms={MAX_LONG}: the active segment is never compacted")
    assert "set segment.ms or max.compaction.lag.ms to 604800000" in warning
    assert warnings(config.with_changes({"max.compaction.lag.ms": "604800000"})) == []
    assert warnings(config.with_changes({"segment.ms": str(365 * DAY_MS)})) == []


def test_batch_larger_than_segment() -> None:
    [warning] = warnings(make_topic(segment_bytes="1048576"))
    assert warning.startswith("max.message.bytes=1048588 is more than segment.bytes=1048576: ")
    assert "set segment.bytes=1048588 or more" in warning
    [warning] = warnings(make_topic(internal_segment_bytes="65536"))
    assert "internal.segment.bytes=65536" in warning
    assert warnings(make_topic(segment_bytes="1048588")) == []


def test_nothing_is_ever_removed() -> None:
    [warning] = warnings(make_topic(cleanup_policy=""))
    assert "set cleanup.policy=delete" in warning


def test_settings_without_effect() -> None:
    found = warnings(make_topic(min_insync_replicas="2", remote_storage_enable="true"))
    assert found == ["min.insync.replicas=2 has no effect: logfs does not replicate; leave it out"]
