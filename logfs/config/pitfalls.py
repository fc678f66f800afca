"""Settings that are valid and probably not meant: what Kafka's operators have learned to avoid."""

from logfs.config.topic import DAY_MS, TOPIC_KEYS, TopicConfig

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
