"""The facts of the machine, given from outside: the log reads no clock and no random numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from logfs.disk.vfs import Disk
from logfs.log.segments.segment import OPEN_SEGMENTS
from logfs.records.checksum import crc32c

if TYPE_CHECKING:
    from concurrent.futures import Executor


def _no_clock() -> float:
    return 0.0


def _threads(count: int, name: str) -> "Executor":
    from concurrent.futures import ThreadPoolExecutor  # rarely needed, and slow to import

    return ThreadPoolExecutor(count, thread_name_prefix=name)


@dataclass(frozen=True, slots=True)
class Host:
    """The machine a store runs on.

    Attributes:
        boot_id: Changes with every start of the machine (``/proc/sys/kernel/random/boot_id``); see
            ``cache_mark``.
        new_id: Gives 16 random bytes.
        open_segments: Sealed segments to keep open; each takes up to four descriptors.
        clock_s: Seconds that only go forward, for how long something takes. By default always 0.
        pool: Gives at most so many threads, which have a name, for calls that wait for a disk.
    """

    boot_id: str
    new_id: Callable[[], bytes]
    open_segments: int = OPEN_SEGMENTS
    clock_s: Callable[[], float] = _no_clock
    pool: "Callable[[int, str], Executor]" = _threads


def cache_mark(host: Host, disk: Disk) -> bytes:
    """Return eight bytes that are the same as long as the page cache cannot have been lost.

    With another start of the machine, and with another mount of the file system, they are others.
    Where the mount is not known they are others each time, which is always safe.
    """
    mount_id = disk.mount_id() or host.new_id().hex()
    text = f"{host.boot_id} {mount_id}".encode()
    return crc32(text).to_bytes(4, "big") + crc32c(text).to_bytes(4, "big")
