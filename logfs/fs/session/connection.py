"""The connection to the kernel: mounted by this daemon, or adopted from its predecessor.

A daemon with a service manager that keeps descriptors has a *state* (``handover``). The connection
and the state go to the manager, and come back to the next daemon. That daemon adopts the connection
if it serves the same data directory at the same mount point with the same options. Otherwise it
mounts as if there had been no predecessor. Only then is the old mount taken away.
"""

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pyfuse3

from logfs.errors import LogfsError, MountError
from logfs.fs.handover.descriptors import CONNECTION, STATE, Inherited
from logfs.fs.handover.journal import Journal, NoJournal, journal_of
from logfs.fs.handover.settling import Settling
from logfs.fs.handover.state import HandoverState, StateError, Word
from logfs.fs.handover.successor import Successor
from logfs.fs.kernel.hooks import Hooks
from logfs.fs.session.machine import Machine
from logfs.fs.session.supervision import Supervisor
from logfs.machine import mountpoints
from logfs.machine.disks import is_url

logger = logging.getLogger(__name__)

HANDED_OVER = 75
"""The exit status of a daemon whose mount waits for a successor (EX_TEMPFAIL)."""


class Session:
    """The connection of one mount. Event loop only.

    Args:
        data: The data directory, without symbolic links.
        point: The mount point, without symbolic links.
        options: For libfuse and the kernel.
        supervisor: Keeps the descriptors.
        hooks: The library beside libfuse; None where it was not built.
        machine: The machine that it is mounted on.

    Attributes:
        journal: The notes for a successor.
        settling: Settles what the predecessor has begun; None: nothing is adopted.
        state: The memory file; None if nothing is kept.
        is_adopted: The connection is the predecessor's.
        is_handed_over: A successor continues with the mount.
        is_mounting: The mount is being made, or has been.
        is_stop_wanted: SIGTERM came before signals were handled.
        successor: A process that waits to continue with the mount; None: the manager starts one.
    """

    def __init__(
        self,
        data: str,
        point: str,
        options: set[str],
        supervisor: Supervisor,
        hooks: Hooks | None,
        machine: Machine,
    ) -> None:
        self.data = data
        self.point = point
        self.machine = machine
        self._options = options
        self._supervisor = supervisor
        self._hooks = hooks
        self._connection = -1
        self.state: HandoverState | None = None
        self.journal: Journal = NoJournal()
        self.settling: Settling | None = None
        self.is_adopted = False
        self.is_handed_over = False
        self.is_mounting = False
        self.is_stop_wanted = False
        self.successor: Successor | None = None
        self._is_starting = False
        self._passed = -1
        if supervisor.predecessor is not None:
            self._take(supervisor.predecessor)

    @property
    def may_adopt(self) -> bool:
        """Whether there is a predecessor with the same mount, which must not be looked at."""
        return self.has_predecessor and self.state is not None

    @property
    def has_predecessor(self) -> bool:
        """Whether there is a predecessor whose mount has neither been adopted nor ended."""
        return self._connection >= 0 and not self.is_adopted

    @property
    def is_kept(self) -> bool:
        """Whether programs will not notice when this daemon ends and another one starts."""
        return self.state is not None and self._supervisor.is_present

    @property
    def kept_by(self) -> str | None:
        """The keeper of the mount while no daemon serves it; None: nothing keeps it."""
        return self._supervisor.manager if self.is_kept else None

    async def watch_holder(self) -> None:
        """Say in the log when nothing keeps the mount any more."""
        await self._supervisor.wait_for_end_of_holder()
        if self.state is not None and self._supervisor.has_lost_holder:
            logger.error(
                "%s: process %d, which kept the mount, has ended: open files will end with this "
                "daemon. Unmount and mount again when programs can reopen their files.",
                self.point, self._supervisor.holder, extra={"fields": {"event": "holder_lost"}},
            )  # fmt: skip

    def _take(self, predecessor: Inherited) -> None:
        self._connection = predecessor.connection
        if self._hooks is None:
            self._refuse("the library beside libfuse is missing")
            return
        try:
            state = HandoverState(predecessor.state)
            journal = journal_of(state)
        except (LogfsError, OSError) as error:
            self._refuse(str(error))
            return
        expected = self._identity()
        if journal.identity != expected:
            self._refuse(f"it was mounted as {journal.identity}; expected {expected}")
            return
        self.state, self.journal = state, journal
        self.settling = Settling(state.words, journal)

    def _identity(self) -> str:
        directory: list[int] = []
        if not is_url(self.data):
            found = Path(self.data).stat()
            directory = [found.st_dev, found.st_ino]
        return json.dumps([self.data, directory, self.point, sorted(self._options)])

    def _refuse(self, reason: str) -> None:
        self.state, self.journal = None, NoJournal()
        logger.warning(
            "%s: the mount of the daemon before cannot be continued: %s; open files end",
            self.point, reason, extra={"fields": {"event": "not_adopted"}},
        )  # fmt: skip

    def open(self, operations: pyfuse3.Operations, take_place: Callable[[], None]) -> None:
        """Adopt the connection, or mount.

        Args:
            operations: Serves the requests.
            take_place: Checks the mount point, and removes a dead mount there.

        Raises:
            MountError: It cannot be mounted there.
        """
        if self.may_adopt and not self._adopt(operations):
            self._refuse("libfuse or logfs would have answered the kernel in another way")
        if self.is_adopted:
            return
        self.is_mounting = True
        if self.has_predecessor:
            self._end_predecessor()
        take_place()
        self._mount(operations)

    def _adopt(self, operations: pyfuse3.Operations) -> bool:
        hooks, state = self._hooks, self.state
        if hooks is None or state is None:
            return False
        hooks.connection.keep(state.fileno())
        hooks.connection.adopt(self._connection)
        try:
            pyfuse3.init(operations, self.point, self._options)
        except RuntimeError:
            hooks.connection.adopt(-1)
        self.is_adopted = hooks.connection.is_adopted
        if self.is_adopted:
            self._note_adopted(state)
        return self.is_adopted

    def _note_adopted(self, state: HandoverState) -> None:
        stopped_ns = state.words[Word.HANDOVER_NS]
        is_planned = bool(state.words[Word.PLANNED])
        state.words[Word.PLANNED] = state.words[Word.HANDOVER_NS] = 0
        how = "of a daemon that stopped for it" if is_planned else "of a daemon that was killed"
        text = f" {(time.monotonic_ns() - stopped_ns) / 1e9:.3f} s ago" if stopped_ns else ""
        logger.info(
            "%s: continuing the mount %s%s", self.point, how, text,
            extra={"fields": {"event": "adopted", "is_planned": is_planned}},
        )  # fmt: skip

    def _end_predecessor(self) -> None:
        """Take the old mount away; its programs get errors from now on."""
        for name in (CONNECTION, STATE):
            self._supervisor.drop_descriptor(name)
        if mountpoints.mount_at(self.point) is not None:
            mountpoints.detach(self.point)
        os.close(self._connection)
        self._connection = -1

    def _mount(self, operations: pyfuse3.Operations) -> None:
        hooks = self._hooks
        if hooks is None or not self._supervisor.is_present:
            logger.info(
                "%s: open files end with this daemon: %s", self.point,
                "the library beside libfuse is missing" if hooks is None
                else "nothing keeps its mount (neither systemd nor --background)",
            )  # fmt: skip
        else:
            self._keep(hooks)
        try:
            pyfuse3.init(operations, self.point, self._options)
        except RuntimeError as error:
            raise MountError(f"{self.point}: {error}; libfuse has said why") from error
        state = self.state
        if hooks is None or state is None:
            return
        if not hooks.is_active:
            self.state, self.journal = None, NoJournal()
            return
        found = mountpoints.mount_at(self.point)
        if found is not None:
            state.words[Word.DEVICE] = int(found.device.partition(":")[2])
        self.journal.identify(self._identity())
        for name, descriptor in (
            (STATE, state.fileno()),
            (CONNECTION, hooks.connection.descriptor),
        ):
            if not self._supervisor.keep_descriptor(name, descriptor):
                self._refuse("the service manager does not keep descriptors")
                return

    def _keep(self, hooks: Hooks) -> None:
        try:
            state = HandoverState.create()
            hooks.connection.keep(state.fileno())
        except (StateError, OSError) as error:
            logger.warning("%s: open files end with this daemon: %s", self.point, error)
            return
        self.state, self.journal = state, journal_of(state)

    async def start_successor(self) -> None:
        """Start a process that continues with the mount, and wait until it can.

        Raises:
            MountError: Nothing keeps the mount, or the process cannot start. Nothing has changed.
        """
        again = self._supervisor.again
        if again is None or not self.is_kept:
            raise MountError(
                f"{self.point}: nothing keeps this mount (neither systemd nor --background), so "
                "open files would end. To use a new version, unmount it and mount it again."
            )
        if self._is_starting:
            raise MountError(f"{self.point}: it is being reloaded already")
        self._is_starting = True
        try:
            supervisor = self._supervisor
            holder = supervisor.holder, supervisor.descriptor
            successor = self.machine.start_successor(again, holder)
            await successor.wait_until_warm()
        except (MountError, OSError) as error:
            logger.error(  # noqa: TRY400 - no traceback: it is no bug of this daemon
                "%s: not reloaded, this daemon continues: %s", self.point, error,
                extra={"fields": {"event": "not_reloaded"}},
            )  # fmt: skip
            raise MountError(
                f"{self.point}: not reloaded, the daemon continues: {error}"
            ) from error
        finally:
            self._is_starting = False
        self.successor = successor

    def stop_reading(self) -> None:
        """Leave all further requests to a successor."""
        if self._hooks is not None and self.state is not None:
            self.state.words[Word.HANDOVER_NS] = time.monotonic_ns()
            self._hooks.connection.stop_reading()

    def stop_serving(self) -> None:
        """End the native thread: pyfuse3 reads no more requests."""
        if self._hooks is not None:
            self._hooks.serving.stop()

    @property
    def in_flight(self) -> int:
        """How many requests have been read and not been answered."""
        return 0 if self._hooks is None else self._hooks.connection.in_flight

    @property
    def waiting(self) -> int:
        """How many of them are reads that wait for records natively."""
        return 0 if self._hooks is None else self._hooks.serving.waiting_reads

    @property
    def needs_a_request(self) -> bool:
        """Whether requests of the predecessor are read only when the kernel has another one."""
        return self.is_adopted and self._hooks is not None and self._hooks.connection.keeps_requests

    def wake_polls(self) -> None:
        """Wake the programs that polled a file of the predecessor."""
        if self._hooks is not None and self.is_adopted:
            for handle in self.journal.poll_handles.values():
                self._hooks.notify_poll(handle)

    def abandon(self) -> None:
        """End the mount of the predecessor, which this daemon does not continue."""
        self._end_predecessor()

    def note_closed(self) -> None:
        """Let a successor continue: the store has been closed, and nothing is in flight."""
        if self.state is None or not self.is_handed_over:
            return
        self.state.words[Word.PLANNED] = 1
        if self.successor is None:
            return
        self._supervisor.name_successor(self.successor.pid)
        try:
            self.successor.go(self._passed, self.state.fileno())
        except OSError as error:
            logger.warning("the next daemon has ended, another one is started: %s", error)

    def close(self, *, unmount: bool) -> None:
        """End the connection of this process.

        Args:
            unmount: End the mount as well, unless it is handed over.
        """
        ends = unmount and not self.is_handed_over
        self.stop_serving()
        if self.is_handed_over and self._hooks is not None and self.successor is not None:
            connection = self._connection if self.is_adopted else self._hooks.connection.descriptor
            self._passed = os.dup(connection)
        if ends and self.state is not None:
            for name in (CONNECTION, STATE):
                self._supervisor.drop_descriptor(name)
        if ends and self.is_adopted and self._is_still_mounted():
            # libfuse does not know where it is mounted. Before the connection is closed.
            mountpoints.detach(self.point)
        pyfuse3.close(unmount=ends)

    def _is_still_mounted(self) -> bool:
        found = mountpoints.mount_at(self.point)
        minor = 0 if self.state is None else self.state.words[Word.DEVICE]
        return found is not None and found.device == f"0:{minor}"
