"""Copying the files of a directory that hold no batches."""

import errno
from collections.abc import Callable, Collection

from logfs.config import TopicConfig
from logfs.disk.vfs import REFUSED, Disk, copy_range
from logfs.errors import LogfsError, text_of
from logfs.log import names
from logfs.log.checkpoints import read_leader_epochs, read_partition_metadata
from logfs.log.remote.directory import tiered_sizes
from logfs.log.topics import effective_config, read_properties
from logfs.services.salvage.gaplessfile import GaplessFile


def copy_other_files(source: Disk, target: Disk | None, directory: str) -> list[str]:
    """Copy the small files of a partition, unfinished lines, and what recoveries have cut.

    Args:
        source: The damaged data directory.
        target: The copy; None: nothing is written.
        directory: That of the partition.

    Returns:
        What cannot be copied as it is, a sentence each.
    """
    notes = []
    checks: dict[str, Callable[[], object]] = {
        names.PARTITION_METADATA: lambda: read_partition_metadata(source, directory),
        names.LEADER_EPOCH_CHECKPOINT: lambda: read_leader_epochs(source, directory),
        names.TOPIC_CONFIG: lambda: effective_config(
            TopicConfig(), read_properties(source, directory)
        ),
        names.LOSSES: lambda: None,
    }
    for name, is_directory in source.list(directory):
        path = f"{directory}/{name}"
        is_line = names.parse_unfinished_file(name) is not None
        is_kept = is_line or names.parse_cut_file(name) is not None
        if is_directory or not (name in checks or is_kept):
            continue
        try:
            if name in checks:
                checks[name]()
                data = source.read(path)
                if target is not None:
                    target.replace(path, data)
            elif target is not None and not copy_file(source, target, path):
                notes.append(f"{path}: the disk cannot read all of it")
        except (LogfsError, OSError) as error:
            if isinstance(error, OSError) and not is_of_source(error):
                raise
            notes.append(f"{path} is left out: {text_of(error)}")
    for name, kind in source.contents(directory).irregular:
        notes.append(f"{directory}/{name} is left out: it is a {kind}")
    return notes


def tiered_only(source: Disk, directory: str, bases: Collection[int]) -> list[str]:
    """Return a note about the segments that only the object store has.

    Args:
        bases: The base offsets of the segments in the directory.
    """
    try:
        tiered = set(tiered_sizes(source, directory))
    except (LogfsError, OSError):
        return []
    missing = len(tiered.difference(bases))
    if not missing:
        return []
    return [
        f"{directory}: {missing} segments are in the object store alone, and left out: "
        "'logfs remote fetch' copies them"
    ]


def is_of_source(error: OSError) -> bool:
    """Whether an error says that a file of a damaged directory cannot be read."""
    return error.errno in {errno.EIO, errno.ENOENT, *REFUSED}


def copy_file(source: Disk, target: Disk, path: str) -> bool:
    """Copy a file, with zeros for what the disk cannot read; returns whether it could read all."""
    file = GaplessFile(path, source.open(path, uncached=True))
    try:
        size = file.size()
        copy_range(file, 0, size, target, path)
        return not file.unreadable_in(0, size)
    finally:
        file.close()
