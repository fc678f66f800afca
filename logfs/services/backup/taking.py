"""Making a whole backup: partition by partition, then the files of the root, the manifest last.

If it is interrupted the backup is unfinished, and ``check_whole`` refuses it. The next attempt
completes it: files that are linked or copied already are kept if they have not changed.
"""

from collections.abc import Collection
from typing import NamedTuple

from logfs.disk.vfs import TEMPORARY_SUFFIX, Disk
from logfs.errors import (
    BackupError,
    LogfsError,
    LogOfflineError,
    NoSuchPartitionError,
    NoSuchTopicError,
)
from logfs.log import checkpoints, names
from logfs.log.checkpointing import read_checkpoint
from logfs.log.cleanercheckpoint import read_cleaner_offsets
from logfs.log.closing import ShutdownNote, last_stop
from logfs.log.listing import list_partitions
from logfs.log.manifest import (
    UNFINISHED,
    WHOLE,
    BackedUp,
    BackupManifest,
    read_manifest,
    write_manifest,
)
from logfs.log.remote.directory import forget_directory_id
from logfs.log.segments.table import SegmentTable, TableEntry
from logfs.services.backup.copying import Job, SourceChangedError, copy_stopped
from logfs.services.backup.live import Ask, DamagedCopyError, back_up_live, backed_up
from logfs.services.backup.storecopies import StoreSource
from logfs.types import TopicPartition

KIND = "backup"
COPIED_ROOT_FILES = (
    names.META_PROPERTIES,
    names.ATTRIBUTES,
    names.BOOTSTRAP_CHECKPOINT,
    names.REMOTE,
)
CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.REPLICATION_OFFSET_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.CLEANER_OFFSET_CHECKPOINT,
)
EVERYTHING = 2**63 - 1
_HARMLESS = frozenset({names.LOCK_FILE, names.BACKUP + TEMPORARY_SUFFIX, "lost+found"})


class _SourceRoot(NamedTuple):
    """The files in the root of the source."""

    is_clean: bool
    note: ShutdownNote | None
    recovery_points: dict[TopicPartition, int]
    start_offsets: dict[TopicPartition, int]
    cleaner_offsets: dict[TopicPartition, int]


def back_up(
    job: Job,
    source: str,
    ask: Ask | None,
    topics: Collection[str] = (),
    store: StoreSource | None = None,
) -> BackupManifest:
    """Make a backup, or complete an interrupted one; durable on return.

    Args:
        job: Source and target; the target is empty or contains that interrupted backup.
        ask: Asks the daemon that owns the source; None: no process owns it.
        store: Its object store, if it has one.

    Returns:
        The manifest; ``problems`` lists partitions that are missing or damaged.

    Raises:
        ChangedError: A process has started to write to the source, which had no owner.
        BackupError: The target contains something else, or see ``back_up_live``.
        NoSuchTopicError: One of the topics does not exist.
    """
    prepare_target(job.target, BackupManifest(UNFINISHED, KIND, source, job.now_ms))
    found = choose(list_partitions(job.source), topics)
    root, done, problems = _read_root(job), list[BackedUp](), list[str]()
    keep_only(job, found)
    for topic_partition in found:
        try:
            row = _back_up(job, topic_partition, ask, root)
        except (NoSuchTopicError, NoSuchPartitionError):
            job.remove_partition(topic_partition)  # deleted since
            continue
        except DamagedCopyError as error:
            problems.append(f"{topic_partition}: {error}")
            row = error.row
        except (LogOfflineError, BackupError) as error:
            problems.append(f"{topic_partition}: {error}")
            if ask is not None:
                job.remove_partition(topic_partition)  # incomplete, but it would load
            continue
        done.append(row)
        if store is not None:
            try:
                store.take(job, row)
            except BackupError as error:
                problems.append(f"{topic_partition}: {error}")
    if ask is None and _read_root(job).is_clean != root.is_clean:
        raise SourceChangedError("a daemon has started")
    _write_root(job, root, done, is_running=ask is not None)
    manifest = BackupManifest(WHOLE, KIND, source, job.now_ms, job.now(), done, problems)
    if store is not None:
        manifest = manifest._replace(
            store=store.url, needs=store.needs, store_warning=store.warning
        )
    job.target.sync_directory("")
    write_manifest(job.target, manifest)
    return manifest


def prepare_target(target: Disk, manifest: BackupManifest) -> None:
    """Write the manifest that claims the target; raise BackupError if other files are there."""
    present = read_manifest(target)
    if present is None:
        names_there = {name for name, _ in target.list("")} - _HARMLESS
        if names_there:
            raise BackupError(
                f"the directory is not empty (it holds {min(names_there)}); "
                f"expected a new or an empty one for the {manifest.kind}"
            )
    elif present.state == WHOLE:
        raise BackupError(
            f"it holds a backup of {present.source} already, a whole one: choose another "
            "directory; '--previous' with this one links what has not changed since"
        )
    elif (present.kind, present.source) != (manifest.kind, manifest.source):
        raise BackupError(
            f"a {present.kind} of {present.source} was interrupted here: complete that, or remove "
            "the directory"
        )
    write_manifest(target, manifest)


def choose(found: Collection[TopicPartition], topics: Collection[str]) -> list[TopicPartition]:
    """Return the partitions of topics (none: of all); raise NoSuchTopicError if one is missing."""
    present = {topic_partition.topic for topic_partition in found}
    for topic in topics:
        if topic not in present:
            raise NoSuchTopicError(f"no topic {topic}")
    return sorted(tp for tp in found if not topics or tp.topic in topics)


def keep_only(job: Job, found: Collection[TopicPartition]) -> None:
    """Remove other partitions, of an interrupted attempt, from the target."""
    for topic_partition in list_partitions(job.target):
        if topic_partition not in found:
            job.remove_partition(topic_partition)


def root_bytes(job: Job) -> int:
    """Return how many bytes ``copy_root_files`` would copy."""
    return sum(job.source.stat(name).size for name in _root_files(job))


def _root_files(job: Job) -> list[str]:
    files = [name for name in COPIED_ROOT_FILES if job.source.exists(name)]
    directory = names.CLUSTER_METADATA_DIRECTORY
    if job.source.exists(directory):
        for name, is_directory in job.source.list(directory):
            if not is_directory and not names.is_on_its_way(name):
                files.append(f"{directory}/{name}")
    return files


def copy_root_files(job: Job) -> None:
    """Copy the files that belong to no partition: of the root, and a broker's cluster metadata.

    The metadata does not change while logfs owns the directory. A broker that opens the copy needs
    it to find its topics.
    """
    directory = names.CLUSTER_METADATA_DIRECTORY
    if job.source.exists(directory):
        job.make_directory(directory)
    for name in _root_files(job):
        job.transfer.copy(name)
    forget_directory_id(job.target)
    if job.source.exists(directory):
        job.target.sync_directory(directory)


def _back_up(
    job: Job, topic_partition: TopicPartition, ask: Ask | None, root: _SourceRoot
) -> BackedUp:
    if ask is not None:
        return back_up_live(job, topic_partition, ask)
    recovery_point = root.recovery_points.get(topic_partition, 0)
    is_durable = root.is_clean and root.note is None
    copy_stopped(job, topic_partition, EVERYTHING if is_durable else recovery_point)
    if root.note is not None:
        _close_copy(job, topic_partition, root.note[topic_partition])
    points, starts = root.recovery_points, root.start_offsets
    try:
        log = job.load_copy(topic_partition, points, starts, is_clean=root.is_clean, read_only=True)
    except LogfsError as error:
        raise BackupError(f"it cannot be loaded: {error}; its files are in the backup") from error
    return backed_up(log)


def _close_copy(job: Job, topic_partition: TopicPartition, entry: TableEntry) -> None:
    """Write the entry of a close with a flush to the segment table: the copy is durable."""
    table = SegmentTable.load(job.target, topic_partition.directory)
    table.put(entry)
    table.sync()
    table.close()


def _read_root(job: Job) -> _SourceRoot:
    found = list_partitions(job.source)
    return _SourceRoot(
        *last_stop(job.source, job.host.boot_id, found),
        read_checkpoint(job.source, names.RECOVERY_POINT_CHECKPOINT),
        read_checkpoint(job.source, names.LOG_START_OFFSET_CHECKPOINT),
        # Read first: segments that are compacted meanwhile are then dirty, which is harmless.
        read_cleaner_offsets(job.source),
    )


def _write_root(job: Job, root: _SourceRoot, done: list[BackedUp], *, is_running: bool) -> None:
    """Write the checkpoint files, then the marker of a clean stop."""
    copy_root_files(job)
    rows: dict[str, dict[TopicPartition, int]] = {name: {} for name in CHECKPOINTS}
    present = [row.topic_partition for row in done]
    if is_running:
        ends = {row.topic_partition: row.end_offset for row in done}
        rows[names.RECOVERY_POINT_CHECKPOINT] = ends
        rows[names.REPLICATION_OFFSET_CHECKPOINT] = ends
        rows[names.LOG_START_OFFSET_CHECKPOINT] = {
            row.topic_partition: row.start_offset for row in done if row.start_offset
        }
        rows[names.CLEANER_OFFSET_CHECKPOINT] = root.cleaner_offsets
    else:
        rows = {name: read_checkpoint(job.source, name) for name in CHECKPOINTS}
        if root.note is not None:
            ends = {row.topic_partition: row.end_offset for row in done}
            rows[names.RECOVERY_POINT_CHECKPOINT] |= ends
    for name in CHECKPOINTS:
        kept = {tp: offset for tp, offset in rows[name].items() if tp in present}
        checkpoints.write_offsets(job.target, name, kept)
    if is_running or root.is_clean:
        checkpoints.write_clean_shutdown(job.target)
