"""An HTTP proxy on loopback that answers some requests itself, with its own status.

with Answers(bucket.endpoint) as answers:
    store = replace(bucket, endpoint=answers.endpoint).open()
    answers.next = [503, 503]        # the next two requests; then they are passed on
    answers.always = 403             # all requests, until it is None
    answers.rule = lambda request: Reply(200, {}, b"<html>") if request.method == "PUT" else None
"""

import http.client
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

from tests.remote.httpserver import LoopbackServer

_CODES = {403: "AccessDenied", 429: "TooManyRequests", 500: "InternalError", 503: "SlowDown"}


class Request(NamedTuple):
    """A request, for a rule: the method, the path with its query, the headers."""

    method: str
    path: str
    headers: Mapping[str, str]


class Reply(NamedTuple):
    """An answer that the proxy gives itself."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def refusal(status: int, code: str) -> Reply:
    """Return the answer of an S3 server that refuses a request."""
    text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return Reply(status, {"Content-Type": "application/xml"}, text.encode())


class Answers(LoopbackServer):
    """See above.

    Args:
        endpoint: The server that requests are passed on to.

    Attributes:
        endpoint: Where clients connect.
        next: Statuses of the next requests.
        always: Status of all other requests; None: see ``rule``.
        rule: Returns the answer to a request; None: it is passed on.
        count: The requests so far.
    """

    def __init__(self, endpoint: str) -> None:
        self.next: list[int] = []
        self.always: int | None = None
        self.rule: Callable[[Request], Reply | None] | None = None
        self.count = 0
        self._guard = threading.Lock()
        super().__init__(self._handler(endpoint))

    def take(self, request: Request) -> Reply | None:
        """Return the answer to one request; None: it is passed on."""
        with self._guard:
            self.count += 1
            status = self.next.pop(0) if self.next else self.always
            rule = self.rule
        if status is not None:
            return refusal(status, _CODES.get(status, "Other"))
        return None if rule is None else rule(request)

    def _handler(self, endpoint: str) -> type[BaseHTTPRequestHandler]:
        answers, address = self, endpoint.removeprefix("http://")

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                own = answers.take(Request(self.command, self.path, dict(self.headers.items())))
                if own is not None:
                    self._reply(*own)
                    return
                connection = http.client.HTTPConnection(address)
                connection.request(self.command, self.path, body, dict(self.headers.items()))
                reply = connection.getresponse()
                self._reply(reply.status, dict(reply.headers.items()), reply.read())
                connection.close()

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815

            def _reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                        self.send_header(name, value)
                length = headers.get("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        return Handler
