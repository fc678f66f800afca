"""Changes to topics, and to stored owners and modes: those of one topic in turn, in threads."""

import math
import stat
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar, TypeVarTuple
from weakref import WeakValueDictionary

import trio

from logfs.fs.handover.notes import Note
from logfs.fs.kernel.permissions import MountOwnership
from logfs.fs.options import MountOptions
from logfs.fs.partitions.quotas import Quotas
from logfs.fs.threads import run_in_thread
from logfs.fs.tree.nativenames import NativeNames
from logfs.fs.tree.nodes import InNode, Node, PlainNode, TopicNode
from logfs.fs.tree.rules import refusal
from logfs.fs.tree.tree import Tree
from logfs.log.attributes import Ownership as StoredOwnership
from logfs.log.topics import check_partitions
from logfs.machine.host import Clock
from logfs.services.following.store import AnyStore

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DEFAULT_UMASK = 0o022
_PARTITIONS_IN_TURN = 64
_UNLIMITED = trio.CapacityLimiter(math.inf)
"""Changes whose disk hangs could use up a shared limit. Each topic has one at a time."""


class Creator(NamedTuple):
    """The process that makes a topic or a partition."""

    uid: int
    gid: int
    umask: int


class TopicChangeQueue:
    """Runs changes of topics, those of one topic one at a time, in threads. Event loop only.

    A change whose disk hangs holds up no other topic.

    Attributes:
        names: The names that are looked up natively, not during a change.
    """

    def __init__(self, store: AnyStore, tree: Tree, clock: Clock, names: NativeNames) -> None:
        self._store = store
        self.names = names
        self._tree = tree
        self._clock = clock
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    async def run(self, topic: str, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a change of a topic when its turn comes."""
        async with self._locks.setdefault(topic, trio.Lock()):
            with self.names.changing():
                return await run_in_thread(call, *args, limiter=_UNLIMITED)

    async def undelete_topic(self, topic: str) -> None:
        """Restore a deleted topic.

        Raises:
            TopicExistsError, NoSuchTopicError, ReadOnlyError, OSError: See
                ``LogStore.undelete_topic``.
        """
        await self.run(topic, self._store.writable.undelete_topic, topic, self._clock.now_ms())
        self._tree.root.mtime_ms = self._clock.now_ms()

    async def rename_topic(self, topic: TopicNode, new: str) -> None:
        """Give a topic another name; files that programs have open stay readable.

        Raises:
            TopicExistsError, NoSuchTopicError, ReadOnlyError, LogfsError, OSError: See
                ``LogStore.rename_topic``.
        """
        with self._tree.kept_off_loop(topic):
            rename = self._store.writable.rename_topic
            await self.run(topic.name, rename, topic.name, new, self._clock.now_ms())
        self._tree.forget(topic)
        self._tree.root.mtime_ms = self._clock.now_ms()

    async def delete_topic(
        self,
        topic: TopicNode,
        *,
        only_empty: bool = False,
        at_once: bool = False,
        note: Note | None = None,
    ) -> None:
        """Delete a topic; files that programs have open stay readable.

        Args:
            topic: The topic.
            only_empty: Refuse to delete a topic that contains records.
            at_once: See ``LogStore.delete_topic``; not with ``only_empty``.
            note: That of the request; None: it has none.

        Raises:
            TopicNotEmptyError, NoSuchTopicError, ReadOnlyError, OSError: See
                ``LogStore.delete_topic``.
        """
        store = self._store.writable
        delete = partial(store.delete_topic, at_once=at_once)
        if only_empty:
            delete = partial(store.delete_empty_topic)
        with self._tree.kept_off_loop(topic):
            call = partial(delete, topic.name, self._clock.now_ms())
            if note is not None:
                call = partial(note.apply, call, text=topic.topic_id or "")
            await self.run(topic.name, call)
        self._tree.forget(topic)
        self._tree.root.mtime_ms = self._clock.now_ms()


class TopicChanges:
    """The changes of mkdir, touch, chmod and chown. In threads."""

    def __init__(
        self,
        store: AnyStore,
        ownership: MountOwnership,
        options: MountOptions,
        clock: Clock,
        quotas: Quotas,
    ) -> None:
        self._store = store
        self._ownership = ownership
        self._options = options
        self._clock = clock
        self._quotas = quotas

    def exists(self, name: bytes) -> bool:
        """Whether there is a topic of this name."""
        return name.decode(errors="surrogateescape") in self._store.topics()

    def make(self, name: bytes, mode: int, creator: Creator, *, was_begun: bool = False) -> None:
        """Create a topic, with the owner and modes that mkdir(2) and open(2) would give.

        Its partitions get the modes of new files of its creator. Mount options (uid, gid, umask)
        set owner and modes instead. If it ``was_begun``, what is there of the topic is completed.

        Raises:
            IllegalTopicNameError, TopicExistsError, ReadOnlyError, OSError.
            QuotaExceededError: The creator may not have as many partitions.
        """
        store, defaults = self._store, self._ownership
        text, count = name.decode(errors="surrogateescape"), store.config.num_partitions
        owner = creator.uid if self._options.uid is None else self._options.uid
        root_mode, _, root_gid = defaults.of_directory("")
        gid, permissions = creator.gid, stat.S_IMODE(mode)
        if root_mode & stat.S_ISGID:
            gid, permissions = root_gid, permissions | stat.S_ISGID
        topic = StoredOwnership(
            self._own_mode(permissions, 0o777),
            self._own_id(creator.uid, self._options.uid, defaults.uid),
            self._own_id(gid, self._options.gid, defaults.gid),
        )
        file = StoredOwnership(self._own_mode(0o666 & ~creator.umask, 0o666))
        with self._quotas.partitions_to_come(creator.uid, text, count, owner):
            if was_begun and self.exists(name):
                store.writable.grow_topic(text, count, self._clock.now_ms(), file)
                return
            ownerships: dict[int | None, StoredOwnership] = {None: topic}
            ownerships |= dict.fromkeys(range(count), file)
            store.writable.create_topic(text, count, {}, self._clock.now_ms(), ownerships)

    def steps_of_growth(self, topic: str, number: int, creator: Creator) -> list[int]:
        """Return the numbers up to which ``grow`` adds partitions one after the other.

        Other changes of the topic take turns with them: a name that is made in a directory keeps
        all programs from listing the directory until then.

        Raises:
            NoSuchTopicError, InvalidConfigError, QuotaExceededError: See ``grow``.
        """
        check_partitions(topic, number + 1)
        self._quotas.check_partitions(
            creator.uid, topic, number + 1, self._ownership.of_directory(topic)[1]
        )
        first = len(self._store.partitions(topic)) + _PARTITIONS_IN_TURN - 1
        return [*range(first, number, _PARTITIONS_IN_TURN), number]

    def grow(self, topic: str, number: int, mode: int, creator: Creator) -> None:
        """Add partitions to a topic up to a number, with the owner and mode of open(2).

        Raises:
            NoSuchTopicError, LogOfflineError, ReadOnlyError, OSError.
            InvalidConfigError: A topic cannot have so many.
            QuotaExceededError: The creator may not have so many.
        """
        topic_mode, topic_uid, topic_gid = self._ownership.of_directory(topic)
        gid = topic_gid if topic_mode & stat.S_ISGID else creator.gid
        ownership = StoredOwnership(
            self._own_mode(stat.S_IMODE(mode), 0o666),
            self._own_id(creator.uid, self._options.uid, topic_uid),
            self._own_id(gid, self._options.gid, topic_gid),
        )
        with self._quotas.partitions_to_come(creator.uid, topic, number + 1, topic_uid):
            self._store.writable.grow_topic(topic, number + 1, self._clock.now_ms(), ownership)

    def _own_mode(self, mode: int, most: int) -> int | None:
        """Return the mode to store; None if it is the default of the mount."""
        if self._options.umask is not None or mode == most & ~self._ownership.umask:
            return None
        return mode

    def _own_id(self, own: int, option: int | None, inherited: int) -> int | None:
        """Return the user or group to store; None if it is inherited."""
        return None if option is not None or own == inherited else own

    def set_attributes(
        self, node: Node, mode: int | None, uid: int | None, gid: int | None
    ) -> None:
        """Store a mode or an owner; None leaves it unchanged.

        Raises:
            RefusedError: The node is neither a topic nor a growing plain name.
            NoSuchTopicError: The topic has been deleted.
        """
        topic, partition = owner_key(node)
        if topic:
            self._store.topic_id(topic)
        permissions = None if mode is None else stat.S_IMODE(mode)
        self._store.attributes.set(topic, partition, mode=permissions, uid=uid, gid=gid)


def owner_key(node: Node) -> tuple[str, int | None]:
    """Return the topic and the partition whose owner and mode a node has; ("", None) of the root.

    Raises:
        RefusedError: They cannot be set.
    """
    if isinstance(node, TopicNode):
        return node.name, None
    if isinstance(node, PlainNode) and not isinstance(node, InNode):
        return node.partition.topic_partition
    raise refusal(read_only=False)
