"""The files of a topic in each partition directory: its configuration, id and leader epoch.

The configuration of a topic is in ``logfs.config`` in each of its partition directories,
Kafka's keys and values line by line below a line that gives the version:

    # logfs topic configuration, version 1
    retention.ms=86400000

A topic that a broker made has none; its logs are read and appended to with Kafka's defaults.
"""

import contextlib
from collections.abc import Mapping, Sequence
from uuid import UUID

from logfs.config import (
    CompressionType,
    TimestampType,
    TopicConfig,
    format_properties,
    parse_properties,
)
from logfs.disk.vfs import Disk
from logfs.errors import InvalidConfigError, UnsupportedFormatError
from logfs.log import names
from logfs.log.checkpoints import EpochEntry, write_leader_epochs, write_partition_metadata
from logfs.records.compression import Compression
from logfs.records.encoded import EncodeOptions
from logfs.types import MAX_PARTITIONS

VERSION = 1
_TITLE = "# logfs topic configuration, version "

_CODECS = {
    CompressionType.GZIP: Compression.GZIP,
    CompressionType.SNAPPY: Compression.SNAPPY,
    CompressionType.LZ4: Compression.LZ4,
    CompressionType.ZSTD: Compression.ZSTD,
}
"""``producer`` keeps what the producer chose; logfs itself chooses none."""


def read_properties(disk: Disk, directory: str) -> dict[str, str] | None:
    """Return the settings of the topic of a partition directory; None without such a file.

    Raises:
        InvalidConfigError: The file does not parse.
        UnsupportedFormatError: A newer logfs wrote it.
    """
    name = f"{directory}/{names.TOPIC_CONFIG}"
    try:
        data = disk.read(name)
    except FileNotFoundError:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InvalidConfigError(f"{name}: line {line} is not UTF-8") from None
    title = text.partition("\n")[0]
    if title.startswith(_TITLE) and title.removeprefix(_TITLE) != str(VERSION):
        raise UnsupportedFormatError(
            f"{name}: version {title.removeprefix(_TITLE)}, "
            f"this logfs reads version {VERSION}: use a newer logfs"
        )
    return parse_properties(text, source=name)


def write_properties(disk: Disk, directory: str, properties: Mapping[str, str]) -> None:
    """Store the configuration of a topic in a partition directory, durable when this returns."""
    disk.replace(f"{directory}/{names.TOPIC_CONFIG}", format_topic_config(properties))


def format_topic_config(properties: Mapping[str, str]) -> bytes:
    """Return the bytes of the file with the configuration of a topic."""
    return f"{_TITLE}{VERSION}\n{format_properties(properties)}".encode()


def change_properties(
    disk: Disk, directories: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Store the configuration of a topic in the directories of all its partitions, or in none.

    The first partition comes first: after a stop in between the next start copies it from there.

    Raises:
        OSError: The old configuration is restored, unless the disk refuses that too.
    """
    before: dict[str, bytes | None] = {}
    try:
        for directory in directories:
            before[directory] = _read(disk, f"{directory}/{names.TOPIC_CONFIG}")
            write_properties(disk, directory, properties)
    except OSError:
        for directory, data in reversed(before.items()):
            with contextlib.suppress(OSError):
                _put_back(disk, f"{directory}/{names.TOPIC_CONFIG}", data)
        raise


def _read(disk: Disk, name: str) -> bytes | None:
    try:
        return disk.read(name)
    except FileNotFoundError:
        return None


def _put_back(disk: Disk, name: str, data: bytes | None) -> None:
    if data is None:
        disk.remove(name)
    elif data != _read(disk, name):
        disk.replace(name, data)


def check_partitions(topic: str, partitions: int) -> None:
    """Refuse by an InvalidConfigError a number that is not 1 to ``MAX_PARTITIONS``."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidConfigError(
            f"topic {topic}: {partitions} partitions, expected 1 to {MAX_PARTITIONS}"
        )


def fill_partition(
    disk: Disk, directory: str, topic_id: UUID, properties: Mapping[str, str]
) -> None:
    """Write the files of a new partition directory but its log, durable on return."""
    write_partition_metadata(disk, directory, topic_id)
    write_leader_epochs(disk, directory, [EpochEntry(0, 0)])
    write_properties(disk, directory, properties)


def effective_config(defaults: TopicConfig, properties: Mapping[str, str] | None) -> TopicConfig:
    """Return the configuration of a topic over the defaults of its store."""
    return TopicConfig.from_properties(properties or {}, defaults)


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
