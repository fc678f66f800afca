"""Changes to topics, and to what is remembered about owners and modes. Blocking, one at a time."""

import stat
from typing import NamedTuple

from logfs.fs.nodes import Node, Ownership, PlainNode, TopicNode
from logfs.fs.options import MountOptions
from logfs.fs.quotas import Quotas
from logfs.fs.rules import refusal
from logfs.log.attributes import Ownership as Remembered
from logfs.log.store import LogStore
from logfs.machine.host import Clock

DEFAULT_UMASK = 0o022


class Creator(NamedTuple):
    """The process that makes a topic or a partition."""

    uid: int
    gid: int
    umask: int


class TopicChanges:
    """What mkdir, touch, rmdir, chmod and chown do. Runs in threads, one call at a time."""

    def __init__(
        self,
        store: LogStore,
        ownership: Ownership,
        options: MountOptions,
        clock: Clock,
        quotas: Quotas,
    ) -> None:
        self._store = store
        self._ownership = ownership
        self._options = options
        self._clock = clock
        self._quotas = quotas

    def make(self, name: bytes, mode: int, creator: Creator) -> None:
        """Make a topic, with the owner and modes that mkdir(2) and open(2) would give.

        Its partitions have the modes of files that its creator makes. Options of the mount (uid,
        gid, umask) name the owner and the modes instead.

        Raises:
            IllegalTopicNameError, TopicExistsError, ReadOnlyError, OSError.
            QuotaExceededError: Its creator may not have as many partitions.
        """
        store, defaults = self._store, self._ownership
        text, count = name.decode(errors="surrogateescape"), store.config.num_partitions
        owner = creator.uid if self._options.uid is None else self._options.uid
        self._quotas.check_partitions(creator.uid, text, count, owner)
        root_mode, _, root_gid = defaults.of_directory("")
        gid, permissions = creator.gid, stat.S_IMODE(mode)
        if root_mode & stat.S_ISGID:
            gid, permissions = root_gid, permissions | stat.S_ISGID
        topic = Remembered(
            self._own_mode(permissions, 0o777),
            self._own_id(creator.uid, self._options.uid, defaults.uid),
            self._own_id(gid, self._options.gid, defaults.gid),
        )
        file = Remembered(self._own_mode(0o666 & ~creator.umask, 0o666))
        ownerships: dict[int | None, Remembered] = {None: topic}
        ownerships |= dict.fromkeys(range(count), file)
        store.create_topic(text, count, {}, self._clock.now_ms(), ownerships)

    def grow(self, topic: str, number: int, mode: int, creator: Creator) -> None:
        """Give a topic partitions up to a number, with the owner and mode that open(2) would give.

        Raises:
            NoSuchTopicError, LogOfflineError, ReadOnlyError, OSError.
            InvalidConfigError: A topic cannot have as many.
            QuotaExceededError: The creator may not make as many.
        """
        topic_mode, topic_uid, topic_gid = self._ownership.of_directory(topic)
        self._quotas.check_partitions(creator.uid, topic, number + 1, topic_uid)
        gid = topic_gid if topic_mode & stat.S_ISGID else creator.gid
        ownership = Remembered(
            self._own_mode(stat.S_IMODE(mode), 0o666),
            self._own_id(creator.uid, self._options.uid, topic_uid),
            self._own_id(gid, self._options.gid, topic_gid),
        )
        self._store.grow_topic(topic, number + 1, self._clock.now_ms(), ownership)

    def _own_mode(self, mode: int, most: int) -> int | None:
        """Return the mode to remember; None if it is that of the mount."""
        if self._options.umask is not None or mode == most & ~self._ownership.umask:
            return None
        return mode

    def _own_id(self, own: int, option: int | None, inherited: int) -> int | None:
        """Return the user or group to remember; None if it is inherited."""
        return None if option is not None or own == inherited else own

    def set_attributes(
        self, node: Node, mode: int | None, uid: int | None, gid: int | None
    ) -> None:
        """Remember a mode or an owner; None leaves it as it is.

        Raises:
            RefusedError: The node is neither a topic nor a growing plain name.
            NoSuchTopicError: The topic has been deleted.
        """
        topic, partition = _owner_key(node)
        if topic:
            self._store.topic_id(topic)
        permissions = None if mode is None else stat.S_IMODE(mode)
        self._store.attributes.set(topic, partition, mode=permissions, uid=uid, gid=gid)


def _owner_key(node: Node) -> tuple[str, int | None]:
    if isinstance(node, TopicNode):
        return node.name, None
    if isinstance(node, PlainNode):
        return node.partition.topic_partition
    raise refusal(read_only=False)
