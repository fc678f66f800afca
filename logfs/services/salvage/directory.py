"""Copying what can be read of a data directory."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.errors import LogfsError, text_of
from logfs.log import checkpoints, names
from logfs.log.checkpointing import read_checkpoint
from logfs.log.cleanercheckpoint import read_cleaner_offsets
from logfs.log.listing import list_partitions
from logfs.log.manifest import UNFINISHED, BackupManifest
from logfs.log.topics import effective_config, read_properties
from logfs.services.backup.taking import choose, prepare_target
from logfs.services.salvage.otherfiles import copy_file, is_of_source
from logfs.services.salvage.partition import Known, PartitionSalvage
from logfs.services.salvage.report import SalvagedPartition
from logfs.types import TopicPartition

KIND = "salvage"
_ROOT_FILES = (names.META_PROPERTIES, names.ATTRIBUTES, names.BOOTSTRAP_CHECKPOINT)


@dataclass(slots=True)
class Salvaged:
    """A salvaged data directory.

    Attributes:
        notes: Files and directories that were not copied, a sentence each.
    """

    partitions: list[SalvagedPartition] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether everything was copied as it is."""
        return not (self.notes or any(one.gone or one.notes for one in self.partitions))


def salvage(
    source: Disk,
    source_name: str,
    target: Disk | None,
    topics: Collection[str],
    now_ms: int,
    count: Callable[[int], object],
) -> Salvaged:
    """Copy what can be read of a data directory into an empty one; durable on return.

    Nothing is written to the source. While it runs the target has a manifest, because of which
    no command opens it.

    Args:
        source: No process may write it.
        target: The copy; None: only read, and return what would be copied.
        topics: Only these; none: all.
        count: Called with numbers of bytes as they are read.

    Raises:
        BackupError: The target is not empty.
        NoSuchTopicError: One of the topics is not there.
        OSError: The target cannot be written, or the root of the source not be listed.
    """
    found = choose(list_partitions(source), topics)
    result = Salvaged()
    if target is not None:
        prepare_target(target, BackupManifest(UNFINISHED, KIND, source_name, now_ms))
        for name, is_directory in target.list(""):
            if is_directory and names.parse_partition_directory(name) is not None:
                target.remove_tree(name)  # of an interrupted attempt
        _copy_root_files(source, target, found, result)
    cleaned = read_cleaner_offsets(source)
    ends = [
        read_checkpoint(source, name)
        for name in (names.RECOVERY_POINT_CHECKPOINT, names.REPLICATION_OFFSET_CHECKPOINT)
    ]
    for one in found:
        copier = PartitionSalvage(
            source,
            target,
            one,
            known=Known(
                one in cleaned or _is_compacted(source, one),
                max(rows.get(one, 0) for rows in ends),
            ),
            now_ms=now_ms,
            count=count,
        )
        try:
            result.partitions.append(copier.run())
        except OSError as error:
            if not is_of_source(error):
                raise
            result.notes.append(f"{one.directory} is left out: {text_of(error)}")
    result.notes += _others(source)
    if target is not None:
        target.sync_directory("")
        target.remove(names.BACKUP)
        target.sync_directory("")
    return result


def _is_compacted(source: Disk, one: TopicPartition) -> bool:
    try:
        properties = read_properties(source, one.directory)
        return effective_config(TopicConfig(), properties).is_compacted
    except (LogfsError, OSError):
        return False


def _copy_root_files(
    source: Disk, target: Disk, found: Collection[TopicPartition], result: Salvaged
) -> None:
    """Copy the files that belong to no partition, and where its partitions start."""
    files = [name for name in _ROOT_FILES if source.exists(name)]
    directory = names.CLUSTER_METADATA_DIRECTORY
    if source.exists(directory):
        if not target.exists(directory):
            target.make_directory(directory)
        files += [
            f"{directory}/{name}"
            for name, is_directory in source.list(directory)
            if not is_directory and not names.is_on_its_way(name)
        ]
    for name in files:
        try:
            if not copy_file(source, target, name):
                result.notes.append(f"{name}: the disk cannot read all of it")
        except OSError as error:
            if not is_of_source(error):
                raise
            result.notes.append(f"{name} is left out: {text_of(error)}")
    if source.exists(directory):
        target.sync_directory(directory)
    starts = read_checkpoint(source, names.LOG_START_OFFSET_CHECKPOINT)
    kept = {one: offset for one, offset in starts.items() if one in found}
    checkpoints.write_offsets(target, names.LOG_START_OFFSET_CHECKPOINT, kept)


def _others(source: Disk) -> list[str]:
    """Return a note for each partition directory that belongs to no topic."""
    notes = []
    for name, is_directory in source.list(""):
        parsed = names.parse_partition_directory(name) if is_directory else None
        if parsed is not None and parsed.state is not names.DirectoryState.NONE:
            notes.append(
                f"{name} is left out: it belongs to no topic. To have it, copy it without the "
                "suffix into another directory, and salvage that"
            )
    return notes
