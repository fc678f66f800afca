"""Processors that do not sleep while small reads are answered: mount option ``keep_awake``.

A program that reads in small pieces sleeps until each is answered, and so does its processor. To
wake that takes longer than the answer: 10 us in many virtual machines, where a processor that
sleeps is given to others. ``/dev/cpu_dma_latency`` is the kernel's way to ask that none sleeps
deeper than a program can bear; 0 is not at all. It is for root, and holds for the whole machine,
which takes more power meanwhile: so it has to be asked for, holds only while such reads come, and
ends with the daemon, however that ends.

Source: Linux Documentation/power/pm_qos_interface.rst. No pyfuse3.
"""

import io
import logging
import struct
from pathlib import Path

import trio

logger = logging.getLogger(__name__)

DEVICE = Path("/dev/cpu_dma_latency")
HOLD_S = 0.02
"""How long after the last of such reads."""
_MICROSECONDS = struct.Struct("=i")
_NOT_AT_ALL = _MICROSECONDS.pack(0)


class CpuLatency:
    """What keeps the processors awake. Event loop only; ``run`` has to, where it is wanted.

    Args:
        wanted: Whether that was asked for.
        device: Where the kernel is asked.
    """

    def __init__(self, *, wanted: bool, device: Path = DEVICE) -> None:
        self._is_wanted = wanted
        self._device = device
        self._file: io.FileIO | None = None
        self._is_used = False
        self._begun = trio.Event()

    @property
    def is_held(self) -> bool:
        """Whether they are kept awake."""
        return self._file is not None

    def note(self) -> None:
        """Note that small reads have been answered."""
        if self._is_wanted:
            self._is_used = True
            self._begun.set()

    async def run(self) -> None:
        """Keep them awake when it is of use, until cancelled."""
        try:
            while self._is_wanted:
                await self._begun.wait()
                self._hold()
                while self._is_used:
                    self._is_used = False
                    await trio.sleep(HOLD_S)
                self._let_go()
                self._begun = trio.Event()
        finally:
            self._let_go()

    def _hold(self) -> None:
        try:
            self._file = io.FileIO(self._device, "r+")
            self._file.write(_NOT_AT_ALL)
        except OSError as error:
            self._is_wanted = False
            logger.warning("mount option keep_awake has no effect: %s", error)

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
