"""Deleted topics, and their restoration until their files are removed.

Like Kafka, deletion renames each partition directory to ``orders-0.UNIQUE-delete``. The directories
are removed after ``file.delete.delay.ms``; a restart does not shorten that. Until then the topic
can be restored: its directories get their old names, and are loaded.

The rows of a deleted topic are removed from the small files of the root. Before that they are
copied into a plain file in each of its directories, ``logfs.deleted``, in JSON:

    {"version": 1, "topic": "orders", "deleted_ms": 1700000000000, "start_offset": 1500,
     "recovery_point": 2000, "topic_ownership": {"mode": 448}, "partition_ownership": {}}

The unique part of the name is the topic's id, if it has one. A stop in the middle of a deletion
leaves only some partitions of a topic deleted: the next start restores their names. A topic is
created under such names too, so a start completes its creation in the same way. A broker uses
random names: a directory that it was about to delete, because the partition has moved to another
broker, is never restored by a start.

A topic can be deleted on a full disk too, so the file may be missing. Then a restored topic starts
at its first segment, and only its owner may use it.

Source: Kafka LogManager.asyncDelete, deleteLogs, addLogToBeDeleted.
"""

import contextlib
import json
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from logfs.disk.remote.overlay import local_part
from logfs.disk.vfs import Disk
from logfs.errors import LogfsError, NoSuchTopicError, TopicNotEmptyError
from logfs.log import names
from logfs.log.attributes import Attributes, Ownership, ownership_of, set_fields
from logfs.log.checkpoints import read_partition_metadata
from logfs.log.host import Host
from logfs.log.lines.writer import has_unfinished
from logfs.log.names import DirectoryState
from logfs.log.partition import PartitionLog
from logfs.log.remote.of_disk import catalog_of
from logfs.log.topiclocks import TopicLocks
from logfs.records.jsontext import decode_json
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

VERSION = 1
_KEPT = frozenset({names.TIERED, names.OWNED, names.PARTITION_METADATA, names.DELETED})
_NOT_KNOWN = Ownership(mode=0o700), Ownership(mode=0o600)


class DeletionNote(NamedTuple):
    """The rows of a partition in the files of the root when its topic was deleted."""

    topic: str
    deleted_ms: int
    start_offset: int
    recovery_point: int
    topic_ownership: Ownership
    partition_ownership: Ownership


class DeletedPartition(NamedTuple):
    """A partition directory that waits for its removal.

    Attributes:
        topic_partition: The partition, before deletion and after restoration.
        due_ms: Clock; it is removed from then on.
        note: The content of ``logfs.deleted``; None without one.
        log: The log that open files read; None if the directory was found at the start.
    """

    directory: str
    topic_partition: TopicPartition
    due_ms: int
    note: DeletionNote | None = None
    log: PartitionLog | None = None


class DeletedPartitions:
    """The partition directories of a store that wait for their removal.

    Args:
        locks: Held while those of a topic are deleted, restored or removed.

    Attributes:
        tiered: Those without segments, which wait until the object store has removed its own.
    """

    def __init__(self, disk: Disk, locks: TopicLocks) -> None:
        self._disk = disk
        self._locks = locks
        self._waiting: list[DeletedPartition] = []
        self.tiered: list[DeletedPartition] = []
        self._restored: list[PartitionLog] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of the logs that were deleted since the start and are still on the disk."""
        logs = [row.log for row in list(self._waiting) if row.log is not None]
        return sum(log.snapshot.size_bytes for log in logs)

    def delete(
        self,
        logs: Iterable[tuple[PartitionLog, str]],
        attributes: Attributes,
        now_ms: int,
        delay_ms: int,
    ) -> None:
        """Rename the partition directories of a topic; they are removed after a delay.

        Args:
            logs: The partitions and the new names; open files continue to read them.

        Raises:
            OSError: One could not be renamed; all are as they were.
        """
        done: list[PartitionLog] = []
        rows: list[DeletedPartition] = []
        try:
            for log, directory in logs:
                note = self._delete(log, directory, attributes, now_ms, is_kept=delay_ms > 0)
                done.append(log)
                due_ms = now_ms + delay_ms
                rows.append(DeletedPartition(directory, log.topic_partition, due_ms, note, log))
        except OSError:
            for log in reversed(done):
                with contextlib.suppress(OSError):  # the next start does it
                    log.undelete()
                    forget_note(self._disk, log.directory)
            raise
        self._waiting += rows

    def _delete(
        self,
        log: PartitionLog,
        directory: str,
        attributes: Attributes,
        now_ms: int,
        *,
        is_kept: bool,
    ) -> DeletionNote:
        topic, number = log.topic_partition
        note = DeletionNote(
            topic,
            now_ms,
            log.log_start_offset,
            log.recovery_point,
            attributes.get(topic, None),
            attributes.get(topic, number),
        )
        if is_kept and not log.is_unreadable:
            _write_note(self._disk, log.directory, note)
        log.delete(directory)
        return note

    def find(self, now_ms: int, delay_ms: int) -> None:
        """Find the directories that an earlier owner has left; each waits until it is due."""
        for name, is_directory in self._disk.list(""):
            parsed = names.parse_partition_directory(name) if is_directory else None
            if parsed is None or parsed.state is not DirectoryState.DELETE:
                continue
            note = _read_note(self._disk, name)
            topic = parsed.topic if note is None else note.topic
            topic_partition = TopicPartition(topic, parsed.partition)
            if note is not None:
                deleted_ms = min(note.deleted_ms, now_ms)
            else:
                # Others are due at once: a broker's, a part of what a restore was to bring, or of a
                # topic that was not created as a whole.
                is_ours = name == _own_directory(self._disk, topic_partition, name)
                is_ours &= self._disk.exists(f"{name}/{names.SEGMENT_TABLE}")
                deleted_ms = now_ms if is_ours else now_ms - delay_ms
            row = DeletedPartition(name, topic_partition, deleted_ms + delay_ms, note)
            self._waiting.append(row)

    def undo_interrupted(self, found: Collection[TopicPartition]) -> list[TopicPartition]:
        """Restore and return the partitions whose topic was not completely deleted."""
        left = {topic_partition.topic: topic_partition for topic_partition in found}
        undone = [
            row
            for row in self._waiting
            if row.topic_partition.topic in left
            and row.topic_partition not in found
            and row.directory
            == _own_directory(
                self._disk, row.topic_partition, left[row.topic_partition.topic].directory
            )
        ]
        if not undone:
            return []
        try:
            self.restore(undone)
        except OSError as error:
            logger.warning("a creation or deletion of topics stays interrupted: %s", error)
            return []
        for row in undone:
            logger.warning(
                "%s: the creation or deletion of its topic was interrupted; the partition is kept",
                row.topic_partition,
            )
            with contextlib.suppress(OSError):
                forget_note(self._disk, row.topic_partition.directory)
        return [row.topic_partition for row in undone]

    def remove_due(self, now_ms: int, only: str | None = None) -> None:
        """Remove the due directories that no open file reads; those of one topic if it is given."""
        for row in list(self._waiting):
            topic = row.topic_partition.topic
            if row.due_ms <= now_ms and only in (None, topic):
                with self._locks.held(topic):
                    self._remove(row)

    def _remove(self, row: DeletedPartition) -> None:
        if _is_pinned(row.log) or row not in self._waiting:
            return
        self._waiting.remove(row)
        if row.log is not None:
            row.log.close_files()
        try:
            # A power cut that undid the new name must not find half of the files removed.
            self._disk.sync_directory("")
            if self._has_objects(row.directory):
                self._remove_segments(row.directory)
                self.tiered.append(row)
            else:
                self.forget(row)
        except OSError as error:
            logger.warning("%s, of a deleted topic, could not be removed: %s", row.directory, error)

    def close_replaced(self) -> None:
        """Close the files of logs that others have replaced and no open file reads. One thread."""
        for log in [log for log in self._restored if not log.removal.is_pinned]:
            self._restored.remove(log)
            log.close_files()

    def close_later(self, log: PartitionLog) -> None:
        """Close the files of a log that another one has replaced, once no open file reads it."""
        self._restored.append(log)

    def forget(self, row: DeletedPartition) -> None:
        """Remove a directory, and what is known of its tiered segments."""
        self._disk.remove_tree(row.directory)
        with contextlib.suppress(ValueError):
            self.tiered.remove(row)
        catalog = catalog_of(self._disk)
        if catalog is not None:
            catalog.forget(row.directory)

    def _has_objects(self, directory: str) -> bool:
        catalog = catalog_of(self._disk)
        return catalog is not None and catalog.local.exists(f"{directory}/{names.TIERED}")

    def _remove_segments(self, directory: str) -> None:
        """Remove all files but those that name the objects of the partition."""
        local = local_part(self._disk)
        for name in local.contents(directory).files:
            if name not in _KEPT:
                local.remove(f"{directory}/{name}")

    def latest(self, topic: str) -> list[DeletedPartition]:
        """Return the directories of the last deletion of a topic; raise NoSuchTopicError."""
        topics: dict[object, dict[int, DeletedPartition]] = {}
        for row in sorted(self._waiting, key=lambda row: row.due_ms):
            if row.topic_partition.topic == topic:
                rows = topics.setdefault(_topic_id(self._disk, row.directory), {})
                rows[row.topic_partition.partition] = row
        if not topics:
            left = sorted({row.topic_partition.topic for row in list(self._waiting)})
            raise NoSuchTopicError(
                f"no deleted topic {topic} is left to restore; "
                + (f"these are left: {', '.join(left)}" if left else "nor is any other one")
            )
        found = max(topics.values(), key=lambda rows: max(row.due_ms for row in rows.values()))
        return [found[number] for number in sorted(found)]

    def restore(self, rows: Iterable[DeletedPartition]) -> None:
        """Restore the names of directories, durable on return; all or (OSError) none."""
        done: list[DeletedPartition] = []
        try:
            for row in rows:
                self._disk.rename(row.directory, row.topic_partition.directory)
                done.append(row)
            self._disk.sync_directory("")
        except OSError:
            for row in reversed(done):
                with contextlib.suppress(OSError):
                    self._disk.rename(row.topic_partition.directory, row.directory)
            raise
        for row in done:
            self._waiting.remove(row)
            if row.log is not None:
                row.log.move(row.topic_partition.directory)
                self._restored.append(row.log)


def deleted_name_of(disk: Disk, log: PartitionLog, host: Host) -> str:
    """Return the name of the directory of a partition that is about to be deleted."""
    topic_id = None if log.topic_id is None else names.parse_topic_id(log.topic_id)
    return free_deleted_name(disk, log.topic_partition, topic_id, host)


def free_deleted_name(
    disk: Disk, topic_partition: TopicPartition, topic_id: UUID | None, host: Host
) -> str:
    """Return an unused name for a deleted partition, with the topic id unless that is used."""
    if topic_id is not None:
        name = names.format_delete_directory(topic_partition, topic_id)
        if not disk.exists(name):
            return name
    return names.format_delete_directory(topic_partition, UUID(bytes=host.new_id()))


def remembered(rows: Iterable[DeletedPartition]) -> dict[int | None, Ownership]:
    """Return the owners and modes of a restored topic, in the form of ``Attributes.put``."""
    found: dict[int | None, Ownership] = {}
    for row in rows:
        topic, partition = _NOT_KNOWN
        if row.note is not None:
            topic, partition = row.note.topic_ownership, row.note.partition_ownership
        else:
            logger.warning(
                "%s: its owner and mode are lost: only the owner of the mount may use it",
                row.topic_partition,
            )
        found[None] = topic
        found[row.topic_partition.partition] = partition
    return found


def forget_note(disk: Disk, directory: str) -> None:
    """Remove the note of a partition that was restored."""
    name = f"{directory}/{names.DELETED}"
    if disk.exists(name):
        disk.remove(name)


def check_empty(logs: Iterable[PartitionLog]) -> None:
    """Refuse to delete a topic that holds records or unfinished lines.

    Raises:
        TopicNotEmptyError: It holds some, or a partition cannot tell because it is offline.
    """
    for log in logs:
        records = log.log_end_offset - log.log_start_offset
        if log.offline is not None:
            found = f"is offline ({log.offline})"
        elif records:
            found = f"holds offsets {log.log_start_offset} to {log.log_end_offset - 1}"
        elif has_unfinished(log):
            found = "holds an unfinished line of an open file"
        else:
            continue
        raise TopicNotEmptyError(
            f"{log.topic_partition} {found}; 'logfs topic delete' deletes a topic with its records"
        )


def _is_pinned(log: PartitionLog | None) -> bool:
    return log is not None and log.removal.is_pinned


def _own_directory(disk: Disk, topic_partition: TopicPartition, of_same_topic: str) -> str | None:
    """Return the name that logfs gives to a deleted partition; None without a topic id.

    ``of_same_topic`` is any directory of the same topic.
    """
    topic_id = _topic_id(disk, of_same_topic)
    return None if topic_id is None else names.format_delete_directory(topic_partition, topic_id)


def _topic_id(disk: Disk, directory: str) -> UUID | None:
    try:
        return read_partition_metadata(disk, directory)
    except (LogfsError, OSError):
        return None


def _write_note(disk: Disk, directory: str, note: DeletionNote) -> None:
    fields: dict[str, object] = {"version": VERSION, **note._asdict()}
    for key in ("topic_ownership", "partition_ownership"):
        fields[key] = set_fields(getattr(note, key))
    try:
        disk.replace(f"{directory}/{names.DELETED}", (json.dumps(fields) + "\n").encode())
    except OSError as error:
        logger.warning("%s: deleted without a note for its restoration: %s", directory, error)


def _read_note(disk: Disk, directory: str) -> DeletionNote | None:
    try:
        return decode_json(disk.read(f"{directory}/{names.DELETED}"), _parse_note)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning("%s/%s does not parse: %s", directory, names.DELETED, error)
        return None


def _parse_note(data: Mapping[str, Any]) -> DeletionNote:
    if data["version"] != VERSION:
        raise ValueError(f"version {data['version']}, this logfs reads {VERSION}")
    numbers = [data[key] for key in ("deleted_ms", "start_offset", "recovery_point")]
    if not isinstance(data["topic"], str) or not all(type(n) is int and n >= 0 for n in numbers):
        raise TypeError("expected a name and numbers")
    owners = [ownership_of(data[f"{what}_ownership"]) for what in ("topic", "partition")]
    return DeletionNote(data["topic"], *numbers, *owners)
