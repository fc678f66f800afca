"""Backups between fake disks: what ``disk.link_or_copy`` is to directories."""

import errno

from logfs.disk.link_or_copy import FileTransfer
from logfs.log.store import LogStore
from logfs.services.backup.copying import Job
from logfs.services.backup.point import Point, take_point
from logfs.services.backup.restoring import restore_all
from logfs.services.backup.taking import back_up
from logfs.types import TopicPartition
from tests.fakes import FakeDisk
from tests.fakestate import os_error
from tests.model.account import Defect
from tests.model.machine import Machine


class FakeTransfer(FileTransfer):
    """Copies files from one fake disk to another."""

    def __init__(self, source: FakeDisk, target: FakeDisk) -> None:
        super().__init__("source", "target", may_link=False)
        self._from, self._to = source, target

    def copy(
        self, name: str, *, to: str | None = None, inode: int | None = None, size: int | None = None
    ) -> None:
        source = self._from.open(name)
        length = source.size() if size is None else size
        if inode not in (None, source.inode()) or source.size() < length:
            raise os_error(errno.ENOENT, name)
        self._to.replace(to or name, source.pread(length, 0))
        self._to.touch_times(to or name, self._from.stat(name).mtime_ms)


def back_up_and_restore(m: Machine, *, is_restored: bool) -> LogStore:
    """Back the store up while it runs; open the backup read-only, or what was restored from it."""
    taken = FakeDisk()
    made = back_up(_job(m, m.disk, taken), "source", lambda tp: _ask(m, tp))
    if made.problems:
        raise Defect(f"a backup is not whole: {made.problems}")
    if is_restored:
        restored = FakeDisk()
        restore_all(_job(m, taken, restored), "backup")
        taken = restored
    return m.open(taken, read_only=not is_restored)


def _ask(m: Machine, topic_partition: TopicPartition) -> Point:
    """Answer as a daemon does."""
    log = m.store.partition(*topic_partition)
    log.flush()
    return take_point(log)


def _job(m: Machine, source: FakeDisk, target: FakeDisk) -> Job:
    return Job(
        source,
        target,
        FakeTransfer(source, target),
        (),
        m.host(),
        m.now_ms,
        lambda: m.now_ms,
        m.maintain,
        lambda _: None,
    )
