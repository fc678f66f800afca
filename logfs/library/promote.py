"""Continuing the logs of a store on this machine, in place of the one that wrote them."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from logfs.client import Daemon
from logfs.config.remote import RemoteConfig
from logfs.disk.posix import PosixDisk
from logfs.disk.remote.objects import ObjectStore
from logfs.errors import MountError, UnknownNameError
from logfs.library.backup import check_outside, locked_directory
from logfs.library.diverged import check_rejoined
from logfs.library.owner import opened_store
from logfs.library.places import local_directory
from logfs.log import names
from logfs.log.groups.coding import OFFSETS_TOPIC
from logfs.log.manifest import (
    STANDBY,
    UNFINISHED,
    BackupManifest,
    read_manifest,
    write_manifest,
)
from logfs.log.remote.directory import own_directory, read_remote_config, write_remote_config
from logfs.machine.disks import is_url
from logfs.machine.host import current_host, machine_id, system_clock
from logfs.machine.stores import open_directory_store
from logfs.services.backup.taking import prepare_target
from logfs.services.journaling.cursor import journal_root
from logfs.services.journaling.promotion import Promoted, Promotion, check_promotable
from logfs.services.journaling.root import read_root
from logfs.services.journaling.standby import clear_standby
from logfs.services.overview import partition_overview
from logfs.types import TopicPartition

_KIND = "promotion"


class ContinuedPartition(NamedTuple):
    """Where a partition continues.

    Attributes:
        end_offset: The offset of the next record.
        newest_ms: The timestamp of its newest record; None: it has none.
    """

    topic: str
    partition: int
    end_offset: int
    newest_ms: int | None


class Continued(NamedTuple):
    """What ``promote`` has made."""

    promoted: Promoted
    partitions: list[ContinuedPartition]


class Claimed(NamedTuple):
    """A data directory that is to continue a store.

    Attributes:
        data: The directory, an absolute path.
        disk: Its local disk.
        config: Its ``logfs.remote``.
        objects: The store.
    """

    data: str
    disk: PosixDisk
    config: RemoteConfig
    objects: ObjectStore


def promote(
    url: str, data: str, settings: Mapping[str, str], *, say: Callable[[str], None] = lambda _: None
) -> Continued:
    """Make a data directory that continues the logs of a store, and fence the one that wrote them.

    Nothing is copied but records that are in no segment of the store. An interrupted call is
    completed by the same call. A standby that is mounted is continued by a daemon that writes it;
    programs keep their open files.

    Args:
        url: The store.
        data: A missing or an empty directory, a standby of the store; or a data directory of it,
            see ``rejoin``.
        settings: More lines of ``logfs.remote``; without ``freshness.ms`` it is that of the store.
        say: Called with a line of text about the progress.

    Raises:
        BackupError: The directory has other files, or records that the store does not have; or it
            is in a data directory or a mount.
        InvalidConfigError: The store is one of a broker, or a setting is wrong.
        RemoteStorageError: The store has no logs, or another directory was promoted meanwhile.
        MountError: The standby owns the store now, but nothing keeps its mount.
        LogfsError, OSError: It failed.
    """
    follows = _is_standby_of(data, url)
    daemon = Daemon.connect(local_directory(data)) if follows else None
    if daemon is not None:
        with daemon:
            return _promote_mounted(daemon, say)
    claimed = claim(url, data, settings)
    check_promotable(claimed.objects)
    data, disk, given, objects = claimed
    host, clock = current_host(), system_clock()
    with locked_directory(data):
        _prepare(claimed, clock.now_ms(), follows=follows)
        own = own_directory(disk, host.new_id, machine_id(), is_moved=True)
        writer = own.writer(socket.gethostname(), clock.now_ms())
        say(f"{given.url}: fencing the data directory that writes it")
        done = Promotion(objects, disk, writer, host.new_id).run()
        disk.sync_all()
        disk.remove(names.BACKUP)
        disk.sync_directory("")
    say(f"{data}: checking the ends of its partitions")
    with opened_store(data, is_durable=False) as store:
        logs = [one for one in store.all_partitions() if one.topic_partition.topic != OFFSETS_TOPIC]
        found = [partition_overview(log, clock.now_ms()) for log in logs]
    disk.sync_all()  # once, and not once for each partition
    partitions = [
        ContinuedPartition(one.topic, one.partition, one.log_end_offset or 0, one.newest_timestamp)
        for one in found
    ]
    return Continued(done, partitions)


def _prepare(claimed: Claimed, now_ms: int, *, follows: bool) -> None:
    """Mark a directory as one that is being promoted, and give it its settings.

    Args:
        claimed: The directory.
        now_ms: The clock.
        follows: It is a standby, of which what it has made is removed.
    """
    data, disk, given, objects = claimed
    manifest = BackupManifest(UNFINISHED, _KIND, given.url, now_ms)
    if follows:
        write_manifest(disk, manifest)
        clear_standby(disk)
    config = read_remote_config(disk)
    if config is not None and config.url == given.url and read_manifest(disk) is None:
        check_rejoined(data, config, objects)
        changed = RemoteConfig.from_properties({**config.overrides(), **given.overrides()})
        write_remote_config(disk, changed)
        write_manifest(disk, manifest)
    else:
        prepare_target(disk, manifest)
        if config is None:
            write_remote_config(disk, given)


def claim(url: str, data: str, settings: Mapping[str, str]) -> Claimed:
    """Make a data directory if it is missing; see ``promote`` for arguments and errors."""
    if not is_url(url):
        raise UnknownNameError("expected the URL of a store, as s3://BUCKET/PREFIX")
    data = local_directory(data)
    Path(data).mkdir(mode=0o755, parents=True, exist_ok=True)
    check_outside(data)
    given = RemoteConfig.from_properties({"url": url.rstrip("/"), **settings})
    objects = open_directory_store(given).objects
    root = read_root(objects)
    if root is not None and "freshness.ms" not in settings:
        given = replace(given, freshness_ms=root[0].freshness_ms)
    return Claimed(data, PosixDisk(data), given, objects)


def make_standby(url: str, data: str, settings: Mapping[str, str]) -> None:
    """Let a data directory follow a store once it is mounted.

    It may be one that follows it already. See ``promote`` for arguments and errors.

    Raises:
        RemoteStorageError: The store has no journal.
    """
    data, disk, given, objects = claim(url, data, settings)
    journal_root(objects)
    with locked_directory(data):
        now_ms = system_clock().now_ms()
        prepare_target(disk, BackupManifest(UNFINISHED, STANDBY, given.url, now_ms))
        if read_remote_config(disk) is None:
            write_remote_config(disk, given)


def _is_standby_of(data: str, url: str) -> bool:
    """Whether a data directory is a standby of a store; False if there is no such directory."""
    if not Path(data).is_dir():
        return False
    manifest = read_manifest(PosixDisk(data))
    return manifest is not None and (manifest.kind, manifest.source) == (STANDBY, url.rstrip("/"))


def _promote_mounted(daemon: Daemon, say: Callable[[str], None]) -> Continued:
    """Have the daemon of a standby own its store, and then be replaced by one that writes it."""
    say(f"{daemon.data}: its daemon fences the data directory that writes the store")
    answer = daemon.ask("own_store")
    point = daemon.status()["mountpoint"]
    try:
        daemon.reload()
    except MountError as error:
        raise MountError(
            f"{daemon.data} owns the store now, but its mount is still read-only: {error} "
            f"'logfs umount {point}', then 'logfs mount {daemon.data} {point}'"
        ) from None
    facts = answer["promoted"]
    partitions = [TopicPartition(*one) for one in facts["partitions"]]
    return Continued(
        Promoted(**{**facts, "partitions": partitions}),
        [ContinuedPartition(*one) for one in answer["partitions"]],
    )
