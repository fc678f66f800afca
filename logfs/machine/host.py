"""Facts of this machine: clocks, random ids, its name, the boot, the time zone, names of users."""

import contextlib
import itertools
import os
import pwd
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo

from logfs.log.host import Host

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_MACHINE_ID = "/etc/machine-id"
_EPOCH = datetime(1970, 1, 1)
_NO_TIME = timedelta(0)
_DESCRIPTORS_A_SEGMENT = 8
"""Twice what a segment takes, so that half of the limit is left for everything else."""
_MOST_OPEN_SEGMENTS = 4096


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks a mount needs; tests bring their own.

    Attributes:
        now_ms: Milliseconds since the epoch.
        monotonic_s: Seconds that only go forward, for durations.
        waits: How often the calling thread has waited so far. A thread that only lost the
            processor to others has not. By default more at each call.
    """

    now_ms: Callable[[], int]
    monotonic_s: Callable[[], float]
    waits: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)


def system_clock() -> Clock:
    """Return the clocks of the machine."""
    return Clock(_now_ms, time.perf_counter, _waits)


def _waits() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


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
        ValueError: It is no date, or it names a zone of its own.
    """
    moment = datetime.fromisoformat(local)
    if moment.tzinfo is not None:
        raise ValueError(f"{local!r} names a zone of its own")
    return round((zone.utcoffset(moment.replace(tzinfo=zone)) or _NO_TIME).total_seconds())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_id() -> bytes:
    return os.urandom(16)
