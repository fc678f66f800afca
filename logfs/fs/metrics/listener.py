"""The socket of the metrics of a mount, from start to stop; see the mount option ``metrics``."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from logfs.errors import MountError
from logfs.fs.metrics.mounts import MountMetrics
from logfs.fs.options import MetricsAddress

logger = logging.getLogger(__name__)

_BACKLOG = 16


@contextlib.contextmanager
def listening(address: MetricsAddress | None) -> Iterator[socket.socket | None]:
    """Bind, before there are metrics; None if the option is not set.

    Raises:
        MountError: It cannot be bound.
    """
    if address is None:
        yield None
        return
    try:
        listener = listen_at(address)
    except OSError as error:
        raise MountError(
            f"metrics={address}: {error.strerror}; expected a port or a socket that is free"
        ) from error
    try:
        yield listener
    finally:
        listener.close()
        forget(address)


@contextlib.contextmanager
def shown(
    listener: socket.socket | None,
    address: MetricsAddress | None,
    metrics: MountMetrics,
    point: str,
) -> Iterator[None]:
    """Serve the metrics of a mount while in it."""
    if listener is None or address is None:
        yield
        return
    from logfs.fs.metrics.endpoint import Endpoint
    from logfs.fs.metrics.exposition import Exposition

    where = bound_to(address, listener)
    endpoint = Endpoint(listener, Exposition(metrics), point)
    endpoint.start()
    name = where.path or f"http://{where}/metrics"
    logger.info("%s: metrics are at %s", point, name)
    try:
        yield
    finally:
        endpoint.stop()


def listen_at(address: MetricsAddress) -> socket.socket:
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
        Path(path).chmod(0o660)  # with any umask
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_dead(path: str) -> None:
    """Remove a socket without a listener; any other file stays, and bind fails."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
