"""Restoring a backup into an empty directory, or single topics into one without an owner process.

All files are copied and none linked, so that later changes do not reach the backup. Existing
partitions are never replaced.

An empty directory gets a manifest that marks it as not whole until all is restored. In another
directory each partition is copied under a name that ends in ``-delete``. The next start of logfs or
of a broker would remove it. The partitions get their own names when all are whole. A partition that
an interrupted attempt has restored is recognized by its files.
"""

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from logfs.disk.vfs import Disk
from logfs.errors import BackupError, TopicExistsError
from logfs.log import checkpoints, names
from logfs.log.attributes import Attributes
from logfs.log.checkpointing import read_checkpoint
from logfs.log.listing import list_partitions
from logfs.log.manifest import UNFINISHED, BackupManifest, check_whole
from logfs.services.backup.copying import Job, copy_stopped, stopped_bytes
from logfs.services.backup.taking import (
    CHECKPOINTS,
    EVERYTHING,
    choose,
    copy_root_files,
    keep_only,
    prepare_target,
    root_bytes,
)
from logfs.types import TopicPartition

KIND = "restore"


def check_source(
    source: Disk, topics: Collection[str], *, is_beside_others: bool = False
) -> list[TopicPartition]:
    """Return the partitions of a backup to restore.

    Args:
        is_beside_others: The target directory contains other topics.

    Raises:
        BackupError: The backup is not whole, or single topics cannot be restored from it.
        NoSuchTopicError: A topic is not in it.
    """
    check_whole(source)
    if is_beside_others and not checkpoints.has_clean_shutdown(source):
        raise BackupError(
            "it was not stopped cleanly since it was written, so single topics cannot be taken "
            "from it: restore all of it into an empty directory"
        )
    return choose(list_partitions(source), topics)


class RestorePlan(NamedTuple):
    """What a restore does: the partitions, and how many bytes are copied for them."""

    partitions: list[TopicPartition]
    size_bytes: int


def plan_restore_all(job: Job, topics: Collection[str] = ()) -> RestorePlan:
    """Return what ``restore_all`` would do; raise BackupError or NoSuchTopicError as it does."""
    found = check_source(job.source, topics)
    size_bytes = sum(stopped_bytes(job, tp, EVERYTHING) for tp in found)
    return RestorePlan(found, size_bytes + root_bytes(job))


def plan_restore_topics(job: Job, topics: Collection[str]) -> RestorePlan:
    """Return what ``restore_topics`` would do; raise as it does."""
    found, present = _check_topics(job, topics)
    missing = [tp for tp in found if tp not in present]
    return RestorePlan(found, sum(stopped_bytes(job, tp, 0, target="") for tp in missing))


def restore_all(job: Job, source: str, topics: Collection[str] = ()) -> list[TopicPartition]:
    """Restore a backup into an empty, locked directory; return the restored partitions.

    Args:
        job: From the backup to the directory, without links.

    Raises:
        ChangedError: Another process is writing to the backup.
        BackupError: The backup is not whole, or the directory not empty.
        NoSuchTopicError: A topic is not in the backup.
    """
    found = check_source(job.source, topics)
    prepare_target(job.target, BackupManifest(UNFINISHED, KIND, source, job.now_ms))
    keep_only(job, found)
    for topic_partition in found:
        copy_stopped(job, topic_partition, EVERYTHING)
    copy_root_files(job)
    for name in CHECKPOINTS:
        rows = read_checkpoint(job.source, name)
        checkpoints.write_offsets(job.target, name, {tp: rows[tp] for tp in found if tp in rows})
    if checkpoints.has_clean_shutdown(job.source):
        checkpoints.write_clean_shutdown(job.target)
    job.target.sync_directory("")
    job.target.remove(names.BACKUP)
    job.target.sync_directory("")
    return found


def restore_topics(job: Job, topics: Collection[str]) -> list[TopicPartition]:
    """Restore topics into a data directory with other topics, which the caller has locked.

    Raises:
        TopicExistsError: One of the topics exists there, and is not the restored one.
        BackupError: The backup was not stopped cleanly, or one of the directories is not whole.
        ChangedError, NoSuchTopicError, OSError: See ``restore_all``.
    """
    found, present = _check_topics(job, topics)
    places = {}
    for topic_partition in found:
        if topic_partition not in present:
            unique = UUID(bytes=job.host.new_id())
            places[topic_partition] = names.format_delete_directory(topic_partition, unique)
            copy_stopped(job, topic_partition, 0, target=places[topic_partition])
    _take_over_rows(job, found)
    _take_over_attributes(job, topics)
    for topic_partition, place in places.items():
        job.target.rename(place, topic_partition.directory)
    job.target.sync_directory("")
    return found


def _check_topics(
    job: Job, topics: Collection[str]
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """Return the partitions to restore, and those of them that an attempt has restored."""
    found = check_source(job.source, topics, is_beside_others=True)
    check_whole(job.target)
    present = [tp for tp in list_partitions(job.target) if tp.topic in topics]
    for topic_partition in present:
        if topic_partition not in found or not _is_restored(job, topic_partition):
            raise TopicExistsError(
                f"topic {topic_partition.topic} exists already, and is not replaced: restore it "
                "into another directory, or delete it first"
            )
    return found, present


def _is_restored(job: Job, topic_partition: TopicPartition) -> bool:
    """Whether a partition of the target has the same files as the backup."""
    directory = topic_partition.directory
    files = [name for name, _ in job.source.list(directory)]
    if {name for name, _ in job.target.list(directory)} != set(files):
        return False
    return all(job.transfer.is_copy(f"{directory}/{name}", job.transfer.target) for name in files)


def _take_over_rows(job: Job, found: Collection[TopicPartition]) -> None:
    """Copy the checkpoints' rows of restored partitions from the backup."""
    with checkpoints.WRITING:
        for name in CHECKPOINTS:
            ours, theirs = read_checkpoint(job.target, name), read_checkpoint(job.source, name)
            rows = {tp: offset for tp, offset in ours.items() if tp not in found}
            rows |= {tp: theirs[tp] for tp in found if tp in theirs}
            checkpoints.write_offsets(job.target, name, rows)


def _take_over_attributes(job: Job, topics: Collection[str]) -> None:
    ours, theirs = Attributes(job.target), Attributes(job.source)
    for topic, partition, found in theirs.all():
        if topic in topics:
            ours.set(topic, partition, mode=found.mode, uid=found.uid, gid=found.gid)
