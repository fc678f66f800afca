"""Nodes of an earlier daemon that the kernel does not know any more.

A FORGET that a daemon had read when it was killed is lost, and a restored node does not know how
many look-ups the kernel has counted. So the kernel is asked whether it knows an inode, for a few of
them at a time. An inode that it does not know twice, with no use between, is taken out.

The kernel asks for the attributes of an inode again after such a question. So the questions become
rare when nothing is found.
"""

from collections.abc import Callable, Iterable

import trio

from logfs.fs.tree.inodes import InodeTable
from logfs.fs.tree.nodes import Node

FIRST_PAUSE_S = 60.0
LAST_PAUSE_S = 3600.0
"""The pause between two rounds; it doubles after each round that found nothing."""
QUESTIONS = 64
"""How many inodes the kernel is asked for without a pause; one takes 10 to 20 us."""
_BETWEEN_S = 1.0
"""The pause after so many questions."""
_KNOWN = -1


class Pruning:
    """Asks the kernel for the inodes of an earlier daemon. Event loop only.

    Args:
        inodes: The nodes.
        numbers: Which inodes the kernel may not know any more.
        knows: Returns whether the kernel knows an inode; it never waits for this mount.
    """

    def __init__(
        self, inodes: InodeTable[Node], numbers: Iterable[int], knows: Callable[[int], bool]
    ) -> None:
        self._inodes = inodes
        self._knows = knows
        # Look-ups when the kernel did not know the inode; None: it was not used by this daemon.
        self._unsure: dict[int, int | None] = dict.fromkeys(numbers, _KNOWN)

    async def run(self) -> None:
        """Ask, with pauses, until no inode is left or the task is cancelled."""
        pause_s = FIRST_PAUSE_S
        while self._unsure:
            has_found = False
            numbers = list(self._unsure)
            for first in range(0, len(numbers), QUESTIONS):
                has_found |= self._ask(numbers[first : first + QUESTIONS])
                await trio.sleep(_BETWEEN_S)
            pause_s = FIRST_PAUSE_S if has_found else min(2 * pause_s, LAST_PAUSE_S)
            await trio.sleep(pause_s)

    def _ask(self, numbers: list[int]) -> bool:
        """Ask for a few inodes; returns whether the kernel did not know one of them."""
        unsure, has_found = self._unsure, False
        for number in numbers:
            # First: the look-ups that the kernel is told of from now on come to Python.
            lookups = self._inodes.lookups(number)
            if self._knows(number):
                unsure[number] = _KNOWN
                continue
            has_found = True
            if unsure[number] == lookups:
                del unsure[number]
                self._inodes.drop(number)
            else:
                unsure[number] = lookups
        return has_found
