"""Backups of a store on a real directory, made in this process, which may die at any step."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from logfs.config import StoreConfig
from logfs.disk.link_or_copy import FileTransfer
from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import SMALL_FILE_BYTES, File, ReadableBuffer
from logfs.log.lines.writer import LineWriter
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.machine.host import current_host
from logfs.services.backup.copying import Job
from logfs.services.backup.point import Point, take_point
from logfs.services.backup.restoring import restore_all
from logfs.types import TopicPartition, View
from tests.log.support import kept_runs_of
from tests.mounting import now_ms


class Killed(BaseException):
    """The process has died."""


class Steps:
    """Numbers the changes of files; the process dies before a given one."""

    def __init__(self, last: int | None = None) -> None:
        self.done = 0
        self._last = last

    def take(self) -> None:
        """Take one more step."""
        if self.done == self._last:
            raise Killed
        self.done += 1


class SteppingDisk(PosixDisk):
    """A directory in which every change is a step, and every look at it."""

    __slots__ = ("_steps",)

    def __init__(self, root: Path, steps: Steps) -> None:
        super().__init__(root)
        self._steps = steps

    def open(
        self, name: str, *, write: bool = False, create: bool = False, uncached: bool = False
    ) -> File:
        if write:
            self._steps.take()
        return super().open(name, write=write, create=create, uncached=uncached)

    def read(self, name: str, most: int | None = SMALL_FILE_BYTES) -> bytes:
        self._steps.take()
        return super().read(name, most)

    def inodes(self, name: str) -> dict[str, int]:
        self._steps.take()
        return super().inodes(name)

    def make_directory(self, name: str) -> None:
        self._steps.take()
        super().make_directory(name)

    def rename(self, old: str, new: str) -> None:
        self._steps.take()
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self._steps.take()
        super().remove(name)

    def remove_tree(self, name: str) -> None:
        self._steps.take()
        super().remove_tree(name)

    def replace(self, name: str, data: ReadableBuffer) -> None:
        self._steps.take()
        super().replace(name, data)


class SteppingTransfer(FileTransfer):
    """Puts files into a directory in which every change is a step."""

    def __init__(self, source: Path, target: Path, steps: Steps, *, may_link: bool) -> None:
        super().__init__(str(source), str(target), may_link=may_link)
        self._steps = steps

    def copy(
        self, name: str, *, to: str | None = None, inode: int | None = None, size: int | None = None
    ) -> None:
        self._steps.take()
        super().copy(name, to=to, inode=inode, size=size)

    def take(self, name: str, inode: int) -> None:
        self._steps.take()
        super().take(name, inode)


def job(
    source: Path,
    target: Path,
    *previous: Path,
    steps: Steps | None = None,
    may_link: bool = True,
    pause: Callable[[], None] = lambda: None,
) -> Job:
    """Return what a backup needs; the target is made."""
    target.mkdir(exist_ok=True)
    steps = steps or Steps()
    return Job(
        SteppingDisk(source, steps),
        SteppingDisk(target, steps),
        SteppingTransfer(source, target, steps, may_link=may_link),
        (str(target), *map(str, previous)),
        current_host(),
        now_ms(),
        now_ms,
        pause,
        lambda _: None,
    )


def asker(store: LogStore) -> Callable[[TopicPartition], Point]:
    """Return what a daemon answers when it is asked where a partition is."""

    def ask(topic_partition: TopicPartition) -> Point:
        log = store.partition(*topic_partition)
        log.flush()
        return take_point(log)

    return ask


class Seen(NamedTuple):
    """What a reader sees of a partition: offsets, and bytes by position in each view."""

    start: int
    end: int
    positions: tuple[int, ...]
    runs: dict[str, list[tuple[int, bytes]]]


def seen(log: PartitionLog) -> Seen:
    """Read a partition."""
    runs = {view.name: kept_runs_of(log, view) for view in View}
    return Seen(log.log_start_offset, log.log_end_offset, log.snapshot.end.positions, runs)


def opened(data: Path, *, read_only: bool = False) -> LogStore:
    """Open a data directory."""
    return LogStore.open(
        PosixDisk(data), StoreConfig(), current_host(), now_ms=now_ms(), read_only=read_only
    )


def restored(backup: Path) -> LogStore:
    """Restore a backup into a directory beside it, and open that."""
    target = backup.with_name(f"{backup.name}-restored")
    restore_all(job(backup, target, may_link=False), "backup")
    return opened(target)


def seen_in(data: Path) -> dict[TopicPartition, Seen]:
    """Read every partition of a data directory; nothing is changed."""
    store = opened(data, read_only=True)
    assert [log.offline for log in store.all_partitions() if log.offline] == []
    return {log.topic_partition: seen(log) for log in store.all_partitions()}


def files_below(root: Path) -> Iterator[Path]:
    """Return every file below a directory but its lock."""
    return (path for path in sorted(root.rglob("*")) if path.is_file() and path.name != ".lock")


def bytes_below(root: Path) -> dict[str, str]:
    """Return a digest of every file below a directory."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files_below(root)
    }


SMALL = {"internal.segment.bytes": "600", "file.delete.delay.ms": "0"}
LINES = TopicPartition("lines", 0)
KEYS = TopicPartition("keys", 0)


def write(store: LogStore, start: int, count: int) -> None:
    """Append numbered lines, and values of few keys, in batches of a few."""
    for topic, view, form in (
        ("lines", View.TEXT, "line {n}\n"),
        ("keys", View.TSV, "key{k}\tvalue {n}\n"),
    ):
        writer = LineWriter(store.partition(topic, 0), view)
        for first in range(start, start + count, 5):
            text = "".join(form.format(n=n, k=n % 7) for n in range(first, first + 5))
            writer.write(text.encode(), now_ms())
        writer.close(now_ms())


def seen_now(store: LogStore) -> dict[TopicPartition, Seen]:
    return {log.topic_partition: seen(log) for log in store.all_partitions()}
