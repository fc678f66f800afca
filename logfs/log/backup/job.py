"""What every step of a backup or a restore is given."""

from collections.abc import Callable
from dataclasses import dataclass

from logfs.disk.transfer import FileTransfer
from logfs.disk.vfs import Disk
from logfs.log.host import Host
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.names import FileKind, SegmentFileName, format_segment_file
from logfs.types import TopicPartition


class ChangedError(Exception):
    """The source has changed while it was copied: what was is taken again."""


@dataclass(frozen=True, slots=True)
class Job:
    """A backup that is being made.

    Attributes:
        source: The data directory.
        target: Where the backup goes.
        transfer: Between these two.
        previous: Absolute paths of earlier copies: what has not changed is linked from there.
        host: The machine.
        now_ms: The clock when it began.
        now: The clock.
        pause: Waits a little; called before something is tried again.
        say: Told what is being done.
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

    def take_segment(
        self, directory: str, files: list[SegmentFileName], inodes: dict[str, int]
    ) -> None:
        """Have the files of a settled segment: from an earlier copy, by links, or copied now.

        Raises:
            ChangedError: One is gone, or another by now.
        """
        paths = [f"{directory}/{format_segment_file(*file)}" for file in files]
        for root in self.previous:
            if self._are_copies(paths, root) and all(
                self.transfer.reuse(path, root) for path in paths
            ):
                return
        try:
            for path in paths:
                self.transfer.take(path, inodes[path.rpartition("/")[2]])
        except FileNotFoundError as error:
            raise ChangedError(str(error)) from error

    def _are_copies(self, paths: list[str], root: str) -> bool:
        """Whether the same files lie below another root.

        Compaction keeps the time of what it rewrites, and maybe the size; but it marks the text
        index.
        """
        if not all(self.transfer.is_copy(path, root) for path in paths):
            return False
        marked = [path for path in paths if path.endswith(FileKind.TEXT_INDEX)]
        return all(
            self.transfer.begins_alike(path, root, TEXT_INDEX.header_bytes) for path in marked
        )

    def clear(self, directory: str, kept: set[str]) -> None:
        """Remove what an interrupted attempt has left in a directory of the target."""
        for name, is_directory in self.target.list(directory):
            if name in kept:
                continue
            path = f"{directory}/{name}"
            (self.target.remove_tree if is_directory else self.target.remove)(path)

    def make_directory(self, directory: str) -> None:
        """Make a directory in the target, if it is not there."""
        if not self.target.exists(directory):
            self.target.make_directory(directory)

    def loose(self, topic_partition: TopicPartition) -> None:
        """Remove a partition from the target."""
        if self.target.exists(topic_partition.directory):
            self.target.remove_tree(topic_partition.directory)
