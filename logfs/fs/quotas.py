"""How much of what all users share a user of a mount may take. Root and the daemon's user may more.

    user_max_partitions=N       no topic, and not all topics of one owner together, get more
    user_max_message_bytes=N    no topic is given a larger max.message.bytes
    user_max_open_files=N       a user has no more files and directories of the mount open

A record is in memory as a whole when it is appended and when it is read. A partition is a directory
with a dozen files. An open file takes a few KiB of the daemon; one below ``.segments`` or with an
unfinished line also takes a descriptor. ``logfs topic create`` and ``alter`` have no limits.
"""

import os
from collections import Counter

from logfs.config import TOPIC_KEYS
from logfs.fs.errnos import QuotaExceededError, TooManyOpenFilesError
from logfs.fs.nodes import MountOwnership
from logfs.fs.options import MountOptions
from logfs.log.following.store import AnyStore

_MESSAGE_BYTES = "max.message.bytes"


class Quotas:
    """Checks requests of users against the limits of a mount.

    Any thread; what is about open files, the event loop only.

    Args:
        store: The store.
        ownership: The owners of topics.
        options: The limits.
    """

    def __init__(self, store: AnyStore, ownership: MountOwnership, options: MountOptions) -> None:
        self._store = store
        self._ownership = ownership
        self._options = options
        self._unlimited = {0, os.getuid()}
        self._open: Counter[int] = Counter()  # by user
        self._users: dict[tuple[str, int], int] = {}  # of what is open

    def check_partitions(self, caller: int, topic: str, partitions: int, owner: int) -> None:
        """Refuse a number of partitions for a topic, present or to be made.

        Args:
            caller: The user that asks for it.
            topic: Its name.
            partitions: How many it is to have.
            owner: The user whose topic it is or will be.

        Raises:
            QuotaExceededError: They are more than the caller may make.
        """
        if caller in self._unlimited:
            return
        limit, total = self._options.user_max_partitions, partitions
        if owner not in self._unlimited and partitions <= limit:
            total += sum(
                len(self._store.partitions(other))
                for other in self._store.topics()
                if other != topic and self._ownership.of_directory(other)[1] == owner
            )
        if total > limit:
            raise QuotaExceededError(
                f"topic {topic}: user {owner} would have {total} partitions; the mount option "
                f"user_max_partitions allows {limit}, 'logfs topic create' and 'alter' more"
            )

    def check_setting(self, caller: int, topic: str, key: str, text: str) -> None:
        """Refuse a setting of a topic.

        Raises:
            QuotaExceededError: It is larger than the caller is allowed to set.
            InvalidConfigError: The value is not valid.
        """
        if key != _MESSAGE_BYTES or caller in self._unlimited:
            return
        limit, value = self._options.user_max_message_bytes, TOPIC_KEYS[key].parse(text)
        if isinstance(value, int) and value > limit:
            raise QuotaExceededError(
                f"topic {topic}: {key}={value}; the mount option user_max_message_bytes allows "
                f"{limit}, 'logfs topic alter' more"
            )

    def check_open(self, caller: int) -> None:
        """Refuse to open one more file or directory.

        Raises:
            TooManyOpenFilesError: The caller has as many open as it may.
        """
        limit = self._options.user_max_open_files
        if self._open[caller] >= limit and caller not in self._unlimited:
            raise TooManyOpenFilesError(
                f"user {caller} has {limit} files open; the mount option user_max_open_files "
                "allows no more"
            )

    def note_opened(self, caller: int, kind: str, number: int) -> None:
        """Note which user has opened a handle, named by its kind and number."""
        self._users[kind, number] = caller
        self._open[caller] += 1

    def note_released(self, kind: str, number: int) -> None:
        """Note that a handle is not open any more."""
        caller = self._users.pop((kind, number))
        self._open[caller] -= 1
        if not self._open[caller]:
            del self._open[caller]
