"""Messages to a service manager: systemd's protocol, a datagram for each message.

    READY=1                     the mount answers
    STATUS=text                 the progress of loading
    WATCHDOG=1                  from the event loop; a loop that hangs does not send it
    EXTEND_TIMEOUT_USEC=n       loading or closing takes long, and makes progress
    STOPPING=1                  a signal or an unmount has been noticed
    FDSTORE=1, FDSTOREREMOVE=1  see ``handover.descriptors``
    MAINPID=n                   a successor serves from now on; see ``handover.successor``

The loop does not run before and after serving, so a thread asks for more time as long as the
process computes. While serving, the thread sends WATCHDOG=1 for the loop in one case only: when the
loop waits inside the kernel in a way that no signal ends (state D). Then a disk hangs, not logfs. A
kill could not end the process, and systemd would mark the service as failed while it still owns the
data directory.

Source: sd_notify(3). Its notes say that the protocol is stable and may be used without libsystemd.
The only package for it alone has not changed since 2017; the others need headers and a compiler.
"""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, MutableMapping
from enum import Enum, auto
from pathlib import Path
from typing import Self

import trio

from logfs.fs.handover.descriptors import Inherited, inherited
from logfs.fs.handover.successor import Again
from logfs.log.loading.preloading import Preloaded
from logfs.machine.holder import HOLDER
from logfs.machine.terminal import ControllingTerminal

logger = logging.getLogger(__name__)

_INVOCATION = "INVOCATION_ID"
"""The variable that systemd sets for each service."""
_BEATS_A_PERIOD = 3
_LOOK_EVERY_S = 5.0
"""The period of the thread without a watchdog."""
_EXTENSION_S = 60
"""The time that is asked for in each period, from then on."""
_ALIVE_CPU_S = 0.01
"""CPU time in a period that is progress; the thread itself takes a hundredth of it."""


class _Phase(Enum):
    LOADING = auto()
    SERVING = auto()
    CLOSING = auto()


class Supervisor:
    """Reports the state to the service manager. Without one, nothing is sent.

    Args:
        address: A socket's path, or "@" and its abstract name; None without a service manager.
        watchdog_s: The service is killed if it is silent for so long; None without a watchdog.

    Attributes:
        when_ready: Called once the mount answers.
        terminal: The terminal that the daemon was started from; its loss ends the daemon.
        predecessor: The descriptors that the service manager has kept.
        again: How a successor is started; None: only the service manager can start one.
        preloaded: The parts of the logs that were read while the predecessor served; None: none.
        holder: The process id of a holder of logfs; 0: there is none, or another manager.
        has_lost_holder: The holder has ended.
    """

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self._socket = None if address is None else _connect(address)
        self._watchdog_s = watchdog_s if self._socket is not None else None
        self.when_ready: Callable[[], None] | None = None
        self.terminal = ControllingTerminal()
        self.predecessor: Inherited | None = None
        self.again: Again | None = None
        self.preloaded: Preloaded | None = None
        self.holder = 0
        self.has_lost_holder = False
        self._is_systemd = False
        self._phase = _Phase.LOADING
        self._last_beat_s = 0.0
        self._cpu_s = 0.0
        self._is_stuck = False
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._loop_thread = threading.get_native_id()

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Self:
        """Create it from the variables of systemd, and remove them: they are not for children."""
        address = environment.pop("NOTIFY_SOCKET", None)
        period_us = environment.pop("WATCHDOG_USEC", "")
        pid = environment.pop("WATCHDOG_PID", "")
        is_watched = period_us.isdecimal() and int(period_us) > 0 and pid in ("", str(os.getpid()))
        supervisor = cls(address, int(period_us) / 1e6 if is_watched else None)
        supervisor.predecessor = inherited(environment)
        supervisor._take_holder(environment.pop(HOLDER, ""))
        supervisor._is_systemd = _INVOCATION in environment
        return supervisor

    def _take_holder(self, text: str) -> None:
        pid, _, descriptor = text.partition(":")
        if descriptor:
            self.holder, self._socket = int(pid), socket.socket(fileno=int(descriptor))
            self._socket.set_inheritable(False)

    @property
    def descriptor(self) -> int | None:
        """The descriptor to which messages to a holder go; None without a holder."""
        return self._socket.fileno() if self.holder and self._socket is not None else None

    def __enter__(self) -> Self:
        """Start, in the thread that will run the loop."""
        self._loop_thread = threading.get_native_id()
        if self._socket is not None:
            self._thread = threading.Thread(target=self._watch, name="supervision", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End; nothing is sent any more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def status(self, text: str) -> None:
        """Send the state in words."""
        self._send(f"STATUS={' '.join(text.split())}")

    def ready(self, text: str) -> None:
        """Send that the mount answers."""
        self._send("READY=1", f"STATUS={text}")
        if self.when_ready is not None:
            self.when_ready()

    @property
    def is_present(self) -> bool:
        """Whether there is a service manager, which can keep descriptors."""
        return self._socket is not None and not self.has_lost_holder

    @property
    def manager(self) -> str:
        """What keeps descriptors, in words; "" if nothing does."""
        if not self.is_present:
            return ""
        if self.holder:
            return f"process {self.holder}"
        return "systemd" if self._is_systemd else "the service manager"

    async def wait_for_end_of_holder(self) -> None:
        """Return when the holder has ended; at once if there is none."""
        if not self.holder:
            return
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.holder)
            try:
                await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)
        self.has_lost_holder = True

    def keep_descriptor(self, name: str, descriptor: int) -> bool:
        """Have a descriptor kept for the next daemon; returns whether it was sent."""
        text = f"FDSTORE=1\nFDNAME={name}".encode()
        if self._socket is None:
            return False
        try:
            socket.send_fds(self._socket, [text], [descriptor])
        except OSError as error:
            logger.warning("the service manager does not keep %s: %s", name, error)
            return False
        return True

    def name_successor(self, pid: int) -> None:
        """Say that another process of the service is its daemon from now on."""
        self._send(f"MAINPID={pid}")

    def drop_descriptor(self, name: str) -> None:
        """Have a kept descriptor closed."""
        self._send("FDSTOREREMOVE=1", f"FDNAME={name}")

    def stopping(self) -> None:
        """Send that the daemon stops. Event loop only."""
        if self._phase is not _Phase.CLOSING:
            self._phase = _Phase.CLOSING
            self._send("STOPPING=1", "STATUS=closing the data directory")

    async def beat(self) -> None:
        """Send again and again that the loop runs, until cancelled."""
        self._phase = _Phase.SERVING
        if self._watchdog_s is None:
            return
        while True:
            self._last_beat_s = time.monotonic()
            self._send("WATCHDOG=1")
            await trio.sleep(self._watchdog_s / _BEATS_A_PERIOD)

    def _watch(self) -> None:
        period_s = _LOOK_EVERY_S
        if self._watchdog_s is not None:
            period_s = min(period_s, self._watchdog_s / _BEATS_A_PERIOD)
        while not self._ended.wait(period_s):
            if self._phase is not _Phase.SERVING:
                if self._makes_progress() or is_waiting_for_disk(self._loop_thread):
                    self._send(f"EXTEND_TIMEOUT_USEC={_EXTENSION_S * 1_000_000}", "WATCHDOG=1")
            elif self._watchdog_s is not None:
                silent_s = time.monotonic() - self._last_beat_s
                self._beat_for_loop(is_late=silent_s > 2 * period_s)

    def _beat_for_loop(self, *, is_late: bool) -> None:
        if is_late and is_waiting_for_disk(self._loop_thread):
            self._send("WATCHDOG=1", "STATUS=waiting for the disk, which does not answer")
            if not self._is_stuck:
                logger.warning("the disk does not answer, and all requests wait for it")
            self._is_stuck = True
        elif self._is_stuck and not is_late:
            self._send("STATUS=serving again")
            self._is_stuck = False

    def _makes_progress(self) -> bool:
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        return self._cpu_s - before_s > _ALIVE_CPU_S

    def _send(self, *lines: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.send("\n".join(lines).encode(), socket.MSG_DONTWAIT)
        except OSError as error:
            # The next message may arrive; requests are served all the same.
            logger.debug("the service manager was not told %s: %s", lines, error)


def is_waiting_for_disk(thread: int) -> bool:
    """Return whether a thread of this process sleeps in the kernel in a way no signal ends."""
    try:
        text = Path(f"/proc/self/task/{thread}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "D"


def _connect(address: str) -> socket.socket | None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
    except OSError as error:
        logger.warning("NOTIFY_SOCKET=%s: %s; the service manager is told nothing", address, error)
        sock.close()
        return None
    return sock
