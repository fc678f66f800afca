"""Backing up, restoring and salvaging data directories of this machine."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from logfs.client import Daemon
from logfs.disk.disk_transfer import DiskTransfer
from logfs.disk.link_or_copy import Count, FileTransfer, give_away
from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import Disk
from logfs.errors import BackupError, InvalidConfigError, LockedError, NoDataDirectoryError
from logfs.library.owner import owned
from logfs.library.places import (
    DirectoryKind,
    kind_of,
    local_directory,
    locate,
)
from logfs.log import names
from logfs.log.listing import list_partitions
from logfs.log.manifest import WHOLE, BackupManifest, read_manifest
from logfs.log.remote.of_disk import catalog_of
from logfs.machine.daemonnote import read_daemon_note
from logfs.machine.disks import bucket_disk, disk_of, is_url
from logfs.machine.host import current_host, system_clock
from logfs.services.backup.copying import Job, SourceChangedError
from logfs.services.backup.point import Point
from logfs.services.backup.restoring import (
    RestorePlan,
    check_source,
    plan_restore_all,
    plan_restore_topics,
    restore_all,
    restore_topics,
)
from logfs.services.backup.storecopies import StoreSource
from logfs.services.backup.taking import back_up, choose
from logfs.services.salvage.directory import Salvaged, salvage
from logfs.types import TopicPartition

Say = Callable[[str], None]

_PAUSE_S = 0.02
_ATTEMPTS = 5


class BackupOptions(NamedTuple):
    """The options of a backup.

    Attributes:
        previous: An earlier backup, or a directory of backups, whose newest one is used; None.
        is_copy: Copy files also where they could be linked.
        with_remote: Copy what only the object store has, too.
    """

    topics: Sequence[str] = ()
    previous: str | None = None
    is_copy: bool = False
    with_remote: bool = False


_ALL = BackupOptions()


def take_backup(
    data: str,
    destination: str,
    wanted: BackupOptions = _ALL,
    *,
    say: Say = lambda _: None,
    count: Count | None = None,
) -> BackupManifest:
    """Back up a data directory; the backup is complete and durable when this returns.

    Args:
        destination: A missing or empty directory, or an unfinished backup.
        count: Called with the number of copied bytes.

    Raises:
        BackupError, NoSuchTopicError: See ``logfs.services.backup.taking.back_up``.
        LockedError: Another process that is not a daemon writes the directory.
        InvalidConfigError: The store is to be copied, and the directory has none; or the
            destination is the URL of a store.
        LogfsError, OSError: The backup failed.
    """
    data, target = os.path.realpath(data), local_directory(destination)
    if os.path.commonpath([data, target]) in (data, target):
        raise BackupError(f"{target} and {data} lie in each other: expected a directory outside")
    check_outside(target)
    earlier = () if wanted.previous is None else _newest_in(wanted.previous, target)
    for _ in range(_ATTEMPTS):
        _make(target, like=data)
        transfer = FileTransfer(data, target, may_link=not wanted.is_copy, count=count)
        job = _job(PosixDisk(data), target, transfer, (target, *earlier), say)
        store = _store_of(data, target, count, with_remote=wanted.with_remote)
        try:
            with _asked(data) as daemon:
                made = back_up(job, data, daemon.ask, wanted.topics, store)
            give_away([target], data)
        except SourceChangedError as error:
            say(f"{data}: {error}; continuing from there")
        else:
            return made
    raise BackupError(f"{data} was started and stopped {_ATTEMPTS} times while it was copied")


def restore_backup(
    backup: str,
    data: str,
    topics: Sequence[str] = (),
    *,
    say: Say = lambda _: None,
    count: Count | None = None,
) -> list[TopicPartition]:
    """Restore a backup, or topics of it; durable on return. Returns the restored partitions.

    Args:
        backup: The backup; no process may write it.
        data: A missing or empty directory; for single topics also one that no daemon serves.
        count: Called with the number of copied bytes.

    Raises:
        BackupError, TopicExistsError, NoSuchTopicError: See ``logfs.services.backup.restoring``.
        LockedError: Another process owns one of the directories.
        OSError: The disk failed.
    """
    backup, data = _check_restore(backup, data, topics)
    is_other = _holds_others(data)
    _make(data, like=backup)
    with locked_directory(data):
        transfer = FileTransfer(backup, data, may_link=False, count=count)
        job = _job(PosixDisk(backup), data, transfer, () if is_other else (data,), say)
        try:
            done = restore_topics(job, topics) if is_other else restore_all(job, backup, topics)
        except SourceChangedError as error:
            raise BackupError(f"a process writes the backup: {error}") from error
        files = [entry.path for entry in os.scandir(data) if entry.is_file()]
        give_away([*files, *(f"{data}/{tp.directory}" for tp in done)], data)
    return done


def fetch_store(
    url: str,
    data: str,
    topics: Sequence[str] = (),
    *,
    say: Say = lambda _: None,
    count: Count | None = None,
) -> list[TopicPartition]:
    """Make a data directory of the logs of a store; the next run continues an interrupted one.

    Args:
        url: The store.
        data: A missing or an empty directory.
        topics: Only these; none: all.

    Raises:
        BackupError: The directory is not empty, or it is in a data directory or a mount.
        InvalidConfigError: ``data`` is the URL of a store.
        NoSuchTopicError: The store does not have a topic.
        LogfsError, OSError: It failed.
    """
    data = local_directory(data)
    Path(data).mkdir(mode=0o755, parents=True, exist_ok=True)
    check_outside(data)
    disk = bucket_disk(url)
    with locked_directory(data):
        job = _job(disk, data, DiskTransfer(disk, data, count=count), (data,), say)
        try:
            return restore_all(job, url, topics)
        except SourceChangedError as error:
            raise BackupError(f"the store was changed meanwhile: {error}; run it again") from error


def salvage_directory(
    damaged: str,
    data: str,
    topics: Sequence[str] = (),
    *,
    is_preview: bool = False,
    count: Count = lambda _: None,
) -> Salvaged:
    """Copy what can be read of a damaged data directory into a new one; durable on return.

    Args:
        damaged: Only read; no process may write it. The URL of a store will do.
        data: A missing or empty directory, or one in which the same was interrupted.
        is_preview: Only read; nothing is written.
        count: Called with numbers of bytes as they are read.

    Raises:
        BackupError: ``data`` is not empty, or it lies in a data directory; or see
            ``check_damaged``, which finds what is wrong with ``damaged``.
        LockedError: A process owns one of the directories.
        OSError: ``data`` cannot be written, or the root of ``damaged`` not be listed.
    """
    check_damaged(damaged, topics)
    source, data = _damaged_disk(damaged), local_directory(data)
    if not is_url(damaged):
        damaged = os.path.realpath(damaged)
        if os.path.commonpath([damaged, data]) in (damaged, data):
            raise BackupError(
                f"{damaged} and {data} lie in each other: expected a directory outside"
            )
    check_outside(data)
    now_ms = system_clock().now_ms()
    if is_preview:
        return salvage(source, damaged, None, topics, now_ms, count)
    if is_url(damaged):
        Path(data).mkdir(mode=0o755, parents=True, exist_ok=True)
    else:
        _make(data, like=damaged)
    with locked_directory(data):
        done = salvage(source, damaged, PosixDisk(data), topics, now_ms, count)
    if not is_url(damaged):
        give_away([data], damaged)
    return done


def check_damaged(damaged: str, topics: Sequence[str] = ()) -> None:
    """Check that a directory is one that ``salvage_directory`` can read.

    Raises:
        BackupError: There is no partition in it.
        LockedError: A process uses it.
        NoSuchTopicError: One of the topics is not in it.
        OSError: It cannot be listed.
    """
    source = _damaged_disk(damaged)
    found = list_partitions(source)
    if not found:
        raise BackupError(
            "it has no partition: expected a data directory, with directories such as orders-0"
        )
    if not is_url(damaged) and source.is_locked(names.LOCK_FILE):
        raise LockedError("a process uses it: stop that first, or copy it with 'logfs backup'")
    choose(found, topics)


def _damaged_disk(damaged: str) -> Disk:
    """Return the disk of a damaged data directory, or of a store with damaged objects."""
    return bucket_disk(damaged) if is_url(damaged) else PosixDisk(os.path.realpath(damaged))


def plan_restore(backup: str, data: str, topics: Sequence[str] = ()) -> RestorePlan:
    """Return what ``restore_backup`` would restore and copy; nothing is changed.

    Raises:
        See ``restore_backup``.
    """
    backup, data = _check_restore(backup, data, topics)
    is_other = _holds_others(data)
    transfer = FileTransfer(backup, data, may_link=False)
    job = _job(PosixDisk(backup), data, transfer, () if is_other else (data,), lambda _: None)
    if not is_other:
        return plan_restore_all(job, topics)
    if job.target.is_locked(names.LOCK_FILE):
        raise _served(data, LockedError(f"{data} is in use"))
    return plan_restore_topics(job, topics)


def _check_restore(backup: str, data: str, topics: Sequence[str]) -> tuple[str, str]:
    """Check the places of a restore; returns them without symbolic links."""
    backup, data = os.path.realpath(backup), local_directory(data)
    if os.path.commonpath([backup, data]) in (backup, data):
        raise BackupError(f"{backup} and {data} lie in each other: expected a directory outside")
    check_backup(backup, data, topics)
    check_outside(data)
    kind, is_other = kind_of(data), _holds_others(data)
    if kind is DirectoryKind.OTHER or (is_other and not topics):
        raise BackupError(
            "it is not empty: nothing is replaced; expected a missing or an empty directory"
            + (
                ""
                if kind is DirectoryKind.OTHER
                else ", or '--topic' for single topics of the backup"
            )
        )
    return backup, data


def check_backup(backup: str, data: str, topics: Sequence[str] = ()) -> None:
    """Check that ``restore_backup`` can restore a backup. Every error is about the backup.

    Raises:
        BackupError: It is incomplete, or cannot be restored in this way.
        NoSuchTopicError: A topic is not in it.
        LockedError: A process writes it.
        OSError: It cannot be read.
    """
    source = PosixDisk(os.path.realpath(backup))
    if source.is_locked(names.LOCK_FILE):
        raise LockedError(f"{source.root} is in use: unmount it first")
    check_source(source, topics, is_beside_others=bool(topics) and _holds_others(data))


def _holds_others(data: str) -> bool:
    """Return whether a directory is a data directory, and not a backup or interrupted restore."""
    return kind_of(data) is DirectoryKind.DATA and not PosixDisk(data).exists(names.BACKUP)


def check_outside(target: str) -> None:
    """Refuse a directory in a mount of logfs, where it would be a topic, or in a data directory.

    Raises:
        BackupError: It is in one.
    """
    try:
        place = locate(target)
    except NoDataDirectoryError:
        return
    if place.is_mount or place.address:
        what = "mount" if place.is_mount else "data directory"
        raise BackupError(f"it is in the {what} {place.root}: expected a directory outside of it")


class _Asked:
    """The daemon of a data directory during a backup; ``ask`` is None if there is none."""

    def __init__(self, daemon: Daemon | None) -> None:
        self._daemon = daemon
        self.ask = None if daemon is None else self._ask

    def __enter__(self) -> "_Asked":
        return self

    def __exit__(self, *_: object) -> None:
        if self._daemon is not None:
            self._daemon.close()

    def _ask(self, topic_partition: TopicPartition) -> Point:
        assert self._daemon is not None
        return self._daemon.point(topic_partition)


def _asked(data: str) -> _Asked:
    daemon = Daemon.connect(data)
    if daemon is None and PosixDisk(data).is_locked(names.LOCK_FILE):
        raise LockedError(
            f"{data} is written by a process that is no daemon of logfs (a Kafka broker, a job, "
            "another command): try again when it has ended"
        )
    return _Asked(daemon)


def _store_of(
    data: str, target: str, count: Count | None, *, with_remote: bool
) -> StoreSource | None:
    """Return the object store of a data directory; None if it has none.

    Raises:
        InvalidConfigError: It has none and needs one, or ``logfs.remote`` does not parse.
        OSError: The store cannot be used here.
    """
    disk = disk_of(data)
    catalog = catalog_of(disk)
    if catalog is None:
        if with_remote:
            raise InvalidConfigError(f"{data}: it has no object store (there is no logfs.remote)")
        return None
    transfer = DiskTransfer(disk, target, count=count) if with_remote else None
    return StoreSource(catalog.store(), transfer)


def _job(
    source: Disk, target: str, transfer: FileTransfer, previous: tuple[str, ...], say: Say
) -> Job:
    """Return a copy that is to be made on this machine; see ``Job``."""
    clock = system_clock()
    return Job(
        source,
        PosixDisk(target),
        transfer,
        previous,
        current_host(),
        clock.now_ms(),
        clock.now_ms,
        lambda: time.sleep(_PAUSE_S),
        say,
    )


@contextmanager
def locked_directory(data: str) -> Iterator[None]:
    """Hold the lock of a directory in which logs are restored; raise LockedError if it is taken."""
    try:
        lock = PosixDisk(data).lock(names.LOCK_FILE)
    except LockedError as error:
        raise _served(data, error) from error
    try:
        yield
    finally:
        lock.close()


def _make(path: str, like: str) -> None:
    """Make a directory with the owner and the mode of another, if it is missing."""
    if not Path(path).exists():
        Path(path).mkdir(parents=True)
        Path(path).chmod(Path(like).stat().st_mode & 0o7777)
        give_away([path], like)


def _newest_in(previous: str, target: str) -> tuple[str, ...]:
    """Return the backup: the directory, or the newest complete one in it; raise BackupError."""
    previous = os.path.realpath(previous)
    if not Path(previous).is_dir():
        raise BackupError(f"{previous}: expected an earlier backup, or a directory of such")
    if PosixDisk(previous).exists(names.BACKUP):
        return (previous,)
    found = []
    for entry in os.scandir(previous):
        if entry.is_dir() and os.path.realpath(entry.path) != target:
            manifest = _manifest_of(entry.path)
            if manifest is not None and manifest.state == WHOLE:
                found.append((manifest.begun_ms, entry.path))
    return (max(found)[1],) if found else ()


def _manifest_of(path: str) -> BackupManifest | None:
    try:
        return read_manifest(PosixDisk(path))
    except (BackupError, OSError):
        return None


def _served(data: str, error: LockedError) -> LockedError:
    daemon = read_daemon_note(data)
    if daemon is None:
        return owned(data, error)
    return LockedError(
        f"process {daemon.pid} serves it at {daemon.mount_point}: 'logfs umount "
        f"{daemon.mount_point}', then restore; or restore into another directory"
    )
