"""Requests that wait until the positions of a partition are known.

The kernel reports a signal for a program that waits for a reply, but pyfuse3 does not pass it on,
and until the reply comes the program cannot even be killed. So a handler that waits checks whether
a signal is pending for the program, and fails with EINTR. The hooks could report the signal
(``interrupts``), but the condition has to be checked in any case, and then each look-up would have
to be watched in case it waits.
"""

import math
from collections.abc import Callable

import trio

from logfs.fs.kernel.errnos import InterruptedWaitError
from logfs.fs.kernel.interrupts import has_signal
from logfs.fs.tree.nodes import FileNode, FollowNode, PlainNode, RangeNode
from logfs.log.reading.readable import ReadableLog

PATIENCE_S = 0.25
"""How long the open of a range waits until its length is known."""
LOOK_S = 0.05


class IndexWait:
    """The waits of a mount. Event loop only."""

    def __init__(self) -> None:
        self._is_over = False

    def end(self) -> None:
        """End all waits: the mount stops."""
        self._is_over = True

    async def for_positions(self, node: FileNode, pid: int) -> None:
        """Wait until the end of a file is known; for a file with a selector, not for long."""
        if isinstance(node, PlainNode) or (isinstance(node, FollowNode) and not node.log.is_part):
            await self.for_log(node.partition.log, pid)
        elif isinstance(node, RangeNode):
            await self.for_log(node.log, pid, PATIENCE_S)

    async def for_log(self, log: ReadableLog, pid: int, limit_s: float = math.inf) -> None:
        """Wait until the positions of a log are known."""
        if log.indexing is not None:
            await self.until(lambda: log.indexing is None, pid, limit_s)

    async def until(self, holds: Callable[[], bool], pid: int, limit_s: float = math.inf) -> None:
        """Wait until a condition is true, at most ``limit_s`` seconds.

        Args:
            holds: Whether the condition is true.
            pid: The thread that waits in the kernel; 0 if it is in another pid namespace.
            limit_s: How long at most.

        Raises:
            InterruptedWaitError: A signal has come for that thread, or the mount stops.
        """
        with trio.move_on_after(limit_s):
            while not holds():
                if self._is_over or (pid and has_signal(pid)):
                    raise InterruptedWaitError("interrupted while positions are not known yet")
                await trio.sleep(LOOK_S)
