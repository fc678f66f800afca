"""How much of what all users share a user of a mount may take. Root and the daemon's user may more.

    user_max_partitions=N       no topic, and not all topics of one owner together, get more
    user_max_message_bytes=N    no topic is given a larger max.message.bytes

A record is in memory as a whole when it is appended and when it is read, and each partition is a
directory with a dozen files. ``logfs topic create`` and ``alter`` of the operator have no limits.
"""

import os

from logfs.config import TOPIC_KEYS
from logfs.fs.errnos import QuotaExceededError
from logfs.fs.nodes import Ownership
from logfs.fs.options import MountOptions
from logfs.log.store import LogStore

_MESSAGE_BYTES = "max.message.bytes"


class Quotas:
    """Checks requests of users against the limits of a mount. Any thread.

    Args:
        store: The store.
        ownership: The owners of topics.
        options: The limits.
    """

    def __init__(self, store: LogStore, ownership: Ownership, options: MountOptions) -> None:
        self._store = store
        self._ownership = ownership
        self._options = options
        self._unlimited = {0, os.getuid()}

    def check_partitions(self, caller: int, topic: str, partitions: int, owner: int) -> None:
        """Refuse a number of partitions for a topic, present or to be made.

        Args:
            caller: The user who asks for it.
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
            QuotaExceededError: It is larger than the caller may set it.
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
