"""The object store of a data directory, as its file ``logfs.remote`` names it.

Credentials come from the environment, or from where the tools of the store find them. A process has
one client and one memory of blocks for each data directory.
"""

import os
import time

from logfs.config.kinds import MAX_LONG
from logfs.config.remote import RemoteConfig
from logfs.disk.posix import PosixDisk
from logfs.disk.remote.remotefile import RemoteFiles
from logfs.disk.remote.s3 import StoreSettings, open_store
from logfs.disk.vfs import RootedDisk
from logfs.log.compaction.tools import Throttle
from logfs.log.remote.directory import OpenedStore, tiered_disk
from logfs.machine.caches import object_cache
from logfs.records.checksum import crc32c


def data_disk(root: str) -> RootedDisk:
    """Return the disk of a data directory, with the files that only its object store has.

    Raises:
        InvalidConfigError: ``logfs.remote`` does not parse.
        OSError: The disk failed.
    """
    return tiered_disk(PosixDisk(root), open_directory_store)


def open_directory_store(config: RemoteConfig) -> OpenedStore:
    """Return the object store of a data directory. Sends no request.

    Raises:
        InvalidConfigError: Its library is missing, or a setting is wrong.
    """
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
