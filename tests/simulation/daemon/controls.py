"""Clients of the control socket: each request is made once, however often its daemon ends."""

import itertools
import socket
from collections.abc import Callable
from pathlib import Path

from logfs.control import frames
from logfs.control.requests import decode_lines, line_fields
from logfs.log import names
from logfs.log.lines.form import Lines, LineTarget
from tests.simulation.daemon.calls import Call
from tests.simulation.daemon.child import DefectError
from tests.simulation.daemon.kernel import Kernel

_PIECE_BYTES = 1 << 16
_PARTITION = 0


class ControlClient:
    """A client, which connects again and repeats its request when the daemon ends.

    Args:
        kernel: Has its programs, and closes the connection in daemons.
        data: The data directory.
        number: Its number.
        digest: Takes all answers.
    """

    def __init__(
        self, kernel: Kernel, data: Path, number: int, digest: Callable[[bytes], object]
    ) -> None:
        self._kernel = kernel
        self._path = str(data / names.CONTROL_SOCKET)
        self._number = number
        self._digest = digest
        self._numbers = itertools.count(1)
        self._connection: socket.socket | None = None

    def append(self, topic: str, data: bytes, *, is_durable: bool) -> Call:
        """Append whole lines; returns how many bytes were appended."""
        fields = {**line_fields(LineTarget(topic, _PARTITION)), "is_durable": is_durable}
        answer = yield from self._ask({"request": "lines", **fields}, data)
        if "error" in answer:
            raise DefectError(f"a request to append was answered {answer}")
        lines: Lines = decode_lines(answer["result"])
        if lines.refusal is not None or lines.accepted != len(data):
            raise DefectError(f"{lines.accepted} bytes of {len(data)} appended: {lines.refusal}")

    def _ask(self, header: dict[str, object], payload: bytes) -> Call:
        header |= {"client": self._number, "number": next(self._numbers)}
        frame = frames.encode_frame(header, payload)
        while True:
            try:
                self._connect()
                answer = yield from self._exchange(frame)
            except OSError:
                self.close()
                yield ("later",)
                continue
            self._digest(repr(sorted(answer.items())).encode())
            return answer

    def _connect(self) -> None:
        if self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._kernel.connections.add(self._connection)
            self._connection.connect(self._path)
            self._connection.setblocking(False)

    def _exchange(self, frame: bytes) -> Call:
        assert self._connection is not None
        while frame:
            try:
                frame = frame[self._connection.send(frame) :]
            except BlockingIOError:
                yield ("later",)
        received = b""
        while True:
            try:
                piece = self._connection.recv(_PIECE_BYTES)
            except BlockingIOError:
                yield ("later",)
                continue
            if not piece:
                raise ConnectionError("the daemon has ended")
            received += piece
            if len(received) < frames.HEAD_BYTES:
                continue
            head = frames.decode_head(received[: frames.HEAD_BYTES])
            end = frames.HEAD_BYTES + head.header_bytes
            if len(received) >= end + head.payload_bytes:
                return frames.decode_header(received[frames.HEAD_BYTES : end])

    def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._kernel.connections.discard(self._connection)
            self._connection.close()
            self._connection = None
