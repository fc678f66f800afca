"""The object store of a data directory, as its file ``logfs.remote`` names it.

Credentials come from the environment, or from where the tools of the store find them. A process has
one client and one memory of blocks for each data directory.
"""

import os
import time
from dataclasses import replace

from logfs.config.kinds import MAX_LONG
from logfs.config.remote import RemoteConfig
from logfs.disk.posix import PosixDisk
from logfs.disk.remote.remotefile import RemoteFiles
from logfs.disk.remote.s3 import StoreSettings, open_store
from logfs.disk.vfs import RootedDisk
from logfs.errors import InvalidConfigError
from logfs.log.names import REMOTE
from logfs.log.remote.directory import OpenedStore, tiered_disk
from logfs.machine.caches import object_cache
from logfs.machine.storeplace import StorePlace
from logfs.records.checksum import crc32c
from logfs.services.compaction.tools import Throttle


def data_disk(root: str, place: StorePlace) -> RootedDisk:
    """Return the disk of a data directory, with the files that only its object store has.

    Args:
        place: The place of the store; with a URL instead of what ``logfs.remote`` says.

    Raises:
        InvalidConfigError: ``logfs.remote`` does not parse.
        OSError: The disk failed.
    """

    def open_store(config: RemoteConfig) -> OpenedStore:
        if place.url is not None:
            config = replace(config, **place._asdict(), is_foreign=False)
        return open_directory_store(config)

    return tiered_disk(PosixDisk(root), open_store)


def open_directory_store(config: RemoteConfig) -> OpenedStore:
    """Return the object store of a data directory. Sends no request.

    Raises:
        InvalidConfigError: Another user may have chosen it, its library is missing, or a setting
            is wrong.
    """
    if config.is_foreign:
        raise InvalidConfigError(
            f"{REMOTE}: another user may have written it (it belongs to neither root nor the user "
            "of this process, or others may write to it), and the credentials would be sent to the "
            f"address in it, {config.url}. If that is right: 'chown root {REMOTE}; chmod go-w "
            f"{REMOTE}', or mount with -o remote={config.url}"
        )
    timeout_s = config.read_timeout_ms / 1000
    settings = StoreSettings(os.environ, time.monotonic, config.endpoint, config.region, timeout_s)
    store = open_store(config.url, settings)
    cache = object_cache(config.url, config.cache_bytes)
    files = RemoteFiles(store, crc32c, time.monotonic, config.memory_bytes, cache)
    rate = config.remote_log_manager_fetch_max_bytes_per_second
    if rate < MAX_LONG:
        files.blocks.throttle = Throttle(rate, time.monotonic, time.sleep).spend
    cached = None if cache is None else cache.bytes_of
    return OpenedStore(store, files.open, files.blocks.counters, cached)
