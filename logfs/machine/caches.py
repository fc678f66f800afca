"""The directory for files that logfs can make again: that of the service, or the user's."""

import logging
import os
import time
from pathlib import Path

from logfs.disk.remote.cache import CacheDirectory

logger = logging.getLogger(__name__)


def cache_directory() -> Path:
    """Return ``$CACHE_DIRECTORY``, else ``$XDG_CACHE_HOME/logfs``, else ``~/.cache/logfs``.

    Raises:
        RuntimeError: There is no home directory.

    Source: systemd.exec(5), XDG Base Directory Specification.
    """
    service = os.environ.get("CACHE_DIRECTORY", "").partition(":")[0]
    if service:
        return Path(service)
    user = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(user) if user else Path.home() / ".cache") / "logfs"


def object_cache(url: str, limit_bytes: int) -> CacheDirectory | None:
    """Return where parts of a store's objects are kept; None if nowhere.

    Args:
        url: The store.
        limit_bytes: The most that they take; 0: nothing is kept.
    """
    if not limit_bytes:
        return None
    try:
        path = str(cache_directory() / "objects")
    except RuntimeError as error:
        logger.warning("%s; nothing is kept of what is read from %s", error, url)
        return None
    return CacheDirectory(path, url, limit_bytes, now_ns=time.time_ns)
