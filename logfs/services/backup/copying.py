"""What every step of a backup or a restore uses, and copying a stopped partition.

A stopped partition is one without an owner process. It is copied file by file. If it was not
stopped cleanly, neither is the copy, and the next start recovers it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.link_or_copy import FileTransfer
from logfs.disk.vfs import Disk
from logfs.log import names
from logfs.log.host import Host
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.loading.context import LoadContext
from logfs.log.loading.loader import load_partition
from logfs.log.names import FileKind, FileSuffix, SegmentFileName, format_segment_file
from logfs.log.partition import PartitionLog
from logfs.log.remote.directory import tiered_sizes, without_store
from logfs.log.segments.segment import OpenSegments
from logfs.types import TopicPartition


class SourceChangedError(Exception):
    """The source has changed while it was copied; the copy has to be made again."""


@dataclass(frozen=True, slots=True)
class Job:
    """A backup or restore that is being made.

    Attributes:
        transfer: Copies and links files from source to target.
        previous: Absolute paths of earlier backups; unchanged files are linked from there.
        pause: Waits a little before another attempt.
        say: Called with a line of text about the progress.
    """

    source: Disk
    target: Disk
    transfer: FileTransfer
    previous: tuple[str, ...]
    host: Host
    now_ms: int
    now: Callable[[], int]
    pause: Callable[[], None]
    say: Callable[[str], None]

    def take_segment(self, directory: str, files: list[str], inodes: dict[str, int]) -> None:
        """Link or copy the files of a settled segment; raise ChangedError if one was replaced."""
        paths = [f"{directory}/{name}" for name in files]
        for root in self.previous:
            if self._are_copies(paths, root) and all(
                self.transfer.reuse(path, root) for path in paths
            ):
                return
        try:
            for path in paths:
                self.transfer.take(path, inodes[path.rpartition("/")[2]])
        except FileNotFoundError as error:
            raise SourceChangedError(str(error)) from error

    def load_copy(
        self,
        topic_partition: TopicPartition,
        recovery_points: dict[TopicPartition, int],
        start_offsets: Mapping[TopicPartition, int],
        *,
        is_clean: bool,
        read_only: bool,
    ) -> PartitionLog:
        """Load a partition of the target: to recover it, or read-only to describe it."""
        disk = without_store(self.target)
        return load_partition(
            LoadContext(
                disk, self.host, OpenSegments(disk), TopicConfig(), is_clean,
                recovery_points, start_offsets, self.now_ms, read_only,
            ),
            topic_partition,
        )  # fmt: skip

    def has_copies(self, paths: list[str]) -> bool:
        """Whether files of the source are below one of the earlier roots, so none is copied."""
        return any(self._are_copies(paths, root) for root in self.previous)

    def _are_copies(self, paths: list[str], root: str) -> bool:
        """Whether the same files are below another root.

        Compaction keeps the time of a file, and maybe the size. But each new text index has a new
        mark.
        """
        if not all(self.transfer.is_copy(path, root) for path in paths):
            return False
        marked = [path for path in paths if path.endswith(FileKind.TEXT_INDEX)]
        return all(
            self.transfer.begins_alike(path, root, TEXT_INDEX.header_bytes) for path in marked
        )

    def clear(self, directory: str, kept: set[str]) -> None:
        """Remove the files of an interrupted attempt from a directory of the target.

        Whole segments that the object store has as well stay: they never change.
        """
        listed = self.target.list(directory)
        tiered = self._tiered(directory)
        for name, is_directory in listed:
            file = names.parse_segment_file(name)
            if name in kept or (file is not None and file.base_offset in tiered):
                continue
            path = f"{directory}/{name}"
            (self.target.remove_tree if is_directory else self.target.remove)(path)

    def _tiered(self, directory: str) -> set[int]:
        """Return the base offsets of tiered segments of which the target has the whole ``.log``."""
        found = set()
        for base_offset, size in tiered_sizes(self.target, directory).items():
            try:
                log = f"{directory}/{format_segment_file(base_offset, FileKind.LOG)}"
                if self.target.stat(log).size == size:
                    found.add(base_offset)
            except FileNotFoundError:
                continue
        return found

    def make_directory(self, directory: str) -> None:
        """Make a directory in the target, unless it exists."""
        if not self.target.exists(directory):
            self.target.make_directory(directory)

    def remove_partition(self, topic_partition: TopicPartition) -> None:
        """Remove a partition from the target."""
        if self.target.exists(topic_partition.directory):
            self.target.remove_tree(topic_partition.directory)


State = dict[str, tuple[int, int, int]]
"""Name -> inode, size and time."""


def state_of(job: Job, directory: str) -> State:
    """Return the state of the files of a directory of the source, without temporary ones."""
    found = {}
    for name, is_directory in job.source.list(directory):
        if not is_directory and not name.endswith((FileSuffix.DELETED, ".tmp")):
            stat = job.source.stat(f"{directory}/{name}")
            found[name] = (stat.inode, stat.size, stat.mtime_ms)
    return found


def stopped_bytes(
    job: Job, topic_partition: TopicPartition, recovery_point: int, *, target: str | None = None
) -> int:
    """Return how many bytes ``copy_stopped`` would copy from a stopped partition; see there."""
    directory = topic_partition.directory
    state = state_of(job, directory)
    size_bytes = 0
    for files in _parts(state, recovery_point, target):
        paths = [f"{directory}/{name}" for name in files.names]
        if not (files.are_settled and job.has_copies(paths)):
            size_bytes += sum(state[name][1] for name in files.names)
    return size_bytes


def copy_stopped(
    job: Job, topic_partition: TopicPartition, recovery_point: int, *, target: str | None = None
) -> None:
    """Copy one partition without an owner process; durable on return.

    Args:
        recovery_point: Its first offset that may not be durable. Segments before it may be linked,
            or may have been copied before.
        target: Another name for its directory in the target; then nothing is linked.

    Raises:
        ChangedError: Another process is writing to the partition.
    """
    directory = topic_partition.directory
    job.make_directory(target or directory)
    before = state_of(job, directory)
    inodes = {name: inode for name, (inode, _, _) in before.items()}
    try:
        for part in _parts(before, recovery_point, target):
            if part.are_settled:
                job.take_segment(directory, part.names, inodes)
            else:
                for name in part.names:
                    job.transfer.copy(f"{directory}/{name}", to=f"{target or directory}/{name}")
            if part.names[0].endswith(FileKind.LOG):
                job.say(f"{directory}: {part.names[0]}")
    except FileNotFoundError as error:
        raise SourceChangedError(str(error)) from error
    if state_of(job, directory) != before:
        raise SourceChangedError(f"{directory} is being written to")
    job.clear(target or directory, set(before))
    job.target.sync_directory(target or directory)


class _Part(NamedTuple):
    """Files of a partition directory that are copied together: of a settled segment, or one."""

    names: list[str]
    are_settled: bool


def _parts(state: State, recovery_point: int, target: str | None) -> Iterator[_Part]:
    """Yield the files of a partition in the order in which they are copied."""
    settled = {} if target is not None else _settled(state, recovery_point)
    for name in state:
        parsed = names.parse_segment_file(name)
        if parsed is None or parsed.base_offset not in settled:
            yield _Part([name], are_settled=False)
        elif parsed.kind is FileKind.LOG:
            rest = [format_segment_file(*file) for file in settled[parsed.base_offset]]
            yield _Part([name, *(file for file in rest if file != name)], are_settled=True)


def _settled(state: State, recovery_point: int) -> dict[int, list[SegmentFileName]]:
    """Return the files of the segments that are durable, sealed, and not being replaced."""
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
