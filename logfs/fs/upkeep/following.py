"""A mount that follows a directory that another program writes: its looks, and its cache.

Each partition is looked at several times a second; a look at an idle one costs two calls of stat.
New data is read in steps, so that a partition with much to read does not delay the others.

State that outlasts the mount, above all the positions of records, is kept in a cache directory:
that of the option ``cache_dir``, else ``$CACHE_DIRECTORY``, else ``$XDG_CACHE_HOME/logfs``, else
``~/.cache/logfs``. Each data directory has its own subdirectory there.
"""

import json
import logging
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import trio

from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import Disk, Lock
from logfs.errors import LockedError, LogfsError
from logfs.fs.threads import run_in_thread
from logfs.fs.tree.tree import Tree
from logfs.log import names
from logfs.log.reading.readable import ReadableLog
from logfs.machine.caches import cache_directory
from logfs.machine.disks import is_url
from logfs.machine.host import Clock
from logfs.records.jsontext import decode_json
from logfs.services.following.store import AnyStore
from logfs.services.following.watched import STEP_BYTES

logger = logging.getLogger(__name__)

LOOK_S = 0.2
"""The time between two looks; a record is seen within that time plus that of reading it."""
SAY_S = 5.0
_FIRST_BYTES = 1024 * 1024
_HEADER = "logfs.cache"
_VERSION = 1
_KEY_BYTES = 16


class Cache(NamedTuple):
    """The part of a cache directory that belongs to one data directory, and its lock."""

    disk: Disk
    lock: Lock


class Follower:
    """Looks at every partition, again and again. Event loop only.

    Args:
        store: The store that is followed.
        tree: Forgets topics that are deleted.
        clock: The clocks.
        note_directory_look: Called after each look.
    """

    def __init__(
        self, store: AnyStore, tree: Tree, clock: Clock, note_directory_look: Callable[[], None]
    ) -> None:
        self._store = store
        self._note_directory_look = note_directory_look
        self._tree = tree
        self._clock = clock
        self._is_busy = False
        self._progress: dict[ReadableLog, float] = {}
        self._problems: dict[ReadableLog, str] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await run_in_thread(self._look)
            self._tree.forget_deleted()
            self._note_directory_look()
            await trio.sleep(0 if self._is_busy else LOOK_S)

    def _look(self) -> None:
        try:
            self._store.look_around(self._clock.now_ms())
        except (LogfsError, OSError) as error:
            logger.warning("the data directory cannot be looked at: %s", error)
            return
        started_s = self._clock.monotonic_s()
        # First a little of each, so that those with much to read do not hold up the others.
        busy = deque(log for log in self._store.followed() if self._refresh(log, _FIRST_BYTES))
        while busy and self._clock.monotonic_s() - started_s < LOOK_S:
            log = busy.popleft()
            if self._refresh(log, STEP_BYTES):
                busy.append(log)
        self._is_busy = bool(busy)

    def _refresh(self, log: ReadableLog, limit_bytes: int) -> bool:
        """Look at one partition; True if there is more to do at once."""
        try:
            has_more = log.refresh(self._clock.now_ms(), limit_bytes)
        except (LogfsError, OSError) as error:
            if self._problems.get(log) != str(error):
                self._problems[log] = str(error)
                logger.warning("%s cannot be followed: %s", log.topic_partition, error)
            return False
        except Exception:
            logger.exception("a bug in logfs: %s cannot be followed", log.topic_partition)
            return False
        self._problems.pop(log, None)
        if log.indexing is not None or log in self._progress:
            self._log_progress(log)
        return has_more

    def _log_progress(self, log: ReadableLog) -> None:
        """Log every few seconds how far the positions of a large log are known."""
        now_s, indexing = self._clock.monotonic_s(), log.indexing
        if log.is_part:
            return
        if indexing is None:
            del self._progress[log]
            logger.info("%s: all its positions are known", log.topic_partition)
        elif now_s - self._progress.get(log, 0.0) >= SAY_S:
            self._progress[log] = now_s
            done, total = indexing
            logger.info("%s: the positions of %d MiB of %d MiB are known", log.topic_partition,
                        done >> 20, total >> 20)  # fmt: skip


def open_cache(data: str, chosen: str | None) -> Cache | None:
    """Open the cache of a data directory; None, with a warning, if it cannot be used.

    Args:
        data: The data directory, an absolute path without links.
        chosen: The value of the mount option.
    """
    base = Path(chosen) if chosen is not None else cache_directory()
    directory = base / _key(data)
    if directory.resolve().is_relative_to(data):
        logger.warning("%s: the cache would be in the data directory, into which nothing is "
                       "written; positions are kept in memory only", directory)  # fmt: skip
        return None
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        disk = PosixDisk(directory)
        lock = disk.lock(names.LOCK_FILE)
        if not _is_ours(disk):
            disk.replace(_HEADER, (json.dumps({"version": _VERSION, "data": data}) + "\n").encode())
        return Cache(disk, lock)
    except LockedError as error:
        if is_url(data):
            # Its positions are in the store.
            logger.info("%s: another mount uses this cache; nothing is kept there", directory)
            return None
        logger.warning("%s; positions are kept in memory only, and differ from those there", error)
    except (LogfsError, OSError) as error:
        logger.warning("%s; positions are kept in memory only: they start again at the next mount",
                       error)  # fmt: skip
    return None


def _key(data: str) -> str:
    """Name the cache of a data directory: by where it is, and by the id a broker gave it."""
    try:
        text = PosixDisk(data).read(names.META_PROPERTIES).decode(errors="replace")
    except OSError:
        text = ""
    ids = [line for line in text.splitlines() if line.startswith("directory.id=")]
    return blake2b("\n".join([data, *ids]).encode(), digest_size=_KEY_BYTES).hexdigest()


def _is_ours(disk: Disk) -> bool:
    """Whether the cache is one; False for a new one.

    Raises:
        LogfsError: A newer logfs wrote it.
    """
    try:
        version = decode_json(disk.read(_HEADER), itemgetter("version"))
    except (FileNotFoundError, ValueError):
        return False
    if version != _VERSION:
        raise LogfsError(f"{_HEADER}: version {version}, this logfs reads version {_VERSION}")
    return True
