"""The tables of settings beside those of a real broker: names, defaults, what is refused."""

import pytest

from logfs.config import STORE_KEYS, TOPIC_KEYS, StoreConfig, TopicConfig
from logfs.config.kinds import Whole
from logfs.errors import InvalidConfigError
from tests.kafka import jars
from tests.kafka.broker import SETTINGS
from tests.kafka.client import Client

pytestmark = [pytest.mark.kafka, pytest.mark.slow, jars.usual]

OURS = frozenset(key for key in TOPIC_KEYS if key.startswith("logfs."))
"""Settings that Kafka does not have."""
PROBES = frozenset({
    "", "x", "yes", "none", "nan", "inf", "5f", "1e3", "0x10", " 7 ", "+5", "007", "1.0", "1.5",
    "0.5", "-0.5", "0", "1", "-1", "-2", "-3", "true", "True", "TRUE", "false", "delete", "Delete",
    "compact", "compact,delete", " compact , delete ", "delete,delete", "compact;delete", "delete,",
    "uncompressed", "producer", "gzip", "zstd", "ZSTD", "CreateTime", "LogAppendTime",
    "logappendtime", "*", "*,1:1", "1:1", "1:1, 2:3", "1:a", ":",
    *(str(sign * bound + one) for bound in (2**31, 2**63) for sign in (1, -1) for one in (-1, 0)),
    str(-(2**63) - 1),
})  # fmt: skip
NEEDS_MORE = "functionality is disabled in the broker"
"""Refused because of another setting of the broker's own, and not for what it is."""


WITHOUT_DEFAULT = frozenset({
    "log.retention.ms", "log.retention.minutes", "log.roll.ms", "log.roll.jitter.ms",
    "log.flush.interval.ms",
})  # fmt: skip
"""Settings of a broker that others stand in for."""


def settings_of_the_broker() -> StoreConfig:
    """The settings that the test's broker has, as far as logfs knows them."""
    synonyms = {name for row in TOPIC_KEYS.values() for name in row.synonyms}
    known = synonyms | STORE_KEYS.keys()
    return StoreConfig.from_properties({k: v for k, v in SETTINGS.items() if k in known})


def why_not(properties: dict[str, str]) -> str | None:
    try:
        TopicConfig.from_properties(properties)
    except InvalidConfigError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def topic(client: Client) -> str:
    client.create_topic("settings", retention_ms="-1")
    return "settings"


def test_every_topic_setting_has_kafkas_name_and_default(client: Client, topic: str) -> None:
    theirs = client.topic_config(topic)
    base = TopicConfig.from_properties(settings_of_the_broker().topic_defaults())
    ours = TopicConfig.from_properties({}, base).effective()
    assert TOPIC_KEYS.keys() - theirs.keys() == {"internal.segment.bytes", *OURS}
    assert theirs.keys() - TOPIC_KEYS.keys() == set()
    assert theirs == {key: text for key, text in ours.items() if key not in OURS}


@pytest.mark.parametrize("key", [key for key in TOPIC_KEYS if key not in OURS])
def test_what_one_refuses_the_other_does(client: Client, topic: str, key: str) -> None:
    kind = TOPIC_KEYS[key].kind
    probes = set(PROBES)
    if isinstance(kind, Whole):
        probes |= {str(n) for b in (kind.lower, kind.upper) for n in (b - 1, b, b + 1)}
    different, taken = {}, 0
    for probe in sorted(probes):
        theirs, ours = client.refusal_of(topic, {key: probe}), why_not({key: probe})
        taken += ours is None
        if (theirs is None) != (ours is None) and not (theirs and NEEDS_MORE in theirs):
            different[probe] = theirs, ours
    assert different == {}
    assert taken


@pytest.mark.parametrize(
    "properties",
    [
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
        {"cleanup.policy": "compact", "retention.ms": "5", "segment.ms": "9"},
        {"segment.bytes": "1048576", "max.message.bytes": "1048588"},
        {"retention.ms": "1", "local.retention.ms": "2"},
        {"no.such.key": "1"},
        {"message.format.version": "3.0"},
        {"log.retention.ms": "5"},
    ],
)
def test_settings_together(client: Client, topic: str, properties: dict[str, str]) -> None:
    theirs = client.refusal_of(topic, properties)
    assert (theirs is None) == (why_not(properties) is None), (theirs, why_not(properties))


def test_every_setting_of_a_store_has_kafkas_name_and_default(client: Client) -> None:
    theirs = client.broker_config()
    ours = settings_of_the_broker()
    internal = {"log.initial.task.delay.ms", "producer.id.expiration.check.interval.ms"}
    own = {key for key in STORE_KEYS if key.startswith("logfs.")}
    own |= {"log.retention.total.bytes", "log.retention.keep.free.bytes"}
    assert STORE_KEYS.keys() - theirs.keys() - own <= internal
    shared = STORE_KEYS.keys() & theirs.keys()
    found = StoreConfig.from_properties({key: theirs[key] for key in shared})
    assert {key: found.get(key) for key in shared} == {key: ours.get(key) for key in shared}
    synonyms = {name for row in TOPIC_KEYS.values() for name in row.synonyms}
    assert synonyms - theirs.keys() - OURS <= WITHOUT_DEFAULT
