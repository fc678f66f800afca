"""The request of ``logfs promote`` to the daemon of a standby: own the store."""

import socket

from logfs.disk.posix import PosixDisk
from logfs.errors import RemoteStorageError
from logfs.log.remote.directory import own_directory
from logfs.log.remote.of_disk import catalog_of
from logfs.machine.host import Clock, current_host, machine_id
from logfs.services.following.store import AnyStore
from logfs.services.journaling.promotion import NextOwner
from logfs.services.journaling.standbystore import StandbyStore


def own_store(store: AnyStore, clock: Clock) -> dict[str, object]:
    """Let the data directory of a mount own its store; a reload lets the mount write it.

    Blocks.

    Raises:
        RemoteStorageError: It is no standby, or another directory was promoted meanwhile.
        LogfsError, OSError: The store or the disk failed; the standby continues.
    """
    catalog = catalog_of(store.disk)
    if catalog is None or not isinstance(store, StandbyStore):
        raise RemoteStorageError("the data directory is no standby of a store")
    local, new_id, now_ms = catalog.local, current_host().new_id, clock.now_ms()
    assert isinstance(local, PosixDisk)
    own = own_directory(local, new_id, machine_id(), is_moved=True)
    writer = own.writer(socket.gethostname(), now_ms)
    owner = NextOwner(catalog.store(), local, writer, new_id)
    done, partitions = store.promote(owner, local.sync_all, now_ms)
    return {
        "promoted": {**done._asdict(), "partitions": sorted(done.partitions)},
        "partitions": [
            [one.topic, one.partition, one.log_end_offset or 0, one.newest_timestamp]
            for one in partitions
        ],
    }
