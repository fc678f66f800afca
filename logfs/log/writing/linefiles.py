"""The files of the unfinished lines of a partition: which of them still say something, and when.

What they must not do is in ``unfinished``: this is where the three rules are kept.
"""

import contextlib
import logging
import threading
from collections.abc import Iterable

from logfs.disk.vfs import Disk
from logfs.log.writing._end import PartitionLock
from logfs.log.writing.unfinished import UnfinishedFile
from logfs.records.layout import NO_OFFSET

logger = logging.getLogger(__name__)


class LineFiles:
    """The ``.unfinished`` files of one partition.

    Args:
        lock: The lock of the partition. ``sync`` takes it; for the others the caller has it.
        is_durable: A power cut brings back no file that an earlier owner removed before it was
            synced. Loading makes sure of that, unless the disk is full.

    Attributes:
        void: Files whose last announcement could not be cut off. Nothing may be appended before
            ``cut_void``.
    """

    def __init__(
        self, disk: Disk, directory: str, lock: PartitionLock, *, is_durable: bool
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._lock = lock
        self._syncing = threading.Lock()
        self._open: set[UnfinishedFile] = set()
        self._unsynced: set[UnfinishedFile] = set()
        self._unsynced_names: set[str] = set()  # of files without a writer
        self._outlived: list[tuple[int, str]] = []
        # The first removal may be of an earlier owner, and not durable.
        self._removals = 1
        self._unsynced_removal = 0 if is_durable else 1
        self._synced_removals = 0
        self._announcements = 0
        self.void: list[UnfinishedFile] = []

    @property
    def are_settled(self) -> bool:
        """Whether ``sync`` and ``remove_durable`` would do nothing."""
        self._note_announcements()
        has_unsynced = self._unsynced or self._unsynced_names
        return not (self._outlived or has_unsynced or self._has_unsynced_removal)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of all unfinished lines. Any thread."""
        return sum(file.line_bytes for file in list(self._open))

    @property
    def _has_unsynced_removal(self) -> bool:
        return self._unsynced_removal > self._synced_removals

    def _note_announcements(self) -> None:
        """Note the files in which a native thread has announced batches. Any thread."""
        announcements = self._lock.announcements
        if announcements != self._announcements:
            self._unsynced.update(f for f in list(self._open) if f.has_unsynced_announcement)
            self._announcements = announcements

    def consumed_names(self) -> set[str]:
        """Return the names of files, without directory, whose lines are all records."""
        names = [file.name for file in self._open if not file.line_bytes]
        names += [name for _, name in self._outlived]
        return {name.rpartition("/")[2] for name in names}

    # What writers tell of their files

    def add(self, file: UnfinishedFile) -> None:
        """Note the file of a writer; until ``release``, ``discard`` or ``outlive``.

        Its writer cuts off what an earlier writer of the same file could not.
        """
        self._open.add(file)
        self.void = [void for void in self.void if void.name != file.name]

    def announced(self, file: UnfinishedFile) -> None:
        """Note that a batch is announced in a file, before it is appended."""
        if file.has_unsynced_announcement:
            self._unsynced.add(file)

    def cancel(self, file: UnfinishedFile) -> None:
        """Take back an announcement: its batch was not appended."""
        try:
            file.cancel()
        except OSError as error:
            logger.warning("%s: an announcement could not be cut off: %s", file.name, error)
        self.note_void(file)

    def note_void(self, file: UnfinishedFile) -> None:
        """Note a file if something in it says what did not happen."""
        if file.is_void and file not in self.void:
            self.void.append(file)

    def find_void(self) -> None:
        """Note the files in which a native thread could not cut off what did not happen."""
        for file in _in_order(self._open):
            self.note_void(file)

    def cut_void(self) -> None:
        """Cut off what did not happen from the files in which that failed so far.

        Raises:
            OSError: It cannot be done now either.
        """
        while self.void:
            self.void[-1].cut_void()
            self.void.pop()

    def release(self, file: UnfinishedFile) -> None:
        """Note that a file waits, with its line, for room or for the next loading of the log."""
        self._open.discard(file)
        self._unsynced.discard(file)
        self._unsynced_names.add(file.name)
        file.close()

    def discard(self, file: UnfinishedFile) -> None:
        """Remove a file in which nothing is needed any more, unless it is to outlive its writer."""
        if file not in self._open:
            return
        self._open.discard(file)
        offset = file.first_announced or 0
        try:
            self._remove_open(file)
        except OSError as error:
            logger.warning("%s could not be removed: %s", file.name, error)
            file.close()
            self.remove_when_durable(file.name, offset)

    def outlive(self, file: UnfinishedFile, offset: int) -> None:
        """Keep a file until the record that its line has become, at an offset, is durable."""
        self._open.discard(file)
        file.close()
        self._outlived.append((offset, file.name))

    def remove_when_durable(self, name: str, offset: int) -> None:
        """Remove a file, which an earlier owner left, once the record at an offset is durable."""
        self._outlived.append((offset, name))
        self._unsynced_names.add(name)

    # What the log does about them

    def sync(self) -> None:
        """Keep a power cut from showing lines of which records are durable beside these records.

        For every record that was appended before the call. Any thread, with or without the lock.

        Raises:
            OSError: It may.
        """
        self._note_announcements()
        if not (self._unsynced or self._unsynced_names or self._has_unsynced_removal):
            return
        with self._lock:
            files, names = _in_order(self._unsynced), sorted(self._unsynced_names)
            removals = self._removals
        # Without taking the lock: a caller may have it, as it waits for another one in here.
        with self._syncing:
            for file in files:
                file.sync_announcement()
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # settled meanwhile
                    self._disk.open(name).sync()
            # A line that waits is to be there, one that was removed is not.
            if names or self._has_unsynced_removal:
                self._disk.sync_directory(self._directory)
        with self._lock:
            self._synced_removals = max(self._synced_removals, removals)
            self._unsynced = {f for f in self._unsynced if f.has_unsynced_announcement}
            self._unsynced_names.difference_update(names)

    def remove_durable(self, recovery_point: int) -> None:
        """Remove the files whose records are durable, as far as that works now."""
        with contextlib.suppress(OSError):
            self._remove_outlived(recovery_point)

    def settle(self, below: int = NO_OFFSET) -> bool:
        """Remove what is a record below an offset; return whether ``sync_settled`` has to follow.

        Raises:
            OSError: A file could not be removed; what changes the log must not continue.
        """
        for file in _in_order(self._open):
            if not file.line_bytes and _announces(file, below):
                self._remove_open(file)
        self._remove_outlived(below)
        has_superseded = any(_announces(file, below) for file in self._open)
        return has_superseded or self._removals > self._synced_removals

    def sync_settled(self, below: int = NO_OFFSET) -> None:
        """Make durable what ``settle`` has done; raise OSError if an fsync failed."""
        for file in self._open:
            if _announces(file, below):
                file.supersede()
        if self._removals > self._synced_removals:
            self._disk.sync_directory(self._directory)
            self._synced_removals = self._removals

    def _remove_open(self, file: UnfinishedFile) -> None:
        is_unsynced = file.has_unsynced_announcement
        file.remove()
        self._unsynced.discard(file)
        self._removals += 1
        if is_unsynced:
            self._unsynced_removal = self._removals

    def _remove_outlived(self, below: int) -> None:
        for row in [row for row in self._outlived if row[0] < below]:
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(row[1])
            self._removals += 1
            self._outlived.remove(row)


def _announces(file: UnfinishedFile, below: int) -> bool:
    return file.first_announced is not None and file.first_announced < below


def _in_order(files: Iterable[UnfinishedFile]) -> list[UnfinishedFile]:
    """Return files in an order that does not depend on where they are in memory."""
    return sorted(files, key=lambda file: file.name)
