"""The disk of logs: a data directory of this machine, or an object store by its URL.

Credentials, endpoint and region of a store come from the environment and from the files that its
own tools read. A process has one disk for each URL, so that heads and blocks are read once.
"""

import os
import threading
import time
from typing import TYPE_CHECKING

from logfs.disk.posix import PosixDisk
from logfs.disk.remote.urls import is_store_url, refuse_wrong_url
from logfs.log.names import REMOTE
from logfs.machine.storeplace import StorePlace

if TYPE_CHECKING:  # most commands do not need these
    from logfs.disk.remote.objects import ObjectStore
    from logfs.disk.remote.overlay import OverlayDisk
    from logfs.disk.remote.remotefile import RemoteFiles
    from logfs.disk.remote.treedisk import TreeDisk
    from logfs.disk.vfs import Disk, RootedDisk

_FILE = "file://"
_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")
_lock = threading.Lock()
_disks: "dict[object, TreeDisk]" = {}


def is_url(root: str) -> bool:
    """Return whether logs are in an object store, by where they are said to be.

    Raises:
        InvalidConfigError: It is a URL of another kind, or has a mistake.
    """
    refuse_wrong_url(root)
    return is_store_url(root) or root.startswith(_FILE)


def resolve_root(path: str) -> str:
    """Return a data directory as an absolute path without links; a URL without "/" at its end."""
    return path.rstrip("/") if is_url(path) else os.path.realpath(path)


def disk_of(root: str, place: "StorePlace | None" = None) -> "RootedDisk":
    """Return the disk of a data directory, with what only its store has, or of the URL of a store.

    Args:
        root: See ``resolve_root``.
        place: The place of the store, if the environment or the directory does not say it.

    Raises:
        InvalidConfigError: The URL is none, its store cannot be used here, or ``logfs.remote`` of
            the directory does not parse.
        OSError: The disk failed.
    """
    if is_url(root):
        return bucket_disk(root, place)
    if not os.path.lexists(f"{root}/{REMOTE}"):
        return PosixDisk(root)
    from logfs.machine.stores import data_disk

    return data_disk(root, place or StorePlace())


def has_logs(url: str, place: "StorePlace | None" = None) -> bool:
    """Ask whether logs are directly below a URL."""
    from logfs.log.remote.of_disk import bucket_of

    bucket = bucket_of(bucket_disk(url, place))
    return bucket is not None and bucket.is_store()


def bucket_disk(url: str, place: "StorePlace | None" = None) -> "TreeDisk":
    """Return the read-only disk of the logs in an object store; sends no request."""
    from logfs.disk.remote.treedisk import TreeDisk
    from logfs.log.remote.bucket import Bucket

    place = place or StorePlace()
    # The client of a store cannot be used after a fork, nor with other credentials.
    known = [item for item in os.environ.items() if item[0].startswith(_VARIABLES)]
    key = os.getpid(), url, place, tuple(sorted(known))
    with _lock:
        disk = _disks.get(key)
        if disk is None:
            store, files = _open(url, place)
            bucket, counters = Bucket(store, time.monotonic), files.blocks.counters
            disk = _disks[key] = TreeDisk(url, bucket, files.open, lambda: counters)
        return disk


def following_disk(
    url: str, place: "StorePlace", local: "Disk"
) -> "tuple[ObjectStore, OverlayDisk]":
    """Return a store, and the disk of a data directory that follows it; sends no request."""
    from logfs.disk.remote.overlay import OverlayDisk
    from logfs.log.remote.catalog import DirectoryCatalog

    store, files = _open(url, place)
    counters = files.blocks.counters
    catalog = DirectoryCatalog(local, lambda: store, url)
    return store, OverlayDisk(local, catalog, files.open, lambda: counters)


def open_objects(url: str) -> "ObjectStore":
    """Return the objects below the URL of a store, as the environment says; sends no request.

    Raises:
        InvalidConfigError: The URL is none, or its store cannot be used here.
    """
    from logfs.disk.remote.s3 import StoreSettings, open_store

    return open_store(url, StoreSettings(os.environ, time.monotonic))


def _open(url: str, place: StorePlace) -> "tuple[ObjectStore, RemoteFiles]":
    from logfs.disk.remote.cache import CACHE_BYTES
    from logfs.disk.remote.folder import FolderStore
    from logfs.disk.remote.remotefile import MEMORY_BYTES, RemoteFiles
    from logfs.disk.remote.s3 import StoreSettings, open_store
    from logfs.machine.caches import object_cache
    from logfs.records.checksum import crc32c

    store: ObjectStore
    if url.startswith(_FILE):
        store, cache = FolderStore(url.removeprefix(_FILE)), None
    else:
        settings = StoreSettings(os.environ, time.monotonic, place.endpoint, place.region)
        store, cache = open_store(url, settings), object_cache(url, CACHE_BYTES)
    return store, RemoteFiles(store, crc32c, time.monotonic, MEMORY_BYTES, cache)
