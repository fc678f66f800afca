"""A model of FUSE in the kernel: requests, replies, locks, and what happens when the daemon ends.

It speaks the bytes of FUSE over a socket pair (SOCK_SEQPACKET: one message is one request). What
the kernel promises a daemon is here: one lock of an inode over appends and FSYNC, writes cut at
1 MiB, FLUSH before RELEASE, RELEASE in the background, and resending (``FUSE_NOTIFY_RESEND``): what
the daemon had read comes again, before what it had not. An interrupt is queued again with its
request.

Source: Linux fs/fuse/dev.c, file.c.
"""

import collections
import errno
import hashlib
import itertools
import random
import socket
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

IN = struct.Struct("<IIQQIIIHH")
"""The header of a request: length, opcode, number, node, user, group, thread."""
OUT = struct.Struct("<IiQ")
"""The header of a reply: length, error, number."""
RESENT = 1 << 63
MIB = 1 << 20

_FLAGS = 1 << 0 | 1 << 3 | 1 << 5 | 1 << 13 | 1 << 14 | 1 << 15 | 1 << 18 | 1 << 22 | 1 << 30
_HAS_RESEND = 1 << 7
_FORCE_SIZES = 32, 33
"""SO_SNDBUFFORCE, SO_RCVBUFFORCE."""


class Op(IntEnum):
    """Opcodes. Source: Linux include/uapi/linux/fuse.h."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKDIR = 9
    RMDIR = 11
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    RELEASEDIR = 29
    INTERRUPT = 36
    POLL = 40
    READDIRPLUS = 44


_ONE_WAY = {Op.FORGET, Op.INTERRUPT}
_NOTIFY_POLL = 1
_NOTIFY_RESEND = 7

Steps = Generator[tuple[Any, ...], Any, Any]
"""A program: it yields what it waits for, and gets the reply."""


class FuseError(OSError):
    """A system call has failed.

    Attributes:
        deaths: How many daemons have ended during the request.
    """

    deaths = 0


@dataclass(eq=False)
class Task:
    """A program that runs."""

    steps: Steps
    name: str
    answer: tuple[bytes, int, int] | None = None
    is_done: bool = False


@dataclass(eq=False)
class Pending:
    """A request without a reply.

    Attributes:
        deaths: How many daemons have ended since it was sent.
    """

    unique: int
    opcode: Op
    node: int
    body: bytes
    task: Task | None
    is_interrupted: bool = False
    was_resent: bool = False
    deaths: int = 0


@dataclass(eq=False)
class _Lock:
    owner: Task | None = None
    waiting: collections.deque[Task] = field(default_factory=collections.deque)


class Kernel:
    """The kernel of one mount.

    Args:
        choice: Decides which program runs next.
        resends: It sends requests again when it is asked to.
        note: Takes a line for readers.

    Attributes:
        daemon_end: The socket of the daemon.
        pending: The requests without a reply, by their numbers.
        ready: The programs that can run.
        held: Those that wait for time to pass.
        lookups: How often the daemon was asked for an inode, less what was forgotten.
        counts: What has happened, by name.
        messages: How many replies and notifications there were.
        digest: The hash of all messages.
        connections: The sockets of programs, which a daemon must not inherit.
    """

    def __init__(
        self, choice: random.Random, *, resends: bool, note: Callable[[str], None]
    ) -> None:
        self._choice = choice
        self._resends = resends
        self._note = note
        self._own_end, self.daemon_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._own_end, self.daemon_end):
            for option in _FORCE_SIZES:
                end.setsockopt(socket.SOL_SOCKET, option, 64 * MIB)
        self._own_end.setblocking(False)
        self._next_unique = 2
        self._unread: list[bytes] = []
        self._is_holding = False
        self._locks: collections.defaultdict[object, _Lock] = collections.defaultdict(_Lock)
        self.poll_handles = itertools.count(1)
        self._polls: dict[int, list[Task]] = {}
        self._notified: set[int] = set()
        self.pending: dict[int, Pending] = {}
        self.ready: collections.deque[Task] = collections.deque()
        self.held: list[Task] = []
        self.tasks: list[Task] = []
        self.lookups: collections.Counter[int] = collections.Counter()
        self.counts: collections.Counter[str] = collections.Counter()
        self.messages = 0
        self.digest = hashlib.sha256()
        self.connections: set[socket.socket] = set()

    # The connection

    def mount(self) -> None:
        """Send the first request."""
        flags2 = _HAS_RESEND if self._resends else 0
        self.send(Op.INIT, 0, struct.pack("<IIIII11I", 7, 45, 131072, _FLAGS, flags2, *[0] * 11))

    def unmount(self) -> None:
        """End the connection."""
        self._own_end.close()

    def forget_programs(self) -> None:
        """Close all that programs have open, in another process than theirs."""
        self._own_end.close()
        for connection in self.connections:
            connection.close()

    def close(self) -> None:
        """Close both ends, and end the programs."""
        self.forget_programs()
        self.daemon_end.close()

    def send(self, opcode: Op, node: int, body: bytes, task: Task | None = None) -> Pending:
        """Send a request."""
        request = Pending(self._next_unique, opcode, node, body, task)
        self._next_unique += 2
        if opcode not in _ONE_WAY:
            self.pending[request.unique] = request
        name = "" if task is None else task.name
        self._note(f"-> {opcode.name} {request.unique} node {node} {len(body)} bytes {name}")
        self._put(self._message(request))
        self.counts[opcode.name] += 1
        return request

    def _message(self, request: Pending, *, resent: bool = False) -> bytes:
        unique = request.unique | (RESENT if resent else 0)
        size = IN.size + len(request.body)
        return IN.pack(size, request.opcode, unique, request.node, 0, 0, 0, 0, 0) + request.body

    def _put(self, message: bytes) -> None:
        self.digest.update(message)
        if self._is_holding:
            self._unread.append(message)
        else:
            self._own_end.send(message)

    def pump(self) -> int:
        """Take replies and notifications; returns how many."""
        count = 0
        while True:
            try:
                message = self._own_end.recv(2 * MIB)
            except (BlockingIOError, OSError):
                return count
            if not message:
                return count
            count += 1
            self.messages += 1
            self.digest.update(message)
            self._take(message)

    def _take(self, message: bytes) -> None:
        size, error, unique = OUT.unpack_from(message)
        if unique == 0:
            self._notification(error, message[OUT.size :])
            return
        request = self.pending.pop(unique & ~RESENT, None)
        if request is None:
            self.counts["replies to nothing"] += 1
            self._note(f"<- a reply to nothing: {unique & ~RESENT}")
            return
        text = f" {errno.errorcode.get(-error, error)}" if error else ""
        self._note(f"<- {request.opcode.name} {request.unique} {size} bytes{text}")
        self.counts["replies"] += 1
        if request.task is not None:
            request.task.answer = message[OUT.size :], error, request.deaths
            self.ready.append(request.task)

    def _notification(self, code: int, body: bytes) -> None:
        self.counts[f"notification {code}"] += 1
        self._note(f"<- notification {code} {body[:24].hex()}")
        if code == _NOTIFY_RESEND:
            self._resend()
        elif code == _NOTIFY_POLL:
            handle = struct.unpack("<Q", body[:8])[0]
            self._notified.add(handle)
            self.ready.extend(self._polls.pop(handle, ()))

    def _resend(self) -> None:
        unread = {IN.unpack_from(message)[2] & ~RESENT for message in self._unread}
        self._is_holding = False
        for request in list(self.pending.values()):
            if request.unique in unread:
                continue
            request.was_resent = True
            self._note(f"-> {request.opcode.name} {request.unique} again")
            self.counts["sent again"] += 1
            self._own_end.send(self._message(request, resent=True))
            if request.is_interrupted:  # fuse_dev_do_read queues it again
                self._own_end.send(self._interruption(request))
        self._send_unread()

    def _send_unread(self) -> None:
        self._is_holding = False
        unread, self._unread = self._unread, []
        for message in unread:
            self._own_end.send(message)

    def continue_without_resending(self) -> None:
        """Let the next daemon read what the last one had not: this kernel sends nothing again."""
        if not self._resends:
            self._send_unread()

    def ask(self) -> None:
        """Send a request of another program, as ``stat --file-system`` does."""
        self.send(Op.STATFS, 1, b"")

    def daemon_ended(self) -> None:
        """Keep what the daemon had not read, and take the replies that it wrote."""
        self.pump()
        for request in self.pending.values():
            request.deaths += 1
        self._is_holding = True
        self.daemon_end.setblocking(False)
        unread = []
        while True:
            try:
                unread.append(self.daemon_end.recv(2 * MIB))
            except BlockingIOError:
                break
        self._unread = unread + self._unread

    def interrupt(self, request: Pending) -> None:
        """Send a signal to a program that waits for a reply."""
        if request.is_interrupted:
            return
        request.is_interrupted = True
        self._note(f"-> INTERRUPT {request.unique}")
        self.counts["INTERRUPT"] += 1
        self._put(self._interruption(request))

    def interrupt_polls(self) -> None:
        """Send a signal to all programs that wait in poll(2)."""
        for tasks in self._polls.values():
            self.ready.extend(tasks)
        self._polls.clear()

    def _interruption(self, request: Pending) -> bytes:
        unique = request.unique | (RESENT if request.was_resent else 0)
        body = struct.pack("<Q", unique)
        size = IN.size + len(body)
        return IN.pack(size, Op.INTERRUPT, unique | 1, 0, 0, 0, 0, 0, 0) + body

    # Programs

    def spawn(self, steps: Steps, name: str) -> Task:
        """Start a program."""
        task = Task(steps, name)
        self.tasks.append(task)
        self.ready.append(task)
        return task

    def step(self) -> None:
        """Run one of the programs that can run until it waits."""
        self.ready.rotate(-self._choice.randrange(len(self.ready)))
        task = self.ready.popleft()
        answer, task.answer = task.answer, None
        try:
            wanted = task.steps.send(answer)
        except StopIteration:
            task.is_done = True
            self.tasks.remove(task)
            return
        match wanted:
            case ("request", opcode, node, body):
                self.send(opcode, node, body, task)
            case ("lock", key):
                self._take_lock(self._locks[key], task)
            case ("unlock", key):
                self._give_lock(self._locks[key])
                self.ready.append(task)
            case ("poll", handle) if handle in self._notified:
                self._notified.discard(handle)
                self.ready.append(task)
            case ("poll", handle):
                self._polls.setdefault(handle, []).append(task)
            case ("later",):
                self.held.append(task)
            case _:
                raise AssertionError(wanted)

    def _take_lock(self, lock: _Lock, task: Task) -> None:
        if lock.owner is None:
            lock.owner = task
            self.ready.append(task)
        else:
            lock.waiting.append(task)

    def _give_lock(self, lock: _Lock) -> None:
        lock.owner = lock.waiting.popleft() if lock.waiting else None
        if lock.owner is not None:
            self.ready.append(lock.owner)

    def let_time_pass(self) -> None:
        """Let the programs run that wait for time to pass."""
        self.ready.extend(self.held)
        self.held.clear()
