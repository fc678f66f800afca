"""The work of ``logfs remote``: the object store of a data directory, and stores by their URL."""

import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from logfs.config.remote import RemoteConfig
from logfs.disk.posix import PosixDisk
from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.probing import probe
from logfs.disk.vfs import Disk
from logfs.errors import (
    InvalidConfigError,
    LockedError,
    NoDataDirectoryError,
    RemoteStorageError,
)
from logfs.library.directory import all_partitions, open_for_reading, partitions_named
from logfs.library.owner import data_directory, opened_store, owned
from logfs.library.places import DirectoryKind, Place, kind_of, local_directory, locate, served_at
from logfs.log.checkpoints import read_partition_metadata
from logfs.log.listing import list_partitions
from logfs.log.remote.directory import own_directory, read_remote_config, write_remote_config
from logfs.log.remote.head import WritingDirectory
from logfs.log.remote.of_disk import bucket_of, catalog_of
from logfs.log.remote.status import RemoteStatus, remote_as_json
from logfs.log.store import LogStore
from logfs.machine.disks import bucket_disk, disk_of, is_url
from logfs.machine.host import current_host, machine_id, system_clock
from logfs.machine.storeplace import StorePlace
from logfs.machine.stores import open_directory_store
from logfs.records.jsontext import decode_object
from logfs.services.journaling.assembly import read_journal
from logfs.services.journaling.healing import missing_partitions
from logfs.services.journaling.root import begin_epoch, read_root
from logfs.services.tiering.ownership import OwnedVersions
from logfs.services.tiering.owning import PartitionTiering
from logfs.services.tiering.stores import check_unused, check_writers, mark_store
from logfs.types import TopicPartition

_META = ".meta"
_INIT_TIMEOUT_MS = 10_000
"""A person waits, and an address may be wrong."""


def init_store(
    data: str, url: str, settings: Mapping[str, str], *, is_shared: bool = False
) -> RemoteConfig:
    """Make a store the one of a data directory; a daemon uses it from its next start on.

    Args:
        data: The data directory; it exists.
        url: The address of the store.
        settings: More lines of ``logfs.remote``.
        is_shared: Other data directories may write other topics to the store.

    Raises:
        InvalidConfigError: The store is not safe, a setting is wrong, segments of the directory
            are in another, or another directory writes it.
        LockedError: A daemon copies to another store.
        NoDataDirectoryError: There is no such directory.
        OSError: The store cannot be reached.
    """
    data = local_directory(data)
    if kind_of(data) not in {DirectoryKind.DATA, DirectoryKind.EMPTY}:
        raise NoDataDirectoryError(f"{data}: expected a data directory or an empty directory")
    disk, host = PosixDisk(data), current_host()
    config = RemoteConfig.from_properties({"url": url.rstrip("/"), **settings})
    before = read_remote_config(disk)
    if before is not None and before.url != config.url:
        check_unused(disk, disk.root, before.url)
    quick = replace(config, read_timeout_ms=min(config.read_timeout_ms, _INIT_TIMEOUT_MS))
    store = open_directory_store(quick).objects
    probe(store, host.new_id())
    if not is_shared:
        directory_id = "" if before is None else before.directory_id
        check_writers(store, directory_id, topic_ids(disk), data)
    mark_store(store, host.new_id(), system_clock().now_ms())
    if before is None or before.url != config.url:
        write_remote_config(disk, config)
    own_directory(disk, host.new_id, machine_id())
    return config


def topic_ids(disk: Disk) -> set[UUID]:
    """Return the ids of the topics of a data directory."""
    found = (read_partition_metadata(disk, one.directory) for one in list_partitions(disk))
    return {topic_id for topic_id in found if topic_id is not None}


def store_at(path: str) -> ObjectStore:
    """Return the store at a URL, or that of a data directory or mount.

    Raises:
        InvalidConfigError: The data directory has no store, or it cannot be used.
    """
    if is_url(path):
        bucket = bucket_of(bucket_disk(locate(path).root))
        assert bucket is not None
        return bucket.store
    data = data_directory(locate(path))
    config = read_remote_config(PosixDisk(data))
    if config is None:
        raise InvalidConfigError(
            f"{data}: it has no object store. Name one with 'logfs remote init {data} URL'"
        )
    return open_directory_store(config).objects


def server_of(path: str) -> StorePlace | None:
    """Return where the server of the store of a data directory or mount is; None for a URL."""
    config = None if is_url(path) else read_remote_config(PosixDisk(data_directory(locate(path))))
    return None if config is None else StorePlace(config.endpoint, config.region)


def tiering_of(place: Place) -> dict[TopicPartition, dict[str, Any]]:
    """Return how far each partition of a data directory is copied, as ``.meta`` has it."""
    data = data_directory(place)
    disk, point = disk_of(data), place.root if place.is_mount else served_at(data)
    only = partitions_named(disk, place.address)
    wanted = all_partitions(disk) if only is None else only
    found: dict[TopicPartition, dict[str, Any]] = {}
    catalog = catalog_of(disk)
    if point is None and catalog is None:
        return found
    store = None if point is not None else open_for_reading(disk, wanted)
    for one in wanted:
        remote = None
        if point is not None:
            text = Path(point, one.topic, f"{one.partition}{_META}").read_bytes()
            remote = decode_object(text).get("remote")
        elif store is not None and catalog is not None:
            log, tier = store.partition(*one), catalog.partition(one.directory)
            is_stored = log.config.remote_storage_enable or log.config.is_journaled
            if tier is None and not is_stored:
                continue
            remote = remote_as_json(RemoteStatus(catalog.url), log.snapshot, tier, disk)
        if remote is not None:
            found[one] = remote
    return found


def topics_not_stored(place: Place, tiered: Iterable[TopicPartition]) -> list[str]:
    """Return the topics of a data directory that are in no object store, by ``tiering_of``."""
    disk, stored = disk_of(data_directory(place)), {one.topic for one in tiered}
    only = partitions_named(disk, place.address)
    found = all_partitions(disk) if only is None else only
    return sorted({one.topic for one in found} - stored)


def _own_journal(
    objects: ObjectStore, store: LogStore, local: Disk, writer: WritingDirectory, *, is_whole: bool
) -> None:
    """Own the journal of a store, if it has one."""
    found = read_root(objects)
    if found is None:
        return
    if not is_whole:
        raise RemoteStorageError(
            f"{objects.url}: it has a journal of all partitions, so one directory writes all of "
            "them: take over the whole data directory"
        )
    missing = missing_partitions(read_journal(objects, found[0]), store.all_partitions())
    if missing:
        raise RemoteStorageError(
            f"{objects.url}: its journal has records of {missing[0]} that this directory does not "
            "have: 'logfs promote' makes a directory that has them"
        )
    begin_epoch(objects, writer, OwnedVersions(local, ""), current_host().new_id, takes_over=True)


def take_over(place: Place) -> list[TopicPartition]:
    """Make this data directory the writer of its partitions in the store, instead of another one.

    Raises:
        LockedError: A daemon has the directory: it has to be stopped.
        RemoteStorageError: The store has records that the directory does not have.
        LogfsError, OSError: It failed; the partitions before it are taken over.
    """
    if place.is_mount:
        raise LockedError("it is mounted: 'logfs umount' it, then name its data directory")
    local, host = PosixDisk(place.root), current_host()
    config = read_remote_config(local)
    if config is None:
        raise InvalidConfigError(f"{place.root}: it has no object store")
    objects = open_directory_store(config).objects
    own = own_directory(local, host.new_id, machine_id(), is_moved=True)
    writer = own.writer(socket.gethostname(), system_clock().now_ms())
    done = []
    try:
        with opened_store(place.root) as store:
            only = partitions_named(store.disk, place.address)
            _own_journal(objects, store, local, writer, is_whole=only is None)
            for log in store.all_partitions():
                tiering = PartitionTiering(log, objects, writer, host.new_id)
                if (only is None or log.topic_partition in only) and tiering.has_work:
                    tiering.begin(takes_over=True)
                    done.append(log.topic_partition)
    except LockedError as error:
        raise owned(place.root, error) from error
    return done
