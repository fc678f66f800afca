"""The control socket: the daemon's side of ``logfs.control``.

The socket file is in the root of the data directory; its mode admits its owner and root. A task of
its own serves each client. The daemon disconnects a client that hangs within a request, or does not
read its answer, after ``PATIENCE_S``; other clients do not wait for it.
"""

import contextlib
import logging
import os
import socket
import struct
from array import array
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import trio

from logfs.control import frames
from logfs.control.requests import Report, Request, parse_request
from logfs.disk.sockets import short_path
from logfs.disk.vfs import Disk
from logfs.errors import ControlError, LogfsError, forget_frames
from logfs.log import names

logger = logging.getLogger(__name__)

MAX_CLIENTS = 64
PATIENCE_S = 30.0
"""The longest time that the rest of a request may take, or that an answer may stay unread."""

_BACKLOG = MAX_CLIENTS
"""A connect(2) beyond these fails at once with EAGAIN, even on a blocking socket."""
_PIECE_BYTES = 1024 * 1024
"""Memory for a frame grows with the received bytes: a client may announce more than it sends."""
_CREDENTIALS = struct.Struct("iII")
_PROGRESS_LINES = 64
_ROOM = socket.CMSG_SPACE(array("i").itemsize)
"""Room for one descriptor; the kernel closes any others."""


def listen(data: str, disk: Disk) -> socket.socket | None:
    """Bind the socket of a data directory that this process owns; None if that fails.

    A socket that an earlier daemon left is replaced.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # Before bind: the file gets the mode of the socket.
        os.fchmod(listener.fileno(), 0o600)
        forget_socket(disk)
        with short_path(data, names.CONTROL_SOCKET) as path:
            listener.bind(path)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        logger.warning(
            "%s/%s: no control socket: %s; command-line tools cannot reach this daemon",
            data, names.CONTROL_SOCKET, error,
        )  # fmt: skip
        return None
    return listener


def forget_socket(disk: Disk) -> None:
    """Remove the socket of a data directory that this process owns."""
    with contextlib.suppress(OSError):
        disk.remove(names.CONTROL_SOCKET)


class ControlServer:
    """Serves the clients of a control socket. Event loop only.

    Args:
        run: Answers a request with a JSON value, or with bytes, the payload of the answer.
    """

    def __init__(self, run: Callable[[Request], Awaitable[object]]) -> None:
        self._run = run
        self._clients = 0

    async def run(self, listener: socket.socket) -> None:
        """Serve until cancelled, then close the socket."""
        sock = trio.socket.from_stdlib_socket(listener)
        await trio.serve_listeners(self.serve, [trio.SocketListener(sock)])

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one client until it disconnects."""
        self._clients += 1
        try:
            async with stream:
                peer = self._check_client(stream)
                while await self._serve_request(stream, peer):
                    pass
        except (LogfsError, OSError) as error:
            logger.warning("control socket: %s", error)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            logger.debug("control socket: a client disconnected or hangs")
        finally:
            self._clients -= 1

    def _check_client(self, stream: trio.SocketStream) -> tuple[int, int]:
        """Return the process and the user of a client that may use the socket."""
        credentials = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(credentials)
        if uid not in (0, os.getuid()):
            raise ControlError(f"process {pid} of user {uid} was turned away")
        if self._clients > MAX_CLIENTS:
            raise ControlError(f"more than {MAX_CLIENTS} clients; process {pid} was turned away")
        return pid, uid

    async def _serve_request(self, stream: trio.SocketStream, peer: tuple[int, int]) -> bool:
        """Answer the next request; return False after the last one."""
        descriptors: list[int] = []
        try:
            request = await _receive(stream, descriptors)
            if request is not None:
                await self._answer(stream, request, peer)
            return request is not None
        finally:
            _close_in_thread(descriptors)

    async def _answer(
        self, stream: trio.SocketStream, request: "_Received", peer: tuple[int, int]
    ) -> None:
        progress, lines = trio.open_memory_channel[str](_PROGRESS_LINES)

        def report(text: str) -> None:
            try:
                progress.send_nowait(text)
            except (trio.WouldBlock, trio.BrokenResourceError):
                logger.debug("control socket: the client does not read %r", text)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_forward, lines, stream)
            with progress:
                answer = await self._answer_to(request, report, peer)
        data = answer.get("result")
        if isinstance(data, bytes):
            await _send(stream, {"result": None}, data)
        else:
            await _send(stream, answer)

    async def _answer_to(
        self, received: "_Received", report: Report, peer: tuple[int, int]
    ) -> dict[str, Any]:
        header, payload, descriptor = received
        try:
            request = parse_request(header, payload, report, descriptor, peer)
            return {"result": await self._run(request)}
        except (LogfsError, OSError) as error:
            forget_frames(error)
            return {"error": frames.encode_error(error)}
        except Exception:
            logger.exception("a bug in logfs: the request %s failed", header.get("request"))
            text = "a bug in logfs: the daemon's log has the traceback"
            return {"error": frames.encode_error(LogfsError(text))}


async def _forward(lines: trio.MemoryReceiveChannel[str], stream: trio.SocketStream) -> None:
    """Send progress while the client reads it."""
    with lines:
        try:
            async for text in lines:
                await _send(stream, {"progress": text})
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            await stream.aclose()  # half a frame may have been sent


async def _send(stream: trio.SocketStream, header: Mapping[str, Any], payload: bytes = b"") -> None:
    frame = frames.encode_frame(header, payload)
    with trio.fail_after(PATIENCE_S):
        await stream.send_all(frame)


class _Received(NamedTuple):
    header: Mapping[str, Any]
    payload: bytearray
    descriptor: int | None


async def _receive(stream: trio.SocketStream, descriptors: list[int]) -> _Received | None:
    """Receive a request; None after the last one. The caller closes the descriptors."""
    try:
        first, ancillary, _, _ = await stream.socket.recvmsg(1, _ROOM, socket.MSG_CMSG_CLOEXEC)
    except OSError as error:
        raise trio.BrokenResourceError from error
    descriptors += _descriptors_in(ancillary)
    if not first:
        return None
    try:
        with trio.fail_after(PATIENCE_S):
            head = frames.decode_head(first + await _exactly(stream, frames.HEAD_BYTES - 1))
            header = frames.decode_header(bytes(await _exactly(stream, head.header_bytes)))
            payload = await _exactly(stream, head.payload_bytes)
            return _Received(header, payload, descriptors[0] if descriptors else None)
    except ControlError as error:
        await _send(stream, {"error": frames.encode_error(error)})
        raise


def _descriptors_in(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    found = array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) // found.itemsize * found.itemsize])
    return found.tolist()


def _close_in_thread(descriptors: list[int]) -> None:
    """Close files that came with a request, without the event loop waiting for it.

    For a file of this mount, close(2) waits until the event loop has answered FLUSH. Not even
    SIGKILL interrupts it.
    """

    def close() -> None:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    if descriptors:
        trio.lowlevel.start_thread_soon(close, lambda _outcome: None, "closing")


async def _exactly(stream: trio.SocketStream, size: int) -> bytearray:
    data, received = bytearray(min(size, _PIECE_BYTES)), 0
    while received < size:
        if received == len(data):
            data.extend(bytes(min(size - received, received)))
        with memoryview(data) as view:
            count = await stream.socket.recv_into(view[received:])
        if not count:
            raise trio.BrokenResourceError
        received += count
    return data
