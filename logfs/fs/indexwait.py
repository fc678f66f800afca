"""Requests that wait until the positions of a partition are known, and who is waiting.

The kernel tells of a signal to a program that waits for an answer, but pyfuse3 does not pass it on,
and until the answer comes the program cannot even be killed. So whoever makes others wait looks
whether a signal is pending for them, and answers EINTR. With the hooks that could be told
(``interrupts``), but what is waited for has to be looked at in any case, and every look-up would
have to be watched in case it waits.
"""

import math
from collections.abc import Callable
from pathlib import Path

import trio

from logfs.fs.errnos import InterruptedWaitError
from logfs.fs.nodes import FileNode, FollowNode, PlainNode, RangeNode
from logfs.log.reading.readable import ReadableLog

PATIENCE_S = 0.25
"""How long the open of a range waits until its length is known."""
LOOK_S = 0.05
_PENDING = ("SigPnd:", "ShdPnd:")
_NOT_DELIVERED = ("SigBlk:", "SigIgn:")


class IndexWait:
    """Those who wait. Event loop only."""

    def __init__(self) -> None:
        self._is_over = False

    def end(self) -> None:
        """Let nobody wait any longer: the mount stops."""
        self._is_over = True

    async def for_positions(self, node: FileNode, pid: int) -> None:
        """Wait until it is known where a file ends; one that begins in the middle may go on."""
        if isinstance(node, PlainNode) or (isinstance(node, FollowNode) and not node.log.is_part):
            await self.for_log(node.partition.log, pid)
        elif isinstance(node, RangeNode):
            await self.for_log(node.log, pid, PATIENCE_S)

    async def for_log(self, log: ReadableLog, pid: int, limit_s: float = math.inf) -> None:
        """Wait until the positions of a log are known."""
        if log.indexing is not None:
            await self.until(lambda: log.indexing is None, pid, limit_s)

    async def until(self, holds: Callable[[], bool], pid: int, limit_s: float = math.inf) -> None:
        """Wait until something holds, or for so many seconds.

        Args:
            holds: What is waited for.
            pid: The thread that waits in the kernel; 0 if it is in another pid namespace.
            limit_s: How long at most.

        Raises:
            InterruptedWaitError: A signal has come for it, or the mount stops.
        """
        with trio.move_on_after(limit_s):
            while not holds():
                if self._is_over or (pid and has_signal(pid)):
                    raise InterruptedWaitError("interrupted while positions are not known yet")
                await trio.sleep(LOOK_S)


def has_signal(pid: int) -> bool:
    """Whether a signal waits to be delivered to a thread, or it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    pending = hidden = 0
    for line in lines:
        name, _, mask = line.partition("\t")
        if name in _PENDING:
            pending |= int(mask, 16)
        elif name in _NOT_DELIVERED:
            hidden |= int(mask, 16)
    return bool(pending & ~hidden)
