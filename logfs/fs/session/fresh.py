"""The store of a mount that follows an object store: with ``-o fresh``, or of a standby.

With ``-o fresh`` its directory is in the cache. Each mount has its own one there, which is empty
before and afterwards. The mount of a daemon that was killed leaves one; the next mount of that
store uses it.
"""

import contextlib
from hashlib import blake2b
from pathlib import Path

from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import Disk
from logfs.errors import LockedError, MountError
from logfs.fs.options import MountOptions
from logfs.log.host import Host
from logfs.log.remote.of_disk import catalog_of
from logfs.machine.caches import cache_directory
from logfs.machine.disks import following_disk
from logfs.machine.host import Clock
from logfs.machine.storeplace import StorePlace
from logfs.services.journaling.standby import Standby
from logfs.services.journaling.standbystore import StandbyRounds, StandbyStore

_MOST_MOUNTS = 100
"""Mounts of one store on a machine, by one user."""
_KEY_BYTES = 16


def open_fresh(url: str, options: MountOptions, host: Host, clock: Clock) -> StandbyStore:
    """Follow the journal of a store; everything that it has is there when this returns.

    Args:
        url: The store.
        options: Where the store and the cache are, and the settings.
        host: The machine.
        clock: The clocks.

    Raises:
        MountError: The store has no journal, or too many mounts follow it.
        LogfsError, OSError: The store or the disk failed.
    """
    base = Path(options.cache_dir) if options.cache_dir is not None else cache_directory()
    key = blake2b(url.encode(), digest_size=_KEY_BYTES).hexdigest()
    for number in range(_MOST_MOUNTS):
        directory = base / f"{key}.fresh{number}"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        local = PosixDisk(directory)
        objects, disk = following_disk(url, StorePlace(options.endpoint, options.region), local)
        standby = Standby(objects, local, clock.monotonic_s)
        with contextlib.suppress(LockedError):
            rounds = StandbyRounds(standby, local, clock.monotonic_s)
            return _follow(disk, rounds, options, host, clock)
    raise MountError(f"{url}: {_MOST_MOUNTS} mounts of this user follow it: unmount some of them")


def open_standby(disk: Disk, options: MountOptions, host: Host, clock: Clock) -> StandbyStore:
    """Let a data directory follow its store; everything is there when this returns.

    Raises:
        LockedError: Another process has the directory.
        LogfsError, OSError: The store or the disk failed.
    """
    catalog = catalog_of(disk)
    if catalog is None:
        raise MountError("a standby needs its logfs.remote, which names the store")
    standby = Standby(catalog.store(), catalog.local, clock.monotonic_s)
    rounds = StandbyRounds(standby, catalog.local, clock.monotonic_s, is_kept=True)
    return _follow(disk, rounds, options, host, clock)


def _follow(
    disk: Disk, rounds: StandbyRounds, options: MountOptions, host: Host, clock: Clock
) -> StandbyStore:
    rounds.begin()
    store = StandbyStore.follow(disk, options.store, host, None, now_ms=clock.now_ms())
    store.rounds = rounds
    return store
