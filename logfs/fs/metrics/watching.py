"""The endpoint of a mount from start to stop; without the option nothing of it is loaded."""

import contextlib
import logging
import socket
from collections.abc import Iterator

from logfs.errors import MountError
from logfs.fs.metrics import address as addresses
from logfs.fs.metrics.address import MetricsAddress
from logfs.fs.metrics.facts import Facts

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def listening(address: MetricsAddress | None) -> Iterator[socket.socket | None]:
    """Bind, before there is anything to see; None if metrics are not asked for.

    Raises:
        MountError: It cannot be bound.
    """
    if address is None:
        yield None
        return
    try:
        listener = addresses.listen(address)
    except OSError as error:
        raise MountError(
            f"metrics={address}: {error.strerror}; expected a port or a socket that is free"
        ) from error
    try:
        yield listener
    finally:
        listener.close()
        addresses.forget(address)


@contextlib.contextmanager
def shown(
    listener: socket.socket | None, address: MetricsAddress | None, facts: Facts, point: str
) -> Iterator[None]:
    """Serve the metrics of a mount while in it."""
    if listener is None or address is None:
        yield
        return
    from logfs.fs.metrics.endpoint import Endpoint
    from logfs.fs.metrics.exposition import Exposition

    where = addresses.bound_to(address, listener)
    endpoint = Endpoint(listener, Exposition(facts), point)
    endpoint.start()
    name = where.path or f"http://{where}/metrics"
    logger.info("%s: metrics are at %s", point, name)
    try:
        yield
    finally:
        endpoint.stop()
