"""Records that are on this machine alone, since another one continues its logs."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from logfs.config.remote import RemoteConfig
from logfs.disk.posix import PosixDisk
from logfs.disk.remote.objects import ObjectStore
from logfs.disk.vfs import Disk
from logfs.errors import (
    BackupError,
    InvalidConfigError,
    LogfsError,
    RemoteStorageError,
    text_of,
)
from logfs.library.backup import locked_directory
from logfs.library.directory import all_partitions, open_for_reading
from logfs.library.owner import data_directory, opened_store
from logfs.library.places import local_directory, locate
from logfs.log import names
from logfs.log.manifest import (
    UNFINISHED,
    BackupManifest,
    check_whole,
    read_manifest,
    write_manifest,
)
from logfs.log.partition import PartitionLog
from logfs.log.reading.address import parse_partition_name
from logfs.log.remote.directory import read_remote_config
from logfs.log.remote.head import WritingDirectory
from logfs.log.store import LogStore
from logfs.machine.disks import disk_of
from logfs.machine.host import current_host, system_clock
from logfs.machine.stores import open_directory_store
from logfs.services.journaling.assembly import read_journal
from logfs.services.journaling.diverging import (
    DivergedLog,
    LogInStore,
    diverged_logs,
    stored_logs,
)
from logfs.services.journaling.objects import PartitionId
from logfs.services.journaling.rejoining import Rejoining, replaced_partitions
from logfs.services.journaling.root import read_root
from logfs.services.tiering.ownership import OwnedVersions
from logfs.services.views.files import FixedFile
from logfs.services.views.resolve import resolve_records
from logfs.types import IsolationLevel, TopicPartition

_KIND = "remote rejoin"
_BUFFER_BYTES = 1 << 20


class Diverged(NamedTuple):
    """What a data directory has and its store does not.

    Attributes:
        data: The data directory.
        host, since_ms: The machine that owns the journal of the store, and since when; "": none.
        partitions: The partitions with such records.
        problems: Partitions that cannot be read, each with the reason.
    """

    data: str
    host: str
    since_ms: int
    partitions: list[DivergedLog]
    problems: list[str]


class Rejoined(NamedTuple):
    """What a directory is after ``rejoin``.

    Attributes:
        diverged: What it alone had; None: that was kept by an earlier call, which was interrupted.
        kept: The directory with these records; None: there were none.
        only_here: Partitions that the store does not have; they are as they were.
        partitions: Its partitions.
        problems: Partitions that could not be made, and damaged objects, each with the reason.
    """

    diverged: Diverged | None
    kept: str | None
    only_here: list[TopicPartition]
    partitions: list[TopicPartition]
    problems: list[str]


class _Compared(NamedTuple):
    """A data directory beside its store."""

    diverged: Diverged
    store: LogStore
    stored: dict[PartitionId, LogInStore]


def find_diverged(path: str, out: str | None = None) -> Diverged:
    """Return what a data directory has and its store does not; nothing is changed.

    Args:
        path: The data directory, or its mount.
        out: A missing or empty directory that gets a file of each partition with these records.

    Raises:
        InvalidConfigError: It has no store.
        RemoteStorageError: The directory owns its store, so that nothing has diverged.
        BackupError: ``out`` is not empty.
        LogfsError, OSError: It cannot be read, or the store failed.
    """
    data = data_directory(locate(path))
    config = _config_of(data)
    found = _compared(data, config, open_directory_store(config).objects)
    if out is not None:
        _write_aside(found, out)
    return found.diverged


def rejoin(
    path: str, out: str | None = None, *, say: Callable[[str], None] = lambda _: None
) -> Rejoined:
    """Make a data directory a copy of its store again, which another directory owns.

    Its own records are written to ``out`` first. An interrupted call is completed by the same call.

    Args:
        path: The data directory; no daemon serves it.
        out: A missing or empty directory; None: one beside the data directory.
        say: Called with a line of text about the progress.

    Raises:
        LockedError: A process has the directory.
        RemoteStorageError: It owns its store; or the store has another topic of the name of one
            that is here alone.
        InvalidConfigError, BackupError, LogfsError, OSError: See ``find_diverged``.
    """
    data = local_directory(path)
    config = _config_of(data)
    disk, host, now_ms = PosixDisk(data), current_host(), system_clock().now_ms()
    objects = open_directory_store(config).objects
    diverged, kept, found = None, None, None
    with locked_directory(data):
        manifest = read_manifest(disk)
        if manifest is None or manifest.kind != _KIND:
            check_whole(disk)
            found = _compared(data, config, objects)
            diverged = found.diverged
            if diverged.problems:
                raise RemoteStorageError(diverged.problems[0])
            _check_names(found, disk)
            if diverged.partitions:
                kept = out or f"{data}.diverged-{_stamp(now_ms)}"
                say(f"{kept}: keeping the records that only {data} has")
                _write_aside(found, kept)
            write_manifest(disk, BackupManifest(UNFINISHED, _KIND, config.url, now_ms))
        say(f"{data}: taking over what {config.url} has")
        stored = _stored(objects) if found is None else found.stored
        replaced = replaced_partitions(disk, [one.place for one in stored.values()])
        for one in replaced:
            disk.remove_tree(one.directory)
        writer = WritingDirectory(bytes.fromhex(config.directory_id), "", now_ms)
        done = Rejoining(objects, disk, writer, host.new_id).run()
        disk.sync_all()
        disk.remove(names.BACKUP)
        disk.sync_directory("")
    with opened_store(data, is_durable=False):
        pass  # the ends are checked
    disk.sync_all()
    own = [] if diverged is None else diverged.partitions
    only_here = [one.topic_partition for one in own if one.is_unknown]
    return Rejoined(
        diverged,
        kept,
        [one for one in only_here if one not in replaced],
        done.partitions,
        done.problems,
    )


def check_rejoined(data: str, config: RemoteConfig, store: ObjectStore) -> None:
    """Refuse to promote a directory that has records which the store does not have.

    Raises:
        BackupError: It has some.
        RemoteStorageError: It owns the store already.
        LogfsError, OSError: It cannot be read, or the store failed.
    """
    found = _compared(data, config, store).diverged
    if found.problems:
        raise BackupError(found.problems[0])
    if found.partitions:
        one = found.partitions[0]
        raise BackupError(
            f"it has records that the store does not have, of {one.topic_partition} from offset "
            f"{one.first_offset} on: 'logfs remote rejoin {data}' keeps them aside first"
        )


def _config_of(data: str) -> RemoteConfig:
    config = read_remote_config(PosixDisk(data))
    if config is None:
        raise InvalidConfigError(f"{data}: it has no object store")
    return config


def _compared(data: str, config: RemoteConfig, objects: ObjectStore) -> _Compared:
    disk, read_one, owned = disk_of(data), read_root(objects), OwnedVersions(PosixDisk(data), "")
    root = None if read_one is None else read_one[0]
    if (
        root is not None
        and root.writer.directory_id.hex() == config.directory_id
        and not owned.is_lost
        and owned.has_written(root)
    ):
        raise RemoteStorageError(
            f"{data}: it owns its store, so that no other directory continues its logs"
        )
    stored = _stored(objects)
    store = open_for_reading(disk, all_partitions(disk))
    logs, problems = [], []
    for log in store.all_partitions():
        if log.is_unreadable:
            problems.append(f"{log.topic_partition}: {log.offline}")
        elif log.config.remote_storage_enable or log.config.is_journaled or log.tier is not None:
            logs.append(log)
    found = []
    for log in logs:
        try:
            found += diverged_logs(objects, stored, [log])
        except LogfsError as error:
            problems.append(f"{log.topic_partition}: {text_of(error)}")
    host, since_ms = ("", 0) if root is None else (root.writer.host, root.writer.since_ms)
    return _Compared(Diverged(data, host, since_ms, found, problems), store, stored)


def _stored(objects: ObjectStore) -> dict[PartitionId, LogInStore]:
    """Return what a store has of each partition."""
    found = read_root(objects)
    return stored_logs(objects, None if found is None else read_journal(objects, found[0]))


def _write_aside(found: _Compared, out: str) -> None:
    """Write a file of each partition with the records that it alone has; durable on return."""
    out = os.path.realpath(out)
    if Path(out).exists() and list(Path(out).iterdir()):
        raise BackupError(f"{out}: it is not empty; expected a missing or an empty directory")
    Path(out).mkdir(mode=0o700, parents=True, exist_ok=True)
    target, disk = PosixDisk(out), PosixDisk(found.diverged.data)
    for one in found.diverged.partitions:
        log = found.store.partition(*one.topic_partition)
        with Path(out, f"{one.topic_partition.directory}.jsonl").open("xb") as file:
            file.writelines(_rendered(log, one.first_offset))
        for name in disk.contents(log.directory).files:
            if names.parse_unfinished_file(name) is not None:
                target.replace(f"{log.directory}.{name}", disk.read(f"{log.directory}/{name}"))
    target.sync_all()


def _rendered(log: PartitionLog, first: int) -> Iterator[memoryview]:
    """Yield the records from an offset on as JSON lines; the buffer is used again."""
    address = parse_partition_name(f"{log.topic_partition.partition}@offset={first}.jsonl", UTC)
    level = IsolationLevel.READ_UNCOMMITTED
    resolved, _ = resolve_records(log, address, system_clock().now_ms(), level)
    file, at, buffer = FixedFile(resolved), 0, memoryview(bytearray(_BUFFER_BYTES))
    try:
        while count := file.read_into(buffer, at):
            yield buffer[:count]
            at += count
    finally:
        file.close()


def _check_names(found: _Compared, disk: Disk) -> None:
    """Refuse a topic that is in no store if the store has another one of its name."""
    places = [one.place for one in found.stored.values()]
    known = {one.topic_partition for one in found.diverged.partitions}
    for one in replaced_partitions(disk, places):
        log = found.store.partition(*one)
        if one not in known and log.log_start_offset < log.log_end_offset:
            raise RemoteStorageError(
                f"{one}: the store has another topic of this name, and this one is in no store: "
                "rename it first, with 'logfs topic rename'"
            )


def _stamp(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
