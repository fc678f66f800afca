"""What system calls send to the daemon of a mount.

Source: Linux fs/fuse, include/uapi/linux/fuse.h.
"""

import os
import stat
import struct
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from tests.simulation.daemon.kernel import MIB, FuseError, Kernel, Op

ENTRY = struct.Struct("<QQQQII")
"""What LOOKUP replies with: node, generation, validity; then the attributes."""
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_DIRENT = struct.Struct("<QQII")
_LARGE_FILE = 0o100000
_NO_FLUSH = 1 << 5
_SCHEDULE_NOTIFY = 1
_POLL_EVENTS = 0x19
"""POLLIN, POLLERR, POLLHUP."""
_HAS_OWNER = 2
_OWNER = 0x92EEA6BA5915D3EB
"""The owner of locks, which a request names; the kernel makes it from an address."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | _LARGE_FILE
_SETS_MODE = 1

Call = Generator[tuple[Any, ...], Any, Any]
"""A system call: it yields what it waits for, and returns its result."""


@dataclass
class OpenFile:
    """An open file of a program."""

    node: int
    handle: int
    open_flags: int
    flags: int
    poll_handle: int = 0
    written: int = 0


def request(opcode: Op, node: int, body: bytes = b"") -> Call:
    """Send a request; returns the reply.

    Raises:
        FuseError: The reply is an error.
    """
    data, error, deaths = yield "request", opcode, node, body
    if error:
        failed = FuseError(-error, f"{opcode.name}: {os.strerror(-error)}")
        failed.deaths = deaths
        raise failed
    return data


def look_up(kernel: Kernel, path: str) -> Call:
    """Return the inode of a path and its attributes."""
    node, attributes = 1, None
    for name in path.split("/"):
        data = yield from request(Op.LOOKUP, node, name.encode() + b"\0")
        node = ENTRY.unpack_from(data)[0]
        kernel.lookups[node] += 1
        attributes = ATTRIBUTES.unpack_from(data, ENTRY.size)
    return node, attributes


def forget(kernel: Kernel, node: int) -> None:
    """Forget an inode that no program uses, as when memory is short."""
    count = kernel.lookups.pop(node, 0)
    if count and node != 1:
        kernel.send(Op.FORGET, node, struct.pack("<Q", count))


def mkdir(kernel: Kernel, name: str) -> Call:
    """Make a topic."""
    body = struct.pack("<II", 0o755, 0o022) + name.encode() + b"\0"
    data = yield from request(Op.MKDIR, 1, body)
    kernel.lookups[ENTRY.unpack_from(data)[0]] += 1


def rmdir(name: str) -> Call:
    """Remove a topic."""
    yield from request(Op.RMDIR, 1, name.encode() + b"\0")


def setxattr(kernel: Kernel, path: str, name: str, value: bytes) -> Call:
    """Set an extended attribute."""
    node, _ = yield from look_up(kernel, path)
    body = struct.pack("<II", len(value), 0) + name.encode() + b"\0" + value
    yield from request(Op.SETXATTR, node, body)


def chmod(kernel: Kernel, path: str, mode: int) -> Call:
    """Change a mode; returns the one that the reply has."""
    node, found = yield from look_up(kernel, path)
    mode |= stat.S_IFMT(found[9])
    body = struct.pack("<IIQQQQQQIIIIIIII", _SETS_MODE, *[0] * 10, mode, *[0] * 4)
    data = yield from request(Op.SETATTR, node, body)
    return ATTRIBUTES.unpack_from(data, 16)[9]


def list_directory(kernel: Kernel, size: int) -> Call:
    """Return the names in the root, as readdir(3) with attributes does."""
    data = yield from request(Op.OPENDIR, 1, struct.pack("<II", _DIRECTORY, 0))
    handle, offset, names = struct.unpack_from("<Q", data)[0], 0, []
    while True:
        body = struct.pack("<QQIIQII", handle, offset, size, 0, 0, _DIRECTORY, 0)
        data = yield from request(Op.READDIRPLUS, 1, body)
        if not data:
            break
        position, attributes_size = 0, ENTRY.size + ATTRIBUTES.size
        while position < len(data):
            node = ENTRY.unpack_from(data, position)[0]
            _, offset, length, _ = _DIRENT.unpack_from(data, position + attributes_size)
            begin = position + attributes_size + _DIRENT.size
            name = data[begin : begin + length].decode()
            if name not in {".", ".."}:
                names.append(name)
                if node:
                    kernel.lookups[node] += 1
            position = begin + (length + 7) // 8 * 8
    kernel.send(Op.RELEASEDIR, 1, struct.pack("<QIIQ", handle, _DIRECTORY, 0, 0))
    return names


def open_file(kernel: Kernel, path: str, flags: int) -> Call:
    """Return an open file."""
    node, _ = yield from look_up(kernel, path)
    flags |= _LARGE_FILE
    data = yield from request(Op.OPEN, node, struct.pack("<II", flags, 0))
    handle, open_flags, _ = struct.unpack("<QII", data)
    return OpenFile(node, handle, open_flags, flags)


def write(file: OpenFile, data: bytes, shift: int = 0) -> Call:
    """Append: one lock over all requests of a call. Returns how many bytes were written.

    Args:
        shift: Where the bytes begin in a page: the first request has so many less.
    """
    yield "lock", file.node
    done, error = 0, None
    while done < len(data):
        piece = data[done : done + MIB - (0 if done else shift)]
        head = (file.handle, file.written, len(piece), _HAS_OWNER, _OWNER, file.flags, 0)
        try:
            body = struct.pack("<QQIIQII", *head) + piece
            reply = yield from request(Op.WRITE, file.node, body)
        except FuseError as failed:
            error = failed
            break
        count = struct.unpack_from("<I", reply)[0]
        done += count
        file.written += count
        if count < len(piece):
            break
    yield "unlock", file.node
    if error is not None and not done:
        raise error
    return done


def read(file: OpenFile, size: int, position: int) -> Call:
    """Return bytes of a file."""
    head = (file.handle, position, size, _HAS_OWNER, _OWNER, file.flags, 0)
    body = struct.pack("<QQIIQII", *head)
    return (yield from request(Op.READ, file.node, body))


def poll(kernel: Kernel, file: OpenFile) -> Call:
    """Wait until a file may have something to read, or for a signal."""
    file.poll_handle = file.poll_handle or next(kernel.poll_handles)
    body = struct.pack("<QQII", file.handle, file.poll_handle, _SCHEDULE_NOTIFY, _POLL_EVENTS)
    data = yield from request(Op.POLL, file.node, body)
    if not struct.unpack_from("<I", data)[0]:
        yield "poll", file.poll_handle


def fsync(file: OpenFile) -> Call:
    """Make durable what was written."""
    yield "lock", file.node
    error = None
    try:
        yield from request(Op.FSYNC, file.node, struct.pack("<QII", file.handle, 0, 0))
    except FuseError as failed:
        error = failed
    yield "unlock", file.node
    if error is not None:
        raise error


def attributes(node: int) -> Call:
    """Return the attributes of an inode."""
    data = yield from request(Op.GETATTR, node, struct.pack("<IIQ", 0, 0, 0))
    return ATTRIBUTES.unpack_from(data, 16)


def flush(file: OpenFile) -> Call:
    """Tell the daemon of a close(2), unless it wants to know of none."""
    if not file.open_flags & _NO_FLUSH:
        body = struct.pack("<QIIQ", file.handle, 0, 0, _OWNER)
        yield from request(Op.FLUSH, file.node, body)


def close(kernel: Kernel, file: OpenFile) -> Call:
    """Close a file; its RELEASE is sent in the background."""
    error = None
    try:
        yield from flush(file)
    except FuseError as failed:
        error = failed
    body = struct.pack("<QIIQ", file.handle, file.flags, 0, 0)
    kernel.send(Op.RELEASE, file.node, body)
    if error is not None:
        raise error


def cat(kernel: Kernel, path: str, size: int = MIB) -> Call:
    """Return all bytes of a file."""
    file = yield from open_file(kernel, path, os.O_RDONLY)
    found = b""
    while True:
        data = yield from read(file, size, len(found))
        if not data:
            break
        found += data
    yield from close(kernel, file)
    return found
