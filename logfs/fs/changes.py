"""Changes of the store as a whole: one at a time, in threads, whoever asks for them."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

from logfs.fs.nodes import TopicNode
from logfs.fs.tree import Tree
from logfs.log.store import LogStore
from logfs.machine.host import Clock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Changes:
    """Makes them. Event loop only.

    Attributes:
        lock: Taken for each.
    """

    def __init__(self, store: LogStore, tree: Tree, clock: Clock) -> None:
        self._store = store
        self._tree = tree
        self._clock = clock
        self.lock = trio.Lock()

    async def run(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Make a change when its turn comes."""
        async with self.lock:
            return await trio.to_thread.run_sync(call, *args)

    async def undelete_topic(self, topic: str) -> None:
        """Restore a deleted topic.

        Raises:
            TopicExistsError, NoSuchTopicError, ReadOnlyError, OSError: See
                ``LogStore.undelete_topic``.
        """
        await self.run(self._store.undelete_topic, topic, self._clock.now_ms())
        self._tree.root.mtime_ms = self._clock.now_ms()

    async def delete_topic(self, topic: TopicNode, *, only_empty: bool = False) -> None:
        """Delete a topic; programs that have its files open finish reading.

        Args:
            topic: The topic.
            only_empty: Refuse to delete one that holds records.

        Raises:
            TopicNotEmptyError, NoSuchTopicError, ReadOnlyError, OSError: See
                ``LogStore.delete_topic``.
        """
        delete = self._store.delete_empty_topic if only_empty else self._store.delete_topic
        with self._tree.kept_off_loop(topic):
            await self.run(delete, topic.name, self._clock.now_ms())
        self._tree.forget(topic)
        self._tree.root.mtime_ms = self._clock.now_ms()
