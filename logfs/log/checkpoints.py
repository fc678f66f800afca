"""The small text files that Kafka keeps beside its logs: parse strictly, format, read, write.

    checkpoint file            offset checkpoint     leader epoch checkpoint
    0            version       0                     0
    N            entries       1                     2
    entry        N lines       orders 0 1500         0 0
                                                     3 812

An empty file, or a lone version, has no entries; every line ends with a newline, so a file that was
cut off anywhere else is noticed. Written whole by ``Disk.replace``: durable on return, old or new
contents after a crash. One writer per file.

Sources: Kafka CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile,
PartitionMetadataFile, CleanShutdownFileHandler.
"""

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from logfs.disk.vfs import Disk
from logfs.errors import CorruptCheckpointError
from logfs.log import names
from logfs.records.jsontext import decode_json
from logfs.types import TopicPartition

_VERSION = 0
_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_NO_BROKER_EPOCH = -1
_DIGITS = re.compile(r"[0-9]+")
_SPACES = re.compile(r"[ \t]+")
_METADATA_FIELD = re.compile(r"([a-z_]+):[ \t]+(\S+)")
WRITING = threading.Lock()
"""Held while offset checkpoints are written, and their rows gathered."""


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


def parse_offsets(data: bytes, name: str) -> dict[TopicPartition, int]:
    """Parse an offset checkpoint.

    Raises:
        CorruptCheckpointError: Anything but what ``format_offsets`` writes; several spaces between
            fields are accepted, as Kafka does.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, fields in parse_entries(data, name, field_count=3):
        partition = _parse_number(fields[1], _MAX_INT32, name, number)
        topic_partition = TopicPartition(fields[0], partition)
        if topic_partition in offsets:
            raise _corrupt(name, number, f"{topic_partition} for the second time")
        offsets[topic_partition] = _parse_number(fields[2], _MAX_INT64, name, number)
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Write an offset checkpoint, sorted by topic and partition."""
    return _format_entries(
        f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())
    )


def read_offsets(disk: Disk, name: str) -> dict[TopicPartition, int]:
    """Read an offset checkpoint of the root (``names.…_CHECKPOINT``); empty if there is no file.

    Raises:
        CorruptCheckpointError: See ``parse_offsets``. Kafka starts from 0 for every partition then.
    """
    data = _read_if_there(disk, name)
    return {} if data is None else parse_offsets(data, name)


def write_offsets(disk: Disk, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Put an offset checkpoint in place, durable on return."""
    disk.replace(name, format_offsets(offsets))


def lower_recovery_point(disk: Disk, topic_partition: TopicPartition, offset: int) -> None:
    """Note, durably, that nothing from an offset on is known to be durable.

    Raises:
        CorruptCheckpointError: The file does not parse.

    Source: Kafka LogManager.truncateTo.
    """
    with WRITING:
        offsets = dict(read_offsets(disk, names.RECOVERY_POINT_CHECKPOINT))
        if offsets.get(topic_partition, 0) > offset:
            offsets[topic_partition] = offset
            write_offsets(disk, names.RECOVERY_POINT_CHECKPOINT, offsets)


@contextlib.contextmanager
def checkpoint_start_offset(
    disk: Disk, topic_partition: TopicPartition, offset: int
) -> Iterator[None]:
    """Note, durably, that a log starts at an offset; it has to start there when the block ends.

    Kafka writes log start offsets once a minute, so that removed records may come back after a
    crash. Here they stay removed. Only a start inside a segment is noted: any other follows from
    the segments that are there. Nothing else writes the checkpoint files meanwhile, or it would
    write the offset at which the log started before.

    Raises:
        CorruptCheckpointError: The file does not parse.
        OSError: It could not be written; nothing has changed.
    """
    with WRITING:
        offsets = dict(read_offsets(disk, names.LOG_START_OFFSET_CHECKPOINT))
        offsets[topic_partition] = offset
        write_offsets(disk, names.LOG_START_OFFSET_CHECKPOINT, offsets)
        yield


def parse_leader_epochs(data: bytes, name: str) -> list[EpochEntry]:
    """Parse a leader epoch checkpoint in which epochs increase; raise CorruptCheckpointError."""
    entries: list[EpochEntry] = []
    for number, fields in parse_entries(data, name, field_count=2):
        entry = EpochEntry(
            _parse_number(fields[0], _MAX_INT32, name, number),
            _parse_number(fields[1], _MAX_INT64, name, number),
        )
        if entries and not (
            entries[-1].epoch < entry.epoch and entries[-1].start_offset <= entry.start_offset
        ):
            raise _corrupt(name, number, f"{entry} after {entries[-1]}")
        entries.append(entry)
    return entries


def format_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Write a leader epoch checkpoint, in the order given."""
    return _format_entries(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def read_leader_epochs(disk: Disk, directory: str) -> list[EpochEntry]:
    """Read the leader epochs of a partition directory; empty if there is no file."""
    name = f"{directory}/{names.LEADER_EPOCH_CHECKPOINT}"
    data = _read_if_there(disk, name)
    return [] if data is None else parse_leader_epochs(data, name)


def write_leader_epochs(disk: Disk, directory: str, entries: Iterable[EpochEntry]) -> None:
    """Put the leader epochs of a partition directory in place, durable on return."""
    disk.replace(f"{directory}/{names.LEADER_EPOCH_CHECKPOINT}", format_leader_epochs(entries))


def parse_partition_metadata(data: bytes, name: str) -> UUID:
    """Parse ``partition.metadata``; returns the topic id.

    Raises:
        CorruptCheckpointError: Not the two lines, another version, or the id is zero.

    Source: Kafka PartitionMetadataFile.
    """
    lines = _decode(data, name).split("\n")
    if len(lines) == 3 and not lines[2]:
        del lines[2]  # Kafka writes no newline at the end and reads one
    fields = [_METADATA_FIELD.fullmatch(line) for line in lines]
    if [field and field[1] for field in fields] != ["version", "topic_id"]:
        raise _corrupt(name, None, f"{data[:80]!r}, expected 'version: 0' and 'topic_id: …'")
    version, topic_id = (field[2] for field in fields if field)
    number = _parse_number(version, _MAX_INT32, name, 1)
    if number != _VERSION:
        raise _corrupt(name, 1, f"version {number}, expected {_VERSION}")
    try:
        parsed = names.parse_topic_id(topic_id)
    except ValueError as error:
        raise _corrupt(name, 2, str(error)) from None
    if parsed.int == 0:
        raise _corrupt(name, 2, "the topic id is zero")
    return parsed


def format_partition_metadata(topic_id: UUID) -> bytes:
    """Write ``partition.metadata``; there is no newline at the end."""
    return f"version: {_VERSION}\ntopic_id: {names.format_topic_id(topic_id)}".encode("ascii")


def read_partition_metadata(disk: Disk, directory: str) -> UUID | None:
    """Read the topic id of a directory, None without; raise CorruptCheckpointError."""
    name = f"{directory}/{names.PARTITION_METADATA}"
    data = _read_if_there(disk, name)
    return None if data is None else parse_partition_metadata(data, name)


def write_partition_metadata(disk: Disk, directory: str, topic_id: UUID) -> None:
    """Put the topic id of a partition directory in place, durable on return."""
    disk.replace(f"{directory}/{names.PARTITION_METADATA}", format_partition_metadata(topic_id))


def parse_clean_shutdown(data: bytes, name: str) -> int | None:
    """Parse the clean shutdown marker; returns the broker's epoch, None if it has none.

    Raises:
        CorruptCheckpointError: Not the JSON object that Kafka writes. The marker is valid all
            the same: its existence is its meaning.
    """
    try:
        version, epoch = decode_json(data, itemgetter("version", "brokerEpoch"))
    except ValueError as error:
        raise _corrupt(name, None, f"{data[:80]!r}: {error}") from None
    if type(version) is not int or version != _VERSION or type(epoch) is not int:
        raise _corrupt(name, None, f"{data[:80]!r}, expected version {_VERSION}")
    return None if epoch < 0 else epoch


def format_clean_shutdown(broker_epoch: int | None = None) -> bytes:
    """Write the clean shutdown marker; no newline at the end. Only a broker has an epoch."""
    epoch = _NO_BROKER_EPOCH if broker_epoch is None else broker_epoch
    return f'{{"version":{_VERSION},"brokerEpoch":{epoch}}}'.encode("ascii")


def has_clean_shutdown(disk: Disk) -> bool:
    """Tell whether the directory was shut down cleanly: whether the marker exists."""
    return disk.exists(names.CLEAN_SHUTDOWN)


def read_clean_shutdown(disk: Disk) -> int | None:
    """Read the broker's epoch in the marker, None without; raise CorruptCheckpointError."""
    data = _read_if_there(disk, names.CLEAN_SHUTDOWN)
    return None if data is None else parse_clean_shutdown(data, names.CLEAN_SHUTDOWN)


def write_clean_shutdown(disk: Disk) -> None:
    """Leave the marker, durable on return. Only after everything else is flushed and closed."""
    disk.replace(names.CLEAN_SHUTDOWN, format_clean_shutdown())


def remove_clean_shutdown(disk: Disk) -> bool:
    """Remove the marker durably, before a log is loaded (KAFKA-10471); True: it was there."""
    try:
        disk.remove(names.CLEAN_SHUTDOWN)
    except FileNotFoundError:
        return False
    disk.sync_directory("")
    return True


def parse_entries(data: bytes, name: str, field_count: int) -> list[tuple[int, list[str]]]:
    """Split a checkpoint file into (line number from 1, fields). Source: CheckpointFile.read."""
    if not data:
        return []
    *lines, rest = _decode(data, name).split("\n")
    if rest or not lines:
        raise _corrupt(name, len(lines) + 1, f"the line {rest!r} has no end: the file is cut off")
    version = _parse_number(lines[0], _MAX_INT32, name, 1)
    if version != _VERSION:
        raise _corrupt(name, 1, f"version {version}, expected {_VERSION}")
    if len(lines) == 1:
        return []
    expected = _parse_number(lines[1], _MAX_INT32, name, 2)
    if len(lines) - 2 != expected:
        raise _corrupt(name, 2, f"{len(lines) - 2} entries, expected {expected}")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        fields = _SPACES.split(line)
        if len(fields) != field_count or not all(fields):
            raise _corrupt(name, number, f"{line!r}, expected {field_count} fields")
        entries.append((number, fields))
    return entries


def _format_entries(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(entries)), *entries)).encode()


def _parse_number(text: str, maximum: int, name: str, line: int) -> int:
    if _DIGITS.fullmatch(text) is None or len(text) > 19 or int(text) > maximum:
        raise _corrupt(name, line, f"{text!r}, expected a number from 0 to {maximum}")
    return int(text)


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _corrupt(name, data[: error.start].count(b"\n") + 1, "not UTF-8") from None


def _read_if_there(disk: Disk, name: str) -> bytes | None:
    try:
        return disk.read(name)
    except FileNotFoundError:
        return None


def _corrupt(name: str, line: int | None, problem: str) -> CorruptCheckpointError:
    where = name if line is None else f"{name}, line {line}"
    return CorruptCheckpointError(f"{where}: {problem}", name, line)
