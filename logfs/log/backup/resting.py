"""A partition that nobody owns, copied file by file: what is in the copy is what was there.

If it was not stopped cleanly, the copy was not either, and whoever opens it recovers it.
"""

from itertools import pairwise

from logfs.log import names
from logfs.log.backup.job import ChangedError, Job
from logfs.log.names import FileKind, FileSuffix, SegmentFileName, format_segment_file
from logfs.types import TopicPartition

State = dict[str, tuple[int, int, int]]
"""Name -> inode, size and time."""


def state_of(job: Job, directory: str) -> State:
    """Return what the files of a directory of the source are, but for those on their way."""
    found = {}
    for name, is_directory in job.source.list(directory):
        if not is_directory and not name.endswith((FileSuffix.DELETED, ".tmp")):
            stat = job.source.stat(f"{directory}/{name}")
            found[name] = (stat.inode, stat.size, stat.mtime_ms)
    return found


def copy_resting(
    job: Job, topic_partition: TopicPartition, recovery_point: int, *, target: str | None = None
) -> None:
    """Copy one partition; it is durable when this returns.

    Args:
        job: The backup or restore.
        topic_partition: Which one.
        recovery_point: First offset of it that may not be durable: the segments before it may
            be linked, or have been copied before.
        target: The directory that it becomes; its own by default. All of it is copied then.

    Raises:
        ChangedError: Somebody writes it.
        OSError: The disk failed.
    """
    directory = topic_partition.directory
    job.make_directory(target or directory)
    before = state_of(job, directory)
    inodes = {name: inode for name, (inode, _, _) in before.items()}
    settled = _settled(before, recovery_point)
    try:
        for name in before:
            parsed = names.parse_segment_file(name)
            if target is not None:
                job.transfer.copy(f"{directory}/{name}", to=f"{target}/{name}")
            elif parsed is None or parsed.base_offset not in settled:
                job.transfer.copy(f"{directory}/{name}")
            if parsed is not None and parsed.kind is FileKind.LOG:
                if target is None and parsed.base_offset in settled:
                    job.take_segment(directory, settled[parsed.base_offset], inodes)
                job.say(f"{directory}: {name}")
    except FileNotFoundError as error:
        raise ChangedError(str(error)) from error
    if state_of(job, directory) != before:
        raise ChangedError(f"{directory} is being written")
    job.clear(target or directory, set(before))
    job.target.sync_directory(target or directory)


def _settled(state: State, recovery_point: int) -> dict[int, list[SegmentFileName]]:
    """Return the files of the segments that are durable, sealed, and not about to be replaced."""
    files: dict[int, list[SegmentFileName]] = {}
    unsettled = set()
    for name in state:
        parsed = names.parse_segment_file(name)
        if parsed is not None:
            files.setdefault(parsed.base_offset, []).append(parsed)
            if parsed.suffix is not FileSuffix.NONE:
                unsettled.add(parsed.base_offset)
    bases = sorted(base for base in files if format_segment_file(base, FileKind.LOG) in state)
    sealed = [base for base, behind in pairwise(bases) if behind <= recovery_point]
    return {base: files[base] for base in sealed if base not in unsettled}
