"""Administration of topics, the same with and without a daemon.

Beyond ``LogStore`` it refuses probable mistakes (to unset what is not set, to make a topic smaller)
and warns about probable mistakes in the configuration.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from logfs.config import TopicConfig
from logfs.errors import InvalidConfigError
from logfs.log.store import LogStore
from logfs.services.meta import partition_meta


class TopicFacts(NamedTuple):
    """A topic and its partitions; fit for JSON.

    Attributes:
        topic_id: 22 characters; None if it has none.
        effective: Every setting in effect, explicit or default; those without a value are omitted.
        warnings: Probable mistakes in the configuration.
    """

    name: str
    topic_id: str | None
    config: dict[str, str]
    effective: dict[str, str]
    partitions: list[dict[str, Any]]
    warnings: list[str]


def topic_sizes(store: LogStore) -> dict[str, int]:
    """Return the number of partitions of every topic, hidden ones included; sorted."""
    return {topic: len(store.partitions(topic)) for topic in store.topics()}


def describe_topic(store: LogStore, topic: str) -> TopicFacts:
    """Return the facts about a topic; raise NoSuchTopicError if there is none."""
    return TopicFacts(
        topic,
        store.topic_id(topic),
        store.topic_properties(topic),
        store.topic_config(topic).effective(),
        [partition_meta(store.partition(topic, number)) for number in store.partitions(topic)],
        store.config_warnings(topic),
    )


def create_topic(
    store: LogStore, topic: str, partitions: int | None, config: Mapping[str, str], now_ms: int
) -> list[str]:
    """Create a topic and return warnings about its configuration.

    Args:
        partitions: How many; None for ``num.partitions`` of the store.

    Raises:
        TopicExistsError, IllegalTopicNameError, InvalidConfigError, ReadOnlyError, OSError.
    """
    count = store.config.num_partitions if partitions is None else partitions
    store.create_topic(topic, count, config, now_ms)
    return store.config_warnings(topic)


def alter_topic(
    store: LogStore,
    topic: str,
    changes: Mapping[str, str | None],
    partitions: int | None,
    now_ms: int,
) -> list[str]:
    """Change a topic and return warnings about its configuration.

    Args:
        changes: Settings and their values; None unsets one.
        partitions: How many it should have; None for as many as now.

    Raises:
        NoSuchTopicError: There is none.
        InvalidConfigError: A setting is unknown, a value is not valid, a setting to unset is not
            set, or the topic would get smaller.
        LogOfflineError, ReadOnlyError, OSError: See ``LogStore``.
    """
    check_changes(topic, store.topic_properties(topic), changes)
    check_growth(topic, len(store.partitions(topic)), partitions)
    if changes:
        store.alter_topic(topic, changes)
    if partitions is not None:
        store.grow_topic(topic, partitions, now_ms)
    return store.config_warnings(topic)


def check_changes(topic: str, config: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
    """Refuse to unset a setting that is not set or not known, by an InvalidConfigError."""
    for key, value in changes.items():
        if value is None and key not in config:
            TopicConfig().get(key)
            raise InvalidConfigError(f"{key} is not set for topic {topic}")


def check_growth(topic: str, present: int, partitions: int | None) -> None:
    """Refuse by an InvalidConfigError to make a topic smaller: records would be lost."""
    if partitions is not None and partitions < present:
        raise InvalidConfigError(
            f"topic {topic} has {present} partitions; it can grow, but not shrink to {partitions}"
        )
