"""Where metrics are read: the mount option ``metrics``.

    metrics=9464               a port of this machine, for programs on it alone (127.0.0.1)
    metrics=0.0.0.0:9464       a port of an address, here of all; there is no password
    metrics=[::1]:9464         the same of IPv6
    metrics=/run/logfs.sock    a socket, for its owner and group

Port 0 is any that is free; the log says which.
"""

import contextlib
import os
import socket
from pathlib import Path
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
_BACKLOG = 16
_HIGHEST_PORT = 65535


class MetricsAddress(NamedTuple):
    """Where metrics are read.

    Attributes:
        host: The address or name; empty for a socket in the file system.
        port: The port, 0 for any.
        path: The path of the socket; empty for a port.
    """

    host: str
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_metrics_address(text: str) -> MetricsAddress:
    """Parse the value of the option.

    Raises:
        ValueError: It is none; the message says what is expected.
    """
    if text.startswith("/"):
        return MetricsAddress("", path=text)
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if "[" in host else host
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= _HIGHEST_PORT
    if not is_port or (colon and not host) or (":" in host and "[" not in text):
        raise ValueError(
            "expected a port, as 9464, an address and a port, as 127.0.0.1:9464 or [::1]:9464, or "
            "the path of a socket, from the root"
        )
    return MetricsAddress(host or LOOPBACK, int(port))


def listen(address: MetricsAddress) -> socket.socket:
    """Bind and listen.

    Raises:
        OSError: It cannot be done; ``filename`` says where.
    """
    try:
        return _listen_at_path(address.path) if address.path else _listen_at_port(address)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(address)) from error


def bound_to(address: MetricsAddress, listener: socket.socket) -> MetricsAddress:
    """Return where a listener can be reached: with its port where any was asked for."""
    return address if address.path else address._replace(port=listener.getsockname()[1])


def forget(address: MetricsAddress) -> None:
    """Remove the socket in the file system, if it is one."""
    if address.path:
        with contextlib.suppress(OSError):
            Path(address.path).unlink()


def _listen_at_port(address: MetricsAddress) -> socket.socket:
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, protocol, _, place = found[0]
    listener = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _listen_at_path(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(listener.fileno(), 0o600)  # the file that bind makes has no more than this
        _remove_dead(path)
        listener.bind(path)
        Path(path).chmod(0o660)  # whatever the umask
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_dead(path: str) -> None:
    """Remove a socket at which nobody listens any more; anything else stays, and bind fails."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
