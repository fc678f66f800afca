"""The settings of a topic: every key of Kafka 4.1, with Kafka's name, type, default and bounds.

Source: Kafka LogConfig, TopicConfig, ServerTopicConfigSynonyms (4.1.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Self

from logfs.config.kinds import (
    MAX_LONG,
    Boolean,
    Choice,
    Choices,
    Double,
    Replicas,
    int_kind,
    long_kind,
)
from logfs.config.settings import ConfigKey, Settings, config_keys, setting
from logfs.errors import InvalidConfigError

DAY_MS = 86_400_000
SHORTEST_ROLL_MS = 60_000
"""No segment is rolled on account of ``retention.ms`` before it is so old.

Retention does not look more often than that, and every segment has its own files.
"""

AS_RETENTION = -2
"""Local retention is the same as the retention of the whole log."""

_NOT_REPLICATED = "logfs does not replicate"

REMOVED_TOPIC_KEYS: Mapping[str, str] = {
    "message.format.version": "Kafka 4.0 removed it, records are always written in format v2",
    "message.downconversion.enable": "Kafka 4.0 removed it, records are never down-converted",
    "message.timestamp.difference.max.ms": "Kafka 4.0 removed it; set "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
}
"""Keys of earlier Kafkas, and what to do instead."""


class CleanupPolicy(StrEnum):
    """The policy for segments that are no longer written."""

    COMPACT = "compact"
    DELETE = "delete"


class CompressionType(StrEnum):
    """How batches are stored; PRODUCER keeps what the writer chose."""

    UNCOMPRESSED = "uncompressed"
    ZSTD = "zstd"
    LZ4 = "lz4"
    SNAPPY = "snappy"
    GZIP = "gzip"
    PRODUCER = "producer"


class SealedCompression(StrEnum):
    """How the segments that are no longer written are stored."""

    UNCOMPRESSED = "uncompressed"
    ZSTD = "zstd"
    LZ4 = "lz4"
    SNAPPY = "snappy"
    GZIP = "gzip"


class TimestampType(StrEnum):
    """Whose clock gives records their timestamps."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, kw_only=True)
class TopicConfig(Settings):
    """The settings of one topic, a field for each key; ``TOPIC_KEYS`` says what they mean.

    Two are equal if the values in effect are, whether given or fallen back to.

    Attributes:
        explicit: The keys that were given.
        base: The values of keys that are not given; None for Kafka's defaults.
    """

    noun: ClassVar[str] = "topic"

    cleanup_policy: frozenset[CleanupPolicy] = setting(
        Choices(CleanupPolicy),
        frozenset({CleanupPolicy.DELETE}),
        "old segments are deleted by age and size, compacted by key, or both",
        broker=("log.cleanup.policy",),
    )
    compression_type: CompressionType = setting(  # noqa: RUF009 - it makes a field, as field() does
        Choice(CompressionType),
        CompressionType.PRODUCER,
        "codec of the batches stored; producer keeps the writer's",
        broker=("compression.type",),
    )
    compression_gzip_level: int = setting(
        int_kind(1, 9, or_minus_one=True),
        -1,
        "level if compression.type is gzip; -1 is the codec's own default",
        broker=("compression.gzip.level",),
    )
    compression_lz4_level: int = setting(
        int_kind(1, 17),
        9,
        "level if compression.type is lz4",
        broker=("compression.lz4.level",),
    )
    compression_zstd_level: int = setting(
        int_kind(-131072, 22),
        3,
        "level if compression.type is zstd",
        broker=("compression.zstd.level",),
    )
    delete_retention_ms: int = setting(
        long_kind(0),
        DAY_MS,
        "how long compaction keeps tombstones and transaction markers",
        broker=("log.cleaner.delete.retention.ms",),
    )
    file_delete_delay_ms: int = setting(
        long_kind(0),
        60_000,
        "time from renaming a file to .deleted until it is removed",
        broker=("log.segment.delete.delay.ms",),
    )
    flush_messages: int = setting(
        long_kind(1),
        MAX_LONG,
        "records after which an append flushes the log",
        broker=("log.flush.interval.messages",),
    )
    flush_ms: int = setting(
        long_kind(0),
        MAX_LONG,
        "time after which the log is flushed",
        broker=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    index_interval_bytes: int = setting(
        int_kind(0),
        4096,
        "bytes of log from one index entry to the next",
        broker=("log.index.interval.bytes",),
    )
    max_compaction_lag_ms: int = setting(
        long_kind(1),
        MAX_LONG,
        "the longest a record stays out of reach of compaction",
        broker=("log.cleaner.max.compaction.lag.ms",),
    )
    max_message_bytes: int = setting(
        int_kind(0),
        1_048_588,
        "the largest batch as stored, its header included",
        broker=("message.max.bytes",),
    )
    message_timestamp_type: TimestampType = setting(  # noqa: RUF009 - as above
        Choice(TimestampType),
        TimestampType.CREATE_TIME,
        "whether records carry the writer's time or that of the append",
        broker=("log.message.timestamp.type",),
    )
    message_timestamp_before_max_ms: int = setting(
        long_kind(0),
        MAX_LONG,
        "how far a record's timestamp may lie in the past",
        broker=("log.message.timestamp.before.max.ms",),
    )
    message_timestamp_after_max_ms: int = setting(
        long_kind(0),
        3_600_000,
        "how far a record's timestamp may lie in the future",
        broker=("log.message.timestamp.after.max.ms",),
    )
    min_cleanable_dirty_ratio: float = setting(
        Double(0, 1),
        0.5,
        "share of the log not yet compacted above which it is compacted",
        broker=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = setting(
        long_kind(0),
        0,
        "the shortest a record stays out of reach of compaction",
        broker=("log.cleaner.min.compaction.lag.ms",),
    )
    min_insync_replicas: int = setting(
        int_kind(1),
        1,
        "replicas that must have a record before it is acknowledged",
        broker=("min.insync.replicas",),
        unused=_NOT_REPLICATED,
    )
    preallocate: bool = setting(
        Boolean(),
        False,
        "whether a new .log file is made segment.bytes long at once",
        broker=("log.preallocate",),
    )
    retention_bytes: int = setting(
        long_kind(),
        -1,
        "size of a partition above which its oldest segments go; negative: no limit",
        broker=("log.retention.bytes",),
    )
    retention_ms: int = setting(
        long_kind(-1),
        7 * DAY_MS,
        "age at which a segment goes, by its latest record; -1: no limit",
        broker=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    segment_bytes: int = setting(
        int_kind(1_048_576),
        1_073_741_824,
        "size at which the active segment is rolled",
        broker=("log.segment.bytes",),
    )
    internal_segment_bytes: int | None = setting(
        int_kind(),
        None,
        "wins over segment.bytes and has no lower bound; for tests",
    )
    segment_index_bytes: int = setting(
        int_kind(4),
        10_485_760,
        "size of an offset or time index at which the active segment is rolled",
        broker=("log.index.size.max.bytes",),
    )
    segment_jitter_ms: int = setting(
        long_kind(0),
        0,
        "the most by which segment.ms is shortened at random, segment by segment",
        broker=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    )
    segment_ms: int = setting(
        long_kind(1),
        7 * DAY_MS,
        "age at which an append rolls the active segment",
        broker=("log.roll.ms", "log.roll.hours"),
    )
    unclean_leader_election_enable: bool = setting(
        Boolean(),
        False,
        "whether a replica that lags may become leader",
        broker=("unclean.leader.election.enable",),
        unused=_NOT_REPLICATED,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        Replicas(), (), "replicas throttled on the leader's side", unused=_NOT_REPLICATED
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        Replicas(), (), "replicas throttled on the follower's side", unused=_NOT_REPLICATED
    )
    remote_storage_enable: bool = setting(
        Boolean(), False, "whether sealed segments are copied to the object store"
    )
    remote_log_copy_disable: bool = setting(
        Boolean(), False, "whether copying is suspended; copied segments stay readable"
    )
    remote_log_delete_on_disable: bool = setting(
        Boolean(),
        False,
        "whether copied segments are deleted when remote.storage.enable is switched off",
    )
    local_retention_ms: int = setting(
        long_kind(-2),
        -2,
        "age at which the local copy of a remote segment goes; -2: retention.ms",
        broker=("log.local.retention.ms",),
    )
    local_retention_bytes: int = setting(
        long_kind(-2),
        -2,
        "size above which local copies of remote segments go; -2: retention.bytes",
        broker=("log.local.retention.bytes",),
    )
    logfs_remote_freshness: bool = setting(
        Boolean(),
        True,
        "whether records that are not sealed yet go to the object store as well, every "
        "freshness.ms of logfs.remote; a compacted topic goes there as a whole, if true is given",
        broker=("logfs.remote.freshness",),
    )
    logfs_sealed_compression_type: SealedCompression = setting(  # noqa: RUF009 - as above
        Choice(SealedCompression),
        SealedCompression.UNCOMPRESSED,
        "codec of sealed segments, which are written once more with larger batches; "
        "uncompressed: they stay as they are",
        broker=("logfs.sealed.compression.type",),
    )
    logfs_quota_bytes: int = setting(
        long_kind(-1),
        -1,
        "bytes that the logs of all partitions together may have; an append beyond them is "
        "refused, with EDQUOT; -1: no quota",
        broker=("logfs.quota.bytes",),
    )
    logfs_quota_producer_byte_rate: int = setting(
        long_kind(1, or_minus_one=True),
        -1,
        "bytes a second that are appended to all partitions together; an append beyond them "
        "returns later; -1: no quota",
        broker=("logfs.quota.producer.byte.rate",),
    )

    explicit: frozenset[str] = field(default=frozenset(), compare=False)
    base: "TopicConfig | None" = field(default=None, compare=False, repr=False)

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], base: "TopicConfig | None" = None
    ) -> Self:
        """Make the settings of a topic from text.

        Args:
            base: The values of the other keys; None for Kafka's defaults.

        Raises:
            InvalidConfigError: A key is unknown, a value not valid, or two do not go together.
        """
        values = (
            {row.field: getattr(base, row.field) for row in TOPIC_KEYS.values()} if base else {}
        )
        values |= cls._parse(properties)
        return cls(**values, explicit=frozenset(properties), base=base)

    def with_changes(self, changes: Mapping[str, str | None]) -> "TopicConfig":
        """Return the settings with some keys given again, or no longer given (None).

        Raises:
            InvalidConfigError: As ``from_properties``; also for an unknown key with None.
        """
        properties = self.overrides()
        for key, text in changes.items():
            self._row(key)
            if text is None:
                properties.pop(key, None)
            else:
                properties[key] = text
        changed = TopicConfig.from_properties(properties, self.base)
        self._check_switching_off(changed)
        return changed

    def _check_switching_off(self, changed: "TopicConfig") -> None:
        # Source: Kafka LogConfig.validateTurningOffRemoteStorageWithDelete.
        if (
            self.remote_storage_enable
            and not changed.remote_storage_enable
            and not changed.remote_log_delete_on_disable
        ):
            raise InvalidConfigError(
                "It is invalid to disable remote storage without deleting remote data. If you want "
                "to keep the remote data and turn to read only, please set "
                "`remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
                "remote storage and delete all remote data, please set "
                "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
            )

    @property
    def is_journaled(self) -> bool:
        """Whether what is not sealed goes to the object store of a directory with freshness.ms.

        A compacted topic goes there as a whole, if that was asked for.
        """
        is_asked = "logfs.remote.freshness" in self.explicit
        is_stored = self.remote_storage_enable or (self.is_compacted and is_asked)
        return self.logfs_remote_freshness and is_stored

    @property
    def is_compacted(self) -> bool:
        """Whether the cleanup policy contains compact."""
        return CleanupPolicy.COMPACT in self.cleanup_policy

    @cached_property  # asked for by every append
    def effective_segment_bytes(self) -> int:
        """Size at which the active segment is rolled. Source: Kafka LogConfig.segmentSize."""
        internal = self.internal_segment_bytes
        return self.segment_bytes if internal is None else internal

    @cached_property  # asked for by every append
    def max_segment_ms(self) -> int:
        """Age at which the active segment is rolled. Source: Kafka LogConfig.maxSegmentMs.

        An unset ``segment.ms`` does not exceed ``retention.ms``. A segment is deleted as a whole,
        so its first records would stay for both times together. But no segment is rolled for that
        before it is ``SHORTEST_ROLL_MS`` old.
        """
        limits = [self.segment_ms]
        if self.is_compacted:
            limits.append(self.max_compaction_lag_ms)
        if self.is_expiring and not self.is_given("segment.ms"):
            limits.append(max(self.retention_ms, SHORTEST_ROLL_MS))
        return min(limits)

    @property
    def effective_local_retention_bytes(self) -> int:
        """Size above which local files of tiered segments go; negative: no limit."""
        local = self.local_retention_bytes
        return self.retention_bytes if local == AS_RETENTION else local

    @property
    def effective_local_retention_ms(self) -> int:
        """Age at which local files of tiered segments go; negative: no limit."""
        local = self.local_retention_ms
        return self.retention_ms if local == AS_RETENTION else local

    @cached_property  # asked for by every append
    def has_quota(self) -> bool:
        """Whether the bytes of the topic, or its appends, have a quota."""
        return self.logfs_quota_bytes >= 0 or self.logfs_quota_producer_byte_rate > 0

    @property
    def is_expiring(self) -> bool:
        """Whether records go because of their age."""
        return CleanupPolicy.DELETE in self.cleanup_policy and self.retention_ms >= 0

    def is_given(self, key: str) -> bool:
        """Whether a key was given, to the topic or to what it falls back to."""
        return key in self.explicit or (self.base is not None and self.base.is_given(key))

    @property
    def compression_level(self) -> int | None:
        """Level for the codec of ``compression_type``; None for the codec's own default."""
        return self._level_of(self.compression_type)

    @property
    def sealed_compression_level(self) -> int | None:
        """Level for the codec of ``logfs_sealed_compression_type``; None for its own default."""
        return self._level_of(self.logfs_sealed_compression_type)

    def _level_of(self, codec: str) -> int | None:
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        level = levels.get(codec)
        return None if codec == "gzip" and level == -1 else level

    def _fallback(self, row: ConfigKey) -> object:
        return row.default if self.base is None else getattr(self.base, row.field)

    def _check_together(self) -> None:
        # Source: Kafka LogConfig.validateValues.
        if self.max_compaction_lag_ms < self.min_compaction_lag_ms:
            raise InvalidConfigError(
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}: expected at least "
                f"min.compaction.lag.ms, which is {self.min_compaction_lag_ms}"
            )
        if self.remote_storage_enable:
            self._check_tiered()

    def _check_tiered(self) -> None:
        # Source: Kafka LogConfig.validateNoRemoteStorageForCompactedTopic,
        # validateRemoteStorageRetentionSize, validateRemoteStorageRetentionTime,
        # validateRetentionConfigsWhenRemoteCopyDisabled.
        if self.is_compacted:
            raise InvalidConfigError(
                "remote.storage.enable=true: Remote log storage is unsupported for the compacted "
                "topics; leave compact out of cleanup.policy"
            )
        for unit in ("bytes", "ms"):
            whole = int(self.get(f"retention.{unit}"))
            local = int(self.get(f"local.retention.{unit}"))
            if local == AS_RETENTION:
                continue
            what = f"local.retention.{unit}={local}: "
            if whole > -1 and local == -1:
                raise InvalidConfigError(
                    f"{what}Value must not be -1 as retention.{unit} value is set as {whole}."
                )
            if -1 < whole < local:
                raise InvalidConfigError(
                    f"{what}Value must not be more than retention.{unit} property value: {whole}"
                )
            if self.remote_log_copy_disable and local != whole:
                raise InvalidConfigError(
                    f"{what}When `remote.log.copy.disable` is set to true, the `local.retention."
                    f"{unit}` and `retention.{unit}` must be set to the identical value because "
                    "there will be no more logs copied to the remote storage."
                )

    @classmethod
    def _hints(cls) -> Mapping[str, str]:
        broker = {
            synonym: f"it is a broker's; the topic's is {row.key}"
            for row in TOPIC_KEYS.values()
            for synonym in row.synonyms
        }
        return {**broker, **REMOVED_TOPIC_KEYS}


TOPIC_KEYS: Mapping[str, ConfigKey] = config_keys(TopicConfig)
"""Every key of a topic's configuration and its row, in order of declaration."""


NEVER_ROLLS_MS = 365 * DAY_MS
"""A compacted topic whose segments may last longer is warned about."""


def warnings(config: TopicConfig) -> list[str]:
    """Return what is allowed and probably not meant, one sentence each, with the way out."""
    found = [
        f"{key}={config.get(key)} has no effect: {row.unused}; leave it out"
        for key, row in TOPIC_KEYS.items()
        if row.unused and getattr(config, row.field) != row.default
    ]
    if not config.cleanup_policy:
        found.append(
            "cleanup.policy is empty: nothing is ever removed; set cleanup.policy=delete, or "
            "retention.ms=-1 if that is meant"
        )
    if config.is_expiring and config.retention_ms < config.segment_ms:
        found.extend(_outlived_retention(config))
    if config.is_compacted and config.max_segment_ms > NEVER_ROLLS_MS:
        found.append(
            f"segment.ms={config.segment_ms}: the active segment is never compacted, and it is not "
            f"rolled before it has {config.effective_segment_bytes} bytes; set segment.ms or "
            f"max.compaction.lag.ms to {7 * DAY_MS} (a week) or less"
        )
    if config.max_message_bytes > config.effective_segment_bytes:
        name = (
            "segment.bytes" if config.internal_segment_bytes is None else "internal.segment.bytes"
        )
        found.append(
            f"max.message.bytes={config.max_message_bytes} is more than "
            f"{name}={config.effective_segment_bytes}: a batch that exceeds a segment is refused; "
            f"set {name}={config.max_message_bytes} or more, or max.message.bytes to less"
        )
    return found


def _outlived_retention(config: TopicConfig) -> list[str]:
    """Return what to say of a segment.ms that is longer than retention.ms."""
    shortest = max(1, config.retention_ms)
    text = f"segment.ms={config.segment_ms} is longer than retention.ms={config.retention_ms}: "
    if config.is_given("segment.ms"):
        if config.max_segment_ms <= config.retention_ms:
            return []  # rolled in time by max.compaction.lag.ms
        return [
            f"{text}a segment goes as a whole, so its first records may stay for both times "
            f"together; set segment.ms={shortest} or less, or leave it out"
        ]
    return [
        f"{text}since it is not set, segments are rolled after {config.max_segment_ms} ms "
        f"instead, so that records go in time; to say so, set segment.ms={shortest} or less"
    ]
