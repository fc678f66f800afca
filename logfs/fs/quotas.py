"""Limits for users of a mount; root and the daemon's user have none.

    user_max_partitions=N       partitions of a topic, and of all topics of one owner together
    user_max_message_bytes=N    the value of max.message.bytes
    user_max_open_files=N       files and directories of the mount that a user has open

A record is in memory as a whole when it is appended and when it is read. A partition is a directory
with a dozen files. An open file takes a few KiB of the daemon; one below ``.segments`` or with an
unfinished line also takes a descriptor. ``logfs topic create`` and ``alter`` have no limits.
"""

import os
from collections import Counter

from logfs.config import TOPIC_KEYS
from logfs.errors import QuotaExceededError
from logfs.fs.errnos import RefusedError, TooManyOpenFilesError
from logfs.fs.nodes import MountOwnership
from logfs.fs.options import MountOptions
from logfs.log.following.store import AnyStore

_MESSAGE_BYTES = "max.message.bytes"
_QUOTA_KEYS = "logfs.quota."


class Quotas:
    """Checks requests of users against the limits of a mount.

    Any thread; the methods for open files, event loop only.

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
        self._users: dict[tuple[str, int], int] = {}  # by kind and number of the handle

    def check_partitions(self, caller: int, topic: str, partitions: int, owner: int) -> None:
        """Refuse a number of partitions for a topic that exists or is to be created.

        Args:
            caller: The user that asks for it.
            topic: Its name.
            partitions: How many it shall have.
            owner: The owner of the topic.

        Raises:
            QuotaExceededError: The caller may not create so many.
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

    def check_setting(self, caller: int, topic: str, key: str, text: str | None) -> None:
        """Refuse a setting of a topic; None resets it.

        Raises:
            QuotaExceededError: It is larger than the caller may set.
            RefusedError: It is a quota, which only users without limits may set.
            InvalidConfigError: The value is not valid.
        """
        if caller in self._unlimited:
            return
        if key.startswith(_QUOTA_KEYS):
            raise RefusedError(f"topic {topic}: only root and the user of the daemon set {key}")
        if key != _MESSAGE_BYTES or text is None:
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
            TooManyOpenFilesError: The caller has reached the limit.
        """
        limit = self._options.user_max_open_files
        if self._open[caller] >= limit and caller not in self._unlimited:
            raise TooManyOpenFilesError(
                f"user {caller} has {limit} files open; the mount option user_max_open_files "
                "allows no more"
            )

    def note_opened(self, caller: int, kind: str, number: int) -> None:
        """Note the user that has opened a handle of a kind and number."""
        self._users[kind, number] = caller
        self._open[caller] += 1

    def note_released(self, kind: str, number: int) -> None:
        """Note that a handle was closed."""
        caller = self._users.pop((kind, number), None)
        if caller is None:
            return  # opened in an earlier daemon, and closed there
        self._open[caller] -= 1
        if not self._open[caller]:
            del self._open[caller]
