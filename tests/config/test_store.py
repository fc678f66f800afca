import pytest

from logfs.config import STORE_KEYS, StoreConfig
from logfs.errors import InvalidConfigError


def test_without_synonyms_topics_have_kafkas_defaults() -> None:
    assert StoreConfig().topic_defaults() == {}
    assert StoreConfig.from_properties({"num.partitions": "3"}).topic_defaults() == {}
    # A field that is a synonym as well applies in both ways of setting it.
    config = StoreConfig(log_segment_delete_delay_ms=5)
    assert config.topic_defaults() == {"file.delete.delay.ms": "5"}


@pytest.mark.parametrize(
    ("properties", "key", "value"),
    [
        ({"ms": "1", "minutes": "2", "hours": "3"}, "retention.ms", "1"),
        ({"minutes": "2", "hours": "3"}, "retention.ms", "120000"),
        ({"hours": "3"}, "retention.ms", "10800000"),
        ({"hours": "-1"}, "retention.ms", "-1"),
        ({"minutes": "-7"}, "retention.ms", "-1"),
        ({"ms": "-7"}, "retention.ms", "-1"),
    ],
)
def test_precedence_for_retention(properties: dict[str, str], key: str, value: str) -> None:
    given = {f"log.retention.{unit}": text for unit, text in properties.items()}
    for order in (given, dict(reversed(given.items()))):
        assert StoreConfig.from_properties(order).topic_defaults() == {key: value}


def test_precedence_for_rolls_and_flushes() -> None:
    config = StoreConfig.from_properties(
        {
            "log.roll.hours": "2",
            "log.roll.ms": "5",
            "log.roll.jitter.hours": "1",
            "log.flush.scheduler.interval.ms": "7",
        }
    )
    assert config.topic_defaults() == {
        "segment.ms": "5",
        "segment.jitter.ms": "3600000",
        "flush.ms": "7",
    }
    assert config.log_flush_scheduler_interval_ms == 7
    given = config.overrides() | {"log.flush.interval.ms": "0"}
    assert StoreConfig.from_properties(given).topic_defaults()["flush.ms"] == "0"


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("log.retention.ms", "0", ", not 0"),
        ("log.retention.hours", "0", ", not 0"),
        ("log.retention.hours", "2147483648", "when taken in ms"),
        ("log.retention.minutes", "x", "when taken in ms"),
        ("log.roll.hours", "0", "a whole number in [1, 9223372036854775807], when taken in ms"),
        ("log.roll.hours", "1.5", "when taken in ms"),
        ("log.segment.bytes", "1048575", "a whole number in [1048576, 2147483647]"),
        ("log.cleanup.policy", "keep", "a list of compact, delete"),
        ("log.message.timestamp.type", "Now", "one of CreateTime, LogAppendTime"),
    ],
)
def test_invalid_synonyms_are_named_as_they_were_given(key: str, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        StoreConfig.from_properties({key: text})
    assert str(caught.value).startswith(f"{key}={text!r}: expected ")
    assert str(caught.value).endswith(expected)


def test_a_synonym_is_checked_though_a_stronger_one_hides_it() -> None:
    with pytest.raises(InvalidConfigError, match=r"^log\.retention\.hours='x'"):
        StoreConfig.from_properties({"log.retention.ms": "5", "log.retention.hours": "x"})


def test_defaults_go_together() -> None:
    with pytest.raises(InvalidConfigError, match=r"expected at least min\.compaction\.lag\.ms"):
        StoreConfig.from_properties(
            {
                "log.cleaner.min.compaction.lag.ms": "10",
                "log.cleaner.max.compaction.lag.ms": "9",
            }
        )


def test_every_cleaner_thread_needs_a_buffer() -> None:
    StoreConfig(log_cleaner_threads=2, log_cleaner_dedupe_buffer_size=2097154)
    with pytest.raises(InvalidConfigError) as caught:
        StoreConfig(log_cleaner_threads=2, log_cleaner_dedupe_buffer_size=2097153)
    assert "more than 1048576 for each of log.cleaner.threads, which is 2" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("num.partition", "did you mean num.partitions?"),
        ("log.segments.bytes", "did you mean log.segment.bytes?"),
        ("retention.ms", "it is a topic's; the default of all topics is log.retention.ms"),
        ("log.dirs", "one data directory"),
        ("auto.create.topics.enable", "mount with the option create"),
        ("log.message.format.version", "Kafka 4.0 removed it"),
        ("zzz", "the keys are those of Kafka 4.1"),
    ],
)
def test_unknown_keys(key: str, hint: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        StoreConfig.from_properties({key: "1"})
    assert str(caught.value).startswith(f"{key!r}: no such store setting; ")
    assert hint in str(caught.value)
    with pytest.raises(InvalidConfigError):
        StoreConfig(topic_properties=((key, "1"),))


def test_a_double_is_finite() -> None:
    with pytest.raises(InvalidConfigError, match="expected a number"):
        STORE_KEYS["log.cleaner.io.max.bytes.per.second"].parse("1e309")
