"""Inode numbers, and the nodes that the kernel knows by them.

A number is computed from the key of the inode, so it is the same after a restart. The kernel tells
how many look-ups it forgets. A node is in the table as long as the kernel may use its number. Some
look-ups are counted elsewhere (``nativenames``): they are taken into account before it is dropped.

A *keeper* restores the nodes that an earlier daemon of the same mount has looked up. The number of
these look-ups is not known, so such a node stays until ``drop``.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

from logfs.fs.kernel.errnos import StaleError

ROOT_INODE = 1
_MASK = 2**63 - 1
_UNKNOWN = 2**62
"""The look-ups of a restored node: more than the kernel can take back."""


class Numbered(Protocol):
    """An entry of the table.

    Attributes:
        key: Two nodes with the same key are the same inode.
        shown_key: The key whose number programs see.
        ino: The inode number, 0 until there is one.
    """

    @property
    def key(self) -> str:
        """Return the key."""

    @property
    def shown_key(self) -> str:
        """Return the key whose number programs see."""

    ino: int


NodeT = TypeVar("NodeT", bound=Numbered)


def inode_number(key: str, salt: int) -> int:
    """Return the number of a key: 8 bytes of BLAKE2b without the highest bit, never 0 or 1.

    Args:
        key: Any text.
        salt: How many numbers of this key are taken by other keys.
    """
    digest = blake2b(key.encode(), digest_size=8, salt=salt.to_bytes(8, "big")).digest()
    number = int.from_bytes(digest, "big") & _MASK
    return number if number > ROOT_INODE else number + 2


class NodeKeeper(Protocol[NodeT]):
    """Keeps nodes for the next daemon of the same mount."""

    def note(self, node: NodeT, /) -> None:
        """Note a node that the kernel is about to know."""

    def forget(self, number: int, /) -> None:
        """Note that the kernel does not know a number any more."""

    def restore(self, number: int, /) -> NodeT | None:
        """Return the node that was noted under a number; None if none was.

        Raises:
            StaleError: It is gone.
        """


class InodeTable(Generic[NodeT]):
    """The nodes the kernel knows. Event loop only.

    Args:
        root: The root; its number is 1, and it is never forgotten.
        hash_key: Computes a number from a key and a salt.
        keeper: Keeps the nodes; None: they end with this daemon.
        take_lookups: Returns how many look-ups of a number were counted elsewhere since it was
            last asked, and has the next ones counted here.
    """

    def __init__(
        self,
        root: NodeT,
        hash_key: Callable[[str, int], int] = inode_number,
        keeper: NodeKeeper[NodeT] | None = None,
        take_lookups: Callable[[int], int] = lambda _: 0,
    ) -> None:
        root.ino = ROOT_INODE
        self._hash_key = hash_key
        self._keeper = keeper
        self._take_lookups = take_lookups
        self._nodes: dict[int, NodeT] = {ROOT_INODE: root}
        self._lookups: dict[int, int] = {ROOT_INODE: 1}

    def __len__(self) -> int:
        return len(self._nodes)

    def nodes(self) -> list[NodeT]:
        """Return all nodes."""
        return list(self._nodes.values())

    def node(self, number: int) -> NodeT:
        """Return the node with a number.

        Raises:
            StaleError: The kernel was told to forget it, or it is of an earlier mount.
        """
        node = self._nodes.get(number) or self._restored(number)
        if node is None:
            raise StaleError(f"inode {number} is not known")
        return node

    def _restored(self, number: int) -> NodeT | None:
        node = None if self._keeper is None else self._keeper.restore(number)
        if node is not None:
            self._nodes[number] = node
            self._lookups[number] = _UNKNOWN
        return node

    def canonical(self, node: NodeT) -> NodeT:
        """Return the node with this key, and give it its number.

        If the kernel knows a node with the same key, that one is returned. The table is unchanged.
        """
        if node.ino and self._nodes.get(node.ino) is node:
            return node
        number, known = self._place(node.key)
        if known is not None:
            return known
        node.ino = number
        return node

    def shown_number(self, node: NodeT) -> int:
        """Return the number that programs see: that of the canonical node with the same bytes."""
        return ROOT_INODE if node.ino == ROOT_INODE else self._place(node.shown_key)[0]

    def replace(self, node: NodeT) -> None:
        """Put a node in the place of that with its number, if the kernel knows it."""
        if node.ino in self._nodes:
            self._nodes[node.ino] = node
            if self._keeper is not None:
                self._keeper.note(node)

    def _place(self, key: str) -> tuple[int, NodeT | None]:
        """Return the number of a key, and the node under it."""
        salt = 0
        while True:
            number = self._hash_key(key, salt)
            known = self._nodes.get(number)
            if known is None:
                with suppress(StaleError):
                    known = self._restored(number)
            if known is None or known.key == key:
                return number, known
            salt += 1

    def count(self, node: NodeT) -> None:
        """Note a look-up of a node that ``canonical`` returned."""
        number = node.ino
        lookups = self._lookups
        if number in lookups:
            lookups[number] += 1
        else:
            self._nodes[number] = node
            lookups[number] = 1
            if self._keeper is not None:
                self._keeper.note(node)

    def count_all(self, nodes: Sequence[NodeT]) -> bool:
        """Note a look-up of each of some nodes that ``canonical`` has returned at any time.

        Returns:
            False if nothing was noted: a node has become another one, or has another number.
        """
        known, lookups = self._nodes, self._lookups
        for node in nodes:
            number = node.ino
            if known.get(number) is not node and (
                self.canonical(node) is not node or node.ino != number
            ):
                return False
        for node in nodes:
            if node.ino in lookups:
                lookups[node.ino] += 1
            else:
                self.count(node)
        return True

    def lookups(self, number: int) -> int | None:
        """Return a number that each look-up changes; None if the kernel does not know the node.

        Until its next look-up, no look-up of the node is counted elsewhere.
        """
        if number in self._lookups:
            self._lookups[number] += self._take_lookups(number)
        return self._lookups.get(number)

    def drop(self, number: int) -> None:
        """Take a node out that the kernel does not know, with any number of look-ups."""
        self._nodes.pop(number, None)
        self._lookups.pop(number, None)
        self._take_lookups(number)
        if self._keeper is not None:
            self._keeper.forget(number)

    def forget(self, lookups: Iterable[tuple[int, int]]) -> None:
        """Take back look-ups, as (number, how many); unknown numbers are ignored."""
        for number, times in lookups:
            left = self._lookups.get(number, 0) - times
            if left <= 0:
                left += self._take_lookups(number)
            if left > 0 or number == ROOT_INODE:
                self._lookups[number] = max(left, 1)
            elif number in self._lookups:
                self.drop(number)
