"""What the log must know of the machine, given from outside: it reads no clock and no chance."""

from collections.abc import Callable
from dataclasses import dataclass

from logfs.log.segments.segment import OPEN_SEGMENTS


def _stands_still() -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Host:
    """The machine a store runs on.

    Attributes:
        boot_id: Changes with every start of the machine (``/proc/sys/kernel/random/boot_id``): if
            it is the same, the page cache has survived and nothing written can be lost.
        new_id: Gives 16 random bytes.
        open_segments: Sealed segments to keep open; each takes up to four descriptors.
        clock_s: Seconds that only go forward, for how long something takes. By default they stand.
    """

    boot_id: str
    new_id: Callable[[], bytes]
    open_segments: int = OPEN_SEGMENTS
    clock_s: Callable[[], float] = _stands_still

    @property
    def boot(self) -> bytes:
        """The first eight bytes of the boot id."""
        return self.boot_id.replace("-", "").encode()[:8].ljust(8, b"\0")
