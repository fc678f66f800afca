"""Facts of this machine: clocks, random ids, its name, the boot, the time zone, names of users."""

import contextlib
import os
import pwd
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from io import FileIO

from logfs.log.host import Host

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_MACHINE_ID = "/etc/machine-id"
_DELAYS = "/proc/thread-self/schedstat"
_DELAYS_BYTES = 100
_AT_ONCE_S = 0.000_5
_NS_PER_S = 1_000_000_000
_EPOCH = datetime(1970, 1, 1)
_NO_TIME = timedelta(0)
_DESCRIPTORS_A_SEGMENT = 8
"""Twice what a segment takes, so that half of the limit is left for everything else."""
_MOST_OPEN_SEGMENTS = 4096


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks a mount needs; tests bring their own.

    Attributes:
        now_ms: Milliseconds since the epoch.
        monotonic_s: Seconds that only go forward, for durations.
        slept_s: Seconds, of which only differences in one thread mean anything: how long it has
            slept, for the disk, a lock or a page. The time in which it ran, or could have run if
            a processor had been free, is left out.
    """

    now_ms: Callable[[], int]
    monotonic_s: Callable[[], float]
    slept_s: Callable[[], float]


def system_clock() -> Clock:
    """Return the clocks of the machine."""
    return Clock(_now_ms, time.perf_counter, _slept_s)


class _Delay:
    """How long a thread has waited for a processor. Source: proc_pid_schedstat(5)."""

    def __init__(self) -> None:
        self._file: FileIO | None = None
        with contextlib.suppress(OSError):  # this kernel does not tell
            self._file = open(_DELAYS, "rb", buffering=0)  # noqa: SIM115 - as long as the thread

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def seconds(self) -> float:
        """Return the time so far; 0 if it is not known."""
        if self._file is None:
            return 0.0
        self._file.seek(0)
        return int(self._file.read(_DELAYS_BYTES).split()[1]) / _NS_PER_S


class _OfThread(threading.local):
    """That of the thread which asks."""

    def __init__(self) -> None:
        self.delay = _Delay()


_of_thread = _OfThread()


def _slept_s() -> float:
    while True:
        now_s = time.perf_counter()
        slept_s = now_s - time.thread_time() - _of_thread.delay.seconds()
        if time.perf_counter() - now_s < _AT_ONCE_S:
            return slept_s
        # The thread may have lost the processor between two of the clocks.


def current_host() -> Host:
    """Return the identity of the running machine, its source of identifiers, what it lets open."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_segments = min(max(descriptors // _DESCRIPTORS_A_SEGMENT, 16), _MOST_OPEN_SEGMENTS)
    return Host(read_boot_id(), _new_id, open_segments, time.perf_counter)


def read_boot_id(path: str = _BOOT_ID) -> str:
    """Return what changes with every start of the machine.

    Where it cannot be read (a unit with ``ProcSubset=pid``) it is another one each time: what was
    left on an unknown boot is taken for what another boot left, which is always safe.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return _new_id().hex()


def machine_id(path: str = _MACHINE_ID) -> str:
    """Return what tells this machine from others; where it has no such id, its name.

    Source: machine-id(5).
    """
    with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
        if found := file.read().strip():
            return found
    return os.uname().nodename


def raise_descriptor_limit() -> None:
    """Let this process open as many files as it may: every partition in use takes a few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class LocalZone(tzinfo):
    """The time zone of the process (``TZ``), with the rules of each date.

    A local time that does not exist or exists twice is read with the offset that was in force
    before the clock was changed, as ``datetime`` does with ``fold=0``.
    """

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """Return the offset from UTC that was, is or will be in force."""
        if dt is None:
            return _NO_TIME
        local = dt.replace(tzinfo=None)
        try:
            seconds = local.timestamp()
        except (ValueError, OverflowError, OSError):
            return _NO_TIME  # the first and last days of the calendar
        return timedelta(seconds=round((local - _EPOCH).total_seconds() - seconds))

    def dst(self, dt: datetime | None) -> timedelta | None:
        """Return None: it is not known."""
        return None

    def tzname(self, dt: datetime | None) -> str:
        """Return the name of the zone."""
        return "local"


LOCAL_ZONE = LocalZone()


def user_name(uid: int) -> str:
    """Return the name of a user; the number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def utc_offset_s(zone: tzinfo, local: str) -> int:
    """Return the offset of a zone from UTC in seconds, at a local date and time (ISO 8601).

    Raises:
        ValueError: It is no date, or it names its own zone.
    """
    moment = datetime.fromisoformat(local)
    if moment.tzinfo is not None:
        raise ValueError(f"{local!r} names its own zone")
    return round((zone.utcoffset(moment.replace(tzinfo=zone)) or _NO_TIME).total_seconds())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_id() -> bytes:
    return os.urandom(16)
