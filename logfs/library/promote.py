"""Continuing the logs of a store on this machine, in place of the one that wrote them."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from logfs.config.remote import RemoteConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import UnknownNameError
from logfs.library.backup import check_outside, locked_directory
from logfs.library.diverged import check_rejoined
from logfs.library.owner import opened_store
from logfs.library.places import local_directory
from logfs.log import names
from logfs.log.groups.coding import OFFSETS_TOPIC
from logfs.log.manifest import UNFINISHED, BackupManifest, read_manifest, write_manifest
from logfs.log.remote.directory import own_directory, read_remote_config, write_remote_config
from logfs.machine.disks import is_url
from logfs.machine.host import current_host, machine_id, system_clock
from logfs.machine.stores import open_directory_store
from logfs.services.backup.taking import prepare_target
from logfs.services.journaling.promotion import Promoted, Promotion, check_promotable
from logfs.services.journaling.root import read_root
from logfs.services.overview import partition_overview

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


def promote(
    url: str, data: str, settings: Mapping[str, str], *, say: Callable[[str], None] = lambda _: None
) -> Continued:
    """Make a data directory that continues the logs of a store, and fence the one that wrote them.

    Nothing is copied but records that are in no segment of the store. An interrupted call is
    completed by the same call.

    Args:
        url: The store.
        data: A missing or an empty directory; or a data directory of the store, see ``rejoin``.
        settings: More lines of ``logfs.remote``; without ``freshness.ms`` it is that of the store.
        say: Called with a line of text about the progress.

    Raises:
        BackupError: The directory has other files, or records that the store does not have; or it
            is in a data directory or a mount.
        InvalidConfigError: The store is one of a broker, or a setting is wrong.
        RemoteStorageError: The store has no logs, or another directory was promoted meanwhile.
        LogfsError, OSError: It failed.
    """
    if not is_url(url):
        raise UnknownNameError("expected the URL of a store, as s3://BUCKET/PREFIX")
    data = local_directory(data)
    Path(data).mkdir(mode=0o755, parents=True, exist_ok=True)
    check_outside(data)
    disk, host, clock = PosixDisk(data), current_host(), system_clock()
    given = RemoteConfig.from_properties({"url": url.rstrip("/"), **settings})
    objects = open_directory_store(given).objects
    check_promotable(objects)
    root = read_root(objects)
    if root is not None and "freshness.ms" not in settings:
        given = replace(given, freshness_ms=root[0].freshness_ms)
    with locked_directory(data):
        manifest = BackupManifest(UNFINISHED, _KIND, given.url, clock.now_ms())
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
