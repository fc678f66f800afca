"""The settings of a store: the broker's keys that mean something without a network.

Beside them stand the broker's synonyms of topic keys (``log.segment.bytes`` and its like): they
give topics their defaults. Source: Kafka ServerLogConfigs, CleanerConfig, LogConfig (4.1.1).
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from logfs.config.kinds import MAX_LONG, Boolean, Double, int_kind, long_kind
from logfs.config.settings import ConfigKey, Settings, config_keys, setting
from logfs.config.topic import REMOVED_TOPIC_KEYS, TOPIC_KEYS, TopicConfig
from logfs.errors import InvalidConfigError

REFUSED_BROKER_KEYS: Mapping[str, str] = {
    "log.dir": "a store has one data directory, named where it is opened",
    "log.dirs": "a store has one data directory, named where it is opened",
    "log.dir.failure.timeout.ms": "a store answers for its disk alone, at once",
    "auto.create.topics.enable": "mount with the option create instead",
    "transaction.partition.verification.enable": "there is no coordinator to ask",
    **{f"log.{key}": reason for key, reason in REMOVED_TOPIC_KEYS.items()},
}
"""Keys of a broker that a store has no use for, and why."""

DECOMPRESSED_MAX_BYTES = 128 * 1024 * 1024
"""The default limit for the records of a compressed batch: 128 times that of ``max.message.bytes``.

What is compressed may be 32,000 times as long as what is stored, and a reader holds all of a batch.
A broker limits only what is stored. Text compresses to a tenth, repetitive text to a fiftieth, so
the largest batch of a topic with Kafka's defaults stays well below this limit.
"""

_UNITS_MS = {"hours": 3_600_000, "minutes": 60_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig(Settings):
    """The settings of one data directory, a field for each key; see ``STORE_KEYS``.

    Attributes:
        explicit: The keys of the table that were given.
        topic_properties: The broker's synonyms of topic keys that were given, sorted.
    """

    noun: ClassVar[str] = "store"

    num_partitions: int = setting(int_kind(1), 1, "partitions of a new topic")
    num_recovery_threads_per_data_dir: int = setting(
        int_kind(1), 2, "logs recovered at the same time after an unclean stop"
    )
    log_retention_check_interval_ms: int = setting(
        long_kind(1), 300_000, "time from one look for segments to delete to the next"
    )
    log_retention_total_bytes: int = setting(
        long_kind(-1),
        -1,
        "most bytes of the logs of all topics together; beyond them the oldest segments of the "
        "largest topics are deleted; -1: no limit",
    )
    log_retention_keep_free_bytes: int = setting(
        long_kind(-1),
        -1,
        "least free bytes of the disk; below them segments are deleted in the same order; -1: no "
        "limit",
    )
    log_flush_scheduler_interval_ms: int = setting(
        long_kind(1), MAX_LONG, "time from one look for logs to flush to the next"
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        int_kind(0), 60_000, "time from one write of the recovery points to the next"
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        int_kind(0), 60_000, "time from one write of the log start offsets to the next"
    )
    log_initial_task_delay_ms: int = setting(
        long_kind(0), 30_000, "time from the start to the first of these tasks"
    )
    log_segment_delete_delay_ms: int = setting(
        long_kind(0), 60_000, "time from deleting a topic until its files are removed"
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        long_kind(1), 5_000, "time from one write of the high watermarks to the next"
    )
    log_cleaner_enable: bool = setting(Boolean(), True, "whether logs are compacted at all")
    log_cleaner_threads: int = setting(int_kind(0), 1, "logs compacted at the same time")
    log_cleaner_dedupe_buffer_size: int = setting(
        long_kind(), 134_217_728, "bytes of memory for the keys of all compactions together"
    )
    log_cleaner_io_buffer_size: int = setting(
        int_kind(0), 524_288, "bytes of memory for the buffers of all compactions together"
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        Double(), 0.9, "share of the memory for keys that is filled"
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        Double(), sys.float_info.max, "the most that compaction reads and writes"
    )
    log_cleaner_backoff_ms: int = setting(
        long_kind(0), 15_000, "time to wait when there is nothing to compact"
    )
    producer_id_expiration_ms: int = setting(
        int_kind(1), 86_400_000, "time without a write after which a producer id is forgotten"
    )
    producer_id_expiration_check_interval_ms: int = setting(
        int_kind(1), 600_000, "time from one look for producer ids to forget to the next"
    )
    offsets_retention_minutes: int = setting(
        int_kind(1), 10_080, "time after which the position of a consumer group expires"
    )
    offsets_retention_check_interval_ms: int = setting(
        long_kind(1), 600_000, "time from one look for expired positions to the next"
    )

    logfs_decompressed_max_bytes: int = setting(
        int_kind(1 << 20),
        DECOMPRESSED_MAX_BYTES,
        "most bytes that the records of a compressed batch may take; a larger one is an error",
    )

    explicit: frozenset[str] = field(default=frozenset(), compare=False)
    topic_properties: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Make the settings of a store from text.

        Raises:
            InvalidConfigError: A key is unknown, a value not valid, or two do not go together.
        """
        for_topics = set(properties) & (set(_SYNONYMS) - set(STORE_KEYS))
        own = {key: text for key, text in properties.items() if key not in for_topics}
        return cls(
            **cls._parse(own),
            explicit=frozenset(own),
            topic_properties=tuple((key, properties[key]) for key in sorted(for_topics)),
        )

    def overrides(self) -> dict[str, str]:
        """Return the keys that were given, or differ from Kafka's defaults.

        This is what a file of settings holds; ``from_properties`` is the inverse.
        """
        # Not super(): a dataclass with slots is another class than the one super() looks for.
        return {**Settings.overrides(self), **dict(self.topic_properties)}

    def topic_defaults(self) -> dict[str, str]:
        """Return what this store sets for topics, under the topics' keys.

        The strongest of several synonyms applies (``log.retention.ms`` before ``.minutes`` before
        ``.hours``); ``TopicConfig.from_properties`` of the answer is the ``base`` of every topic.
        """
        given = self.overrides()
        defaults = {}
        for row in TOPIC_KEYS.values():
            synonym = next((name for name in row.synonyms if name in given), None)
            if synonym is not None:
                defaults[row.key] = row.format(_parse_synonym(row, synonym, given[synonym]))
        return defaults

    def _check_together(self) -> None:
        # All of them and not only the strongest: a mistake in another one would wait for its day.
        for synonym, text in self.overrides().items():
            if synonym in _SYNONYMS:
                _parse_synonym(_SYNONYMS[synonym], synonym, text)
            elif synonym not in STORE_KEYS:
                raise self._unknown(synonym)
        TopicConfig.from_properties(self.topic_defaults())
        # Source: Kafka KafkaConfig.validateValues.
        threads = max(1, self.log_cleaner_threads)
        if self.log_cleaner_dedupe_buffer_size // threads <= 1_048_576:
            raise InvalidConfigError(
                f"log.cleaner.dedupe.buffer.size={self.log_cleaner_dedupe_buffer_size}: expected "
                f"more than 1048576 for each of log.cleaner.threads, which is {threads}"
            )

    @classmethod
    def _names(cls) -> list[str]:
        return [*STORE_KEYS, *_SYNONYMS]

    @classmethod
    def _hints(cls) -> Mapping[str, str]:
        topic = {
            row.key: f"it is a topic's; the default of all topics is {row.synonyms[0]}"
            for row in TOPIC_KEYS.values()
            if row.synonyms
        }
        return {**topic, **REFUSED_BROKER_KEYS}


def _parse_synonym(row: ConfigKey, synonym: str, text: str) -> object:
    """Return the value that a broker's key gives a topic's.

    Raises:
        InvalidConfigError: It is not valid; the message has the broker's key.

    Source: Kafka ServerTopicConfigSynonyms, KafkaConfig.logRetentionTimeMillis.
    """
    factor = _UNITS_MS.get(synonym.rpartition(".")[2])
    expected = row.kind.expected + (", when taken in ms" if factor else "")
    try:
        in_ms = str(int_kind().parse(text) * factor) if factor else text
        if row.key == "retention.ms":
            expected += ", not 0"
            in_ms = _parse_broker_retention(in_ms)
        return row.kind.parse(in_ms)
    except ValueError:
        raise InvalidConfigError(f"{synonym}={text!r}: expected {expected}") from None


def _parse_broker_retention(text: str) -> str:
    """Return a topic's retention.ms: to a broker any negative time is no limit, 0 is illegal."""
    value = long_kind().parse(text)
    if value == 0:
        raise ValueError(text)
    return str(max(-1, value))


STORE_KEYS: Mapping[str, ConfigKey] = config_keys(StoreConfig)
"""Every key of a store's configuration, the synonyms of topic keys left out."""

_SYNONYMS: Mapping[str, ConfigKey] = {
    synonym: row for row in TOPIC_KEYS.values() for synonym in row.synonyms
}
