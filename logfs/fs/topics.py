"""Changes to topics, and to what is remembered about owners and modes. Blocking, one at a time."""

import stat

from logfs.fs.nodes import Node, Ownership, PlainNode, TopicNode
from logfs.fs.options import MountOptions
from logfs.fs.rules import refusal
from logfs.log.store import LogStore
from logfs.machine.host import Clock

DEFAULT_UMASK = 0o022
_OWNERSHIP = ("mode", "uid", "gid")


class TopicChanges:
    """What mkdir, touch, rmdir, chmod and chown do. Runs in threads, one call at a time."""

    def __init__(
        self, store: LogStore, ownership: Ownership, options: MountOptions, clock: Clock
    ) -> None:
        self._store = store
        self._ownership = ownership
        self._options = options
        self._clock = clock

    def make(self, name: bytes, mode: int, uid: int, gid: int) -> None:
        """Make a topic; it belongs to whoever makes it, unless the mount names the owner.

        Raises:
            IllegalTopicNameError, TopicExistsError, ReadOnlyError, OSError.
        """
        store, options = self._store, self._options
        text = name.decode(errors="surrogateescape")
        store.create_topic(text, store.config.num_partitions, {}, self._clock.now_ms())
        defaults, permissions = self._ownership, stat.S_IMODE(mode)
        is_own_mode = options.umask is None and permissions != 0o777 & ~defaults.umask
        ownership = (
            permissions if is_own_mode else None,
            uid if options.uid is None and uid != defaults.uid else None,
            gid if options.gid is None and gid != defaults.gid else None,
        )
        if ownership != (None, None, None):
            store.attributes.set(text, None, **dict(zip(_OWNERSHIP, ownership, strict=True)))

    def grow(self, topic: str, number: int) -> None:
        """Give a topic partitions up to a number."""
        self._store.grow_topic(topic, number + 1, self._clock.now_ms())

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
