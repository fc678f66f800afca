"""The model of the kernel beside a trace of the real one: the same calls send the same requests."""

import os
import random
import struct
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.daemon import calls
from tests.simulation.daemon.kernel import IN, MIB, OUT, FuseError, Kernel, Op

_RECORDED = Path(__file__).with_name("recorded.txt")
_CACHED = {Op.LOOKUP, Op.GETATTR}
"""The real kernel answers most of these itself."""
_OWNER_AT = {Op.WRITE: 24, Op.READ: 24, Op.FLUSH: 16}
"""Where a body has the owner of locks, which is made from an address."""
_POLL_HANDLE_AT = 8
_SHIFT = 48
"""Where the program's bytes began in a page."""


@dataclass
class Recorded:
    """A request of the real kernel, and its reply."""

    opcode: Op
    unique: int
    length: int
    body: bytes
    error: int = 0
    reply_length: int = 0
    reply: bytes = b""


def recorded() -> list[Recorded]:
    found: dict[int, Recorded] = {}
    for line in _RECORDED.read_text().splitlines():
        kind, *fields = line.split(" ")
        if kind == ">":
            unique = int(fields[1])
            body = bytes.fromhex(fields[3])
            found[unique] = Recorded(Op[fields[0]], unique, int(fields[2]), body)
        elif kind == "<":
            one = found[int(fields[0])]
            one.error, one.reply_length = int(fields[1]), int(fields[2])
            one.reply = bytes.fromhex(fields[3])
    return list(found.values())


def masked(opcode: Op, body: bytes) -> bytes:
    """Return a body without what differs from boot to boot."""
    if opcode is Op.POLL:
        return body[:_POLL_HANDLE_AT] + body[_POLL_HANDLE_AT + 8 :]
    at = _OWNER_AT.get(opcode)
    if at is None:
        return body
    assert body[at : at + 8] != bytes(8)
    return body[:at] + body[at + 8 : 40]


class Daemon:
    """Answers like the recorded one, and compares what it is asked."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        rows = recorded()
        self._named = {one.body: one for one in rows if one.opcode is Op.LOOKUP and not one.error}
        self._attributes = next(one for one in rows if one.opcode is Op.GETATTR)
        self.left = [one for one in rows if one.opcode not in _CACHED]
        self._waiting, self._interrupted = 0, self._attributes

    def serve(self) -> None:
        """Answer what has been sent; a read that waited for a signal gets one."""
        self._kernel.daemon_end.setblocking(False)
        while True:
            try:
                message = self._kernel.daemon_end.recv(2 * MIB)
            except BlockingIOError:
                return
            self._answer(message)

    def _answer(self, message: bytes) -> None:
        length, number, unique, *_ = IN.unpack_from(message)
        opcode, body = Op(number), message[IN.size :]
        if opcode is Op.LOOKUP:
            self._reply(unique, self._named[body])
        elif opcode is Op.GETATTR:
            self._reply(unique, self._attributes)
        elif opcode is Op.INTERRUPT:
            assert self.left.pop(0).opcode is Op.INTERRUPT
            assert (unique, body) == (self._waiting | 1, struct.pack("<Q", self._waiting))
            self._reply(self._waiting, self._interrupted)
        else:
            wanted = self.left.pop(0)
            assert (opcode, length) == (wanted.opcode, wanted.length)
            assert masked(opcode, body[:88]) == masked(opcode, wanted.body), opcode.name
            if wanted.error:
                self._waiting, self._interrupted = unique, wanted
                self._kernel.interrupt(self._kernel.pending[unique])
            elif wanted.reply_length:
                self._reply(unique, wanted)

    def _reply(self, unique: int, wanted: Recorded) -> None:
        size = wanted.reply_length
        body = wanted.reply.ljust(size - OUT.size, b"\0")
        self._kernel.daemon_end.send(OUT.pack(size, wanted.error, unique) + body)


def program(kernel: Kernel) -> calls.Call:
    """Do what the recorded program did."""
    yield from calls.mkdir(kernel, "t")
    file = yield from calls.open_file(kernel, "t/0", os.O_WRONLY | os.O_APPEND)
    yield from calls.write(file, b"first line\n")
    yield from calls.write(file, (b"x" * 999 + b"\n") * 2500, _SHIFT)
    yield from calls.write(file, b"half")
    yield from calls.fsync(file)
    yield from calls.attributes(file.node)
    yield from calls.flush(file)  # close(2) of a duplicate
    yield from calls.close(kernel, file)
    file = yield from calls.open_file(kernel, "t/0", os.O_RDONLY)
    yield from calls.read(file, 100, 0)
    yield from calls.close(kernel, file)
    file = yield from calls.open_file(kernel, "t/0.follow", os.O_RDONLY)
    yield from calls.poll(kernel, file)
    position = len((yield from calls.read(file, 50, 0)))
    try:
        while True:
            position += len((yield from calls.read(file, 0xFF200, position)))
    except FuseError:
        yield from calls.close(kernel, file)
    yield from calls.chmod(kernel, "t", 0o700)
    assert (yield from calls.list_directory(kernel, MIB)) == ["t"]


def test_the_model_sends_what_the_real_kernel_has_sent() -> None:
    kernel = Kernel(random.Random(1), resends=True, note=lambda _: None)
    daemon = Daemon(kernel)
    kernel.spawn(program(kernel), "program")
    while kernel.tasks or kernel.pending:
        while kernel.ready:
            kernel.step()
        daemon.serve()
        assert kernel.pump() or kernel.ready or not kernel.tasks
    assert not daemon.left
    kernel.close()
