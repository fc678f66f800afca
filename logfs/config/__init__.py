"""Configuration under Kafka's names: of a topic, of a store, and its text files.

    kinds        text <-> value: numbers, words, lists, their bounds
    amounts      10MiB, 7d
    settings     the machinery: rows, tables, errors
    topic        TopicConfig, every topic key of Kafka 4.1; what is valid and probably not meant
    store        StoreConfig, the broker's keys that matter without a network
    remote       RemoteConfig, the object store of a data directory
    properties   key=value files

A table is one dataclass and nothing else lists its keys: to add a key, add a row.
"""

from logfs.config.properties import format_properties, parse_properties
from logfs.config.settings import ConfigKey
from logfs.config.store import STORE_KEYS, StoreConfig
from logfs.config.topic import (
    TOPIC_KEYS,
    CleanupPolicy,
    CompressionType,
    SealedCompression,
    TimestampType,
    TopicConfig,
    warnings,
)

__all__ = [
    "STORE_KEYS",
    "TOPIC_KEYS",
    "CleanupPolicy",
    "CompressionType",
    "ConfigKey",
    "SealedCompression",
    "StoreConfig",
    "TimestampType",
    "TopicConfig",
    "format_properties",
    "parse_properties",
    "warnings",
]
