"""A close that syncs nothing: the plain file ``logfs.closed`` in the root of a data directory.

It says that everything was written and nothing has to be scanned, for as long as the machine runs
and the file system stays mounted: the page cache is as good as the disk until then. It is JSON:

    version    1; what another logfs wrote says nothing, so the logs are recovered
    boot       boot id of the machine; another one may have lost bytes, so the logs are recovered
    mount      which mount of the file system it was, as ``Disk.mount_id`` has it; likewise
    logs       by partition directory: the *entry* of its last segment, closed, as the segment table
               has entries (hex), and the time of change of its ``.log``, *mtime_ms*

The tables themselves keep their open entry, with the reservation, and the recovery points stay
where the last flush put them: after a power cut everything is as after any other. The note is
neither synced when it is made nor when it is removed, since what a power cut does to it can only be
found under another boot id. It is also ignored after another process has written: a killed broker
leaves a last segment that is another one, or has another size or time; one that was stopped,
Kafka's marker.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from logfs.disk.vfs import Disk
from logfs.errors import LogfsError
from logfs.log import checkpoints, names
from logfs.log.checkpointing import read_checkpoint, write_checkpoints
from logfs.log.listing import list_partition
from logfs.log.names import DirectoryState, FileKind, format_segment_file
from logfs.log.segments.table import ENTRY_BYTES, TableEntry, decode_entries, encode_entry
from logfs.records.jsontext import decode_json
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from logfs.log.partition import PartitionLog

logger = logging.getLogger(__name__)

_VERSION = 1

ShutdownNote = Mapping[TopicPartition, TableEntry]
"""The last segment of each partition, closed, after a close that synced nothing."""


class LastStop(NamedTuple):
    """How the last owner of a data directory stopped.

    Attributes:
        is_clean: Nothing needs to be scanned.
        note: The note that holds only until the machine stops; None after a stop that flushed.
    """

    is_clean: bool
    note: ShutdownNote | None = None


def fast_close(disk: Disk, boot_id: str, logs: Sequence["PartitionLog"]) -> None:
    """Close the partitions of a store without a flush; no note if anything cannot be written."""
    try:
        noted = read_checkpoint(disk, names.RECOVERY_POINT_CHECKPOINT)
        if any(log.recovery_point > noted.get(log.topic_partition, 0) for log in logs):
            write_checkpoints(disk, logs)  # what was flushed need not be scanned after a power cut
        if all(log.offline is None for log in logs):
            write_note(disk, boot_id, {log.topic_partition: log.fast_close() for log in logs})
    except (LogfsError, OSError) as error:
        logger.warning("it could not be closed cleanly: %s", error)
    finally:
        for log in logs:
            log.close_files()


def write_note(disk: Disk, boot_id: str, note: ShutdownNote) -> None:
    """Leave the note; only after everything else is written and closed."""
    logs = {
        topic_partition.directory: {
            "entry": encode_entry(entry).hex(),
            "mtime_ms": disk.stat(_log_name(topic_partition, entry)).mtime_ms,
        }
        for topic_partition, entry in note.items()
    }
    content = {"version": _VERSION, "boot": boot_id, "mount": disk.mount_id(), "logs": logs}
    file = disk.open(names.CLOSED, write=True, create=True)
    try:
        file.truncate(0)
        file.pwrite(json.dumps(content).encode(), 0)
    finally:
        file.close()


def remove_note(disk: Disk) -> None:
    """Remove the note, before anything is written."""
    try:
        disk.remove(names.CLOSED)
    except FileNotFoundError:
        return


def last_stop(disk: Disk, boot_id: str, partitions: Iterable[TopicPartition]) -> LastStop:
    """Find out how the last owner of a data directory stopped; nothing owns it now."""
    if checkpoints.has_clean_shutdown(disk):
        return LastStop(True)
    note = _read_note(disk, boot_id)
    if note is None or not all(_is_unchanged(disk, tp, note.get(tp)) for tp in partitions):
        return LastStop(False)
    return LastStop(True, {tp: entry for tp, (entry, _) in note.items()})


def _read_note(disk: Disk, boot_id: str) -> dict[TopicPartition, tuple[TableEntry, int]] | None:
    """Read the note; None if there is none of this boot, or it is torn."""

    def build(
        content: Mapping[str, Any],
    ) -> dict[TopicPartition, tuple[TableEntry, int]] | None:
        is_known = content["version"] == _VERSION and content["mount"] is not None
        if not is_known or (content["boot"], content["mount"]) != (boot_id, disk.mount_id()):
            return None
        return {
            _parse_directory(directory): (_parse_entry(row["entry"]), int(row["mtime_ms"]))
            for directory, row in content["logs"].items()
        }

    try:
        return decode_json(disk.read(names.CLOSED), build)
    except (ValueError, LogfsError):
        return None
    except OSError:
        return None  # it is not there, or cannot be read


def _parse_directory(directory: str) -> TopicPartition:
    parsed = names.parse_partition_directory(directory)
    if parsed is None or parsed.state is not DirectoryState.NONE:
        raise ValueError(f"{directory} is not the directory of a partition")
    return TopicPartition(parsed.topic, parsed.partition)


def _parse_entry(text: str) -> TableEntry:
    data = bytes.fromhex(text)
    (entry,) = decode_entries(data, 0) if len(data) == ENTRY_BYTES else []
    return entry


def _is_unchanged(
    disk: Disk, topic_partition: TopicPartition, noted: tuple[TableEntry, int] | None
) -> bool:
    """Whether a partition ends just as it did when the note was written."""
    if noted is None:
        return False
    entry, mtime_ms = noted
    try:
        found = disk.stat(_log_name(topic_partition, entry))
    except OSError:  # gone, or no regular file
        return False
    bases = list_partition(disk, topic_partition.directory).inodes(FileKind.LOG)
    if max(bases, default=-1) != entry.base_offset:
        return False
    return (found.size, found.mtime_ms) == (entry.size_bytes, mtime_ms)


def _log_name(topic_partition: TopicPartition, entry: TableEntry) -> str:
    return f"{topic_partition.directory}/{format_segment_file(entry.base_offset, FileKind.LOG)}"
