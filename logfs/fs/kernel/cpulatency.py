"""Processors that do not sleep while small reads are answered: mount option ``keep_awake``.

A program that reads in small pieces sleeps until each reply, and so does its processor. Waking the
processor takes longer than the reply: 10 us in many virtual machines, where a sleeping processor is
given to others. ``/dev/cpu_dma_latency`` asks the kernel that no processor sleeps deeper than a
latency allows; 0 is no sleep. It takes root, and applies to the whole machine, which then takes
more power. So it is a mount option, is held only while such reads come, and ends with the daemon.
It begins with the first reads of a file, which come to Python, and continues while native reads
come.

Its use is measured by the rows ``-o keep_awake`` of the benchmark ``cat``: small reads are 1.7 to
2.2 times as fast.

Source: Linux Documentation/power/pm_qos_interface.rst. No pyfuse3.
"""

import io
import logging
import struct
from collections.abc import Callable
from pathlib import Path

import trio

logger = logging.getLogger(__name__)

DEVICE = Path("/dev/cpu_dma_latency")
HOLD_S = 0.02
"""How long it is held after the last small read."""
_MICROSECONDS = struct.Struct("=i")
_NO_SLEEP = _MICROSECONDS.pack(0)


class CpuLatency:
    """Holds the request for latency 0. Event loop only; the task ``run`` has to run.

    Args:
        wanted: The mount option is set.
        native_reads: Gives the number of reads that were answered natively.
        device: The device of the request.
    """

    def __init__(
        self, native_reads: Callable[[], int], *, wanted: bool, device: Path = DEVICE
    ) -> None:
        self._native_reads = native_reads
        self._is_wanted = wanted
        self._device = device
        self._file: io.FileIO | None = None
        self._is_used = False
        self._begun = trio.Event()

    @property
    def is_held(self) -> bool:
        """Whether the processors are kept awake."""
        return self._file is not None

    def note(self) -> None:
        """Note that small reads have been answered."""
        if self._is_wanted:
            self._is_used = True
            self._begun.set()

    async def run(self) -> None:
        """Hold the request while small reads come, until cancelled."""
        try:
            while self._is_wanted:
                await self._begun.wait()
                self._hold()
                seen = -1
                while self._is_used or self._native_reads() != seen:
                    self._is_used, seen = False, self._native_reads()
                    await trio.sleep(HOLD_S)
                self._release()
                self._begun = trio.Event()
        finally:
            self._release()

    def _hold(self) -> None:
        try:
            self._file = io.FileIO(self._device, "r+")
            self._file.write(_NO_SLEEP)
        except OSError as error:
            self._is_wanted = False
            logger.warning("mount option keep_awake has no effect: %s", error)

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
