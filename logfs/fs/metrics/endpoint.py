"""Where Prometheus reads: a small HTTP server in its own thread, with its own loop.

    GET /metrics    the metrics, in the format that the client asks for
    GET /healthz    200 if the mount answers within two seconds, else 503

The file system must not notice the clients. So there is one thread for all of them; a few clients
at a time, each for a few seconds; a request has a few lines; and the text is made at most a tenth
of the time, so that clients that ask more often share it. A new client is always served: when there
are too many, the oldest one is cut off.

Any user of the machine can connect to a port of it. A web page cannot: a browser that a page has
sent here with its own host name (DNS rebinding) names that host, and is refused.
"""

import contextlib
import http.client
import io
import ipaddress
import logging
import os
import re
import socket
import threading
import time
from http import HTTPStatus
from typing import NamedTuple

import trio

from logfs.fs.metrics.exposition import Exposition

logger = logging.getLogger(__name__)

MAX_CLIENTS = 16
PATIENCE_S = 10.0
"""How long one client may take, from the connection to the last byte."""
HEAD_PATIENCE_S = 2.0
"""How much of that its request may take."""
HEALTHY_S = 2.0
_MAX_HEAD_BYTES = 8192
SHARE = 10
"""The text is made so rarely that making it takes one part in so many of the time."""
_TEXT = "text/plain; charset=utf-8"
_INDEX = b"logfs\n\n/metrics    metrics for Prometheus\n/healthz    whether the mount answers\n"


class HttpResponse(NamedTuple):
    """The answer to a client."""

    status: HTTPStatus
    body: bytes = b""
    kind: str = _TEXT


class _Request(NamedTuple):
    method: str
    path: str
    accept: str
    host: str


class Endpoint:
    """Serves the metrics of a mount. ``start`` and ``stop`` from one other thread.

    Args:
        listener: The socket; closed by ``stop``.
        exposition: Makes the text.
        point: The mount point.
    """

    def __init__(self, listener: socket.socket, exposition: Exposition, point: str) -> None:
        self._listener = listener
        self._exposition = exposition
        self._point = point
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._stopping = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        self._is_local = _is_loopback(listener)
        self._clients: list[trio.CancelScope] = []  # the oldest first
        self._made: dict[str, bytes] = {}
        self._fresh_until_s = 0.0
        self._probe: trio.Event | None = None  # set when the mount has answered, or failed to
        self._was_well = False

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Serve no longer."""
        self._stopping.set()
        token = self._token
        if token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(self._scope.cancel)
        self._thread.join(HEALTHY_S)

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except Exception:
            logger.exception("a bug in logfs: metrics are not served any longer")
        finally:
            self._listener.close()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._stopping.is_set():
            return
        with self._scope:
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._listener))
            await trio.serve_listeners(self._serve_client, [listener])

    async def _serve_client(self, stream: trio.SocketStream) -> None:
        if len(self._clients) >= MAX_CLIENTS:
            self._clients.pop(0).cancel()
        scope = trio.move_on_after(PATIENCE_S)
        self._clients.append(scope)
        try:
            with scope:
                async with stream:
                    await _send(stream, *await self._answer_to(stream))
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            logger.debug("metrics: a client has gone")
        finally:
            if scope in self._clients:
                self._clients.remove(scope)

    async def _answer_to(self, stream: trio.SocketStream) -> tuple[HttpResponse, bool]:
        """Read a request; returns the answer, and whether its body is to be sent."""
        request = None
        with trio.move_on_after(HEAD_PATIENCE_S):
            request = await _receive(stream)
        if request is None:
            return HttpResponse(HTTPStatus.BAD_REQUEST, b"expected GET /metrics\n"), True
        if self._is_local and not _is_own_host(request.host):
            return HttpResponse(
                HTTPStatus.MISDIRECTED_REQUEST, b"expected localhost or an address\n"
            ), True
        try:
            return await self._answer(request), request.method != "HEAD"
        except Exception:
            logger.exception("a bug in logfs: metrics")
            return HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR, b"the log says why\n"), True

    async def _answer(self, request: _Request) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, b"expected GET\n")
        match request.path:
            case "/metrics":
                return HttpResponse(HTTPStatus.OK, *await self._render(request.accept))
            case "/healthz":
                is_well = await self._mount_answers()
                if is_well:
                    return HttpResponse(HTTPStatus.OK, b"ok\n")
                return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, b"the mount does not answer\n")
            case "/":
                return HttpResponse(HTTPStatus.OK, _INDEX)
        return HttpResponse(HTTPStatus.NOT_FOUND, b"expected /metrics or /healthz\n")

    async def _render(self, accept: str) -> tuple[bytes, str]:
        """Return the text; the last one if that is young compared to what it cost."""
        is_well = await self._mount_answers()
        started_s = time.monotonic()
        if started_s >= self._fresh_until_s:
            self._made.clear()
        kind = self._exposition.kind(accept)
        made = self._made.get(kind)
        if made is None:
            made, _ = self._exposition.render(accept, mount_answers=is_well)
            self._made[kind] = made
            now_s = time.monotonic()
            self._fresh_until_s = now_s + (now_s - started_s) * (SHARE - 1)
        return made, kind

    async def _mount_answers(self) -> bool:
        """Ask the mount something that the kernel passes on, in a thread that may be lost.

        Clients that ask while the mount has not answered wait for the same answer.
        """
        if self._probe is None:
            self._begin_probe()
        with trio.move_on_after(HEALTHY_S):
            if self._probe is not None:
                await self._probe.wait()
            return self._was_well
        return False

    def _begin_probe(self) -> None:
        probe, token = trio.Event(), trio.lowlevel.current_trio_token()

        def ask() -> None:
            try:
                os.statvfs(self._point)
                is_well = True
            except OSError:
                is_well = False
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(end, is_well)

        def end(is_well: bool) -> None:
            self._probe, self._was_well = None, is_well
            probe.set()

        self._probe = probe
        trio.lowlevel.start_thread_soon(ask, lambda _outcome: None, "healthz")


async def _receive(stream: trio.SocketStream) -> _Request | None:
    """Receive the head of a request; None if it is none, or too long."""
    data = bytearray()
    while b"\r\n\r\n" not in data:
        part = await stream.receive_some(_MAX_HEAD_BYTES)
        data += part
        if not part or len(data) > _MAX_HEAD_BYTES:
            return None
    first, _, rest = bytes(data).partition(b"\r\n")
    try:
        method, target, _ = first.decode("ascii").split(" ")
        headers = http.client.parse_headers(io.BytesIO(rest))
    except (ValueError, http.client.HTTPException):
        return None
    path = target.partition("?")[0]
    return _Request(method, path, headers.get("Accept", ""), headers.get("Host", ""))


def _is_loopback(listener: socket.socket) -> bool:
    """Whether only programs on this machine reach a listener, through a port."""
    if listener.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def _is_own_host(host: str) -> bool:
    """Whether a request names no host, this machine, or an address: no name that DNS resolves."""
    name = re.sub(r":[0-9]*$", "", host).strip("[]").lower()
    if not host or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == socket.gethostname().lower()
    return True


async def _send(stream: trio.SocketStream, answer: HttpResponse, has_body: bool) -> None:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    await stream.send_all(head.encode() + (answer.body if has_body else b""))
