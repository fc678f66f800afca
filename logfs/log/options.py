"""From a topic's configuration to the options of the encoder."""

from logfs.config import CompressionType, TimestampType, TopicConfig
from logfs.records.compression import Compression
from logfs.records.encoded import EncodeOptions

_CODECS = {
    CompressionType.GZIP: Compression.GZIP,
    CompressionType.SNAPPY: Compression.SNAPPY,
    CompressionType.LZ4: Compression.LZ4,
    CompressionType.ZSTD: Compression.ZSTD,
}
"""``producer`` keeps what the producer chose; logfs itself chooses none."""


def sealed_codec(config: TopicConfig) -> tuple[Compression, int | None]:
    """Return codec and level for the sealed segments of a topic."""
    kind = CompressionType(config.logfs_sealed_compression_type)
    return _CODECS.get(kind, Compression.NONE), config.sealed_compression_level


def encode_options(config: TopicConfig, leader_epoch: int) -> EncodeOptions:
    """Return how records for a topic become batches.

    A batch is limited by ``max.message.bytes`` and, since it must fit a segment, by
    ``segment.bytes``. Source: Kafka UnifiedLog.append (RecordTooLarge, RecordBatchTooLarge).
    """
    codec = _CODECS.get(config.compression_type, Compression.NONE)
    return EncodeOptions(
        max_batch_bytes=min(config.max_message_bytes, config.effective_segment_bytes),
        leader_epoch=leader_epoch,
        compression=codec,
        compression_level=config.compression_level,
        log_append_time=config.message_timestamp_type is TimestampType.LOG_APPEND_TIME,
        require_key=config.is_compacted,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
    )
