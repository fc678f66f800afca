"""Messages to a service manager from a process without an event loop; see sd_notify(3)."""

import contextlib
import socket
from collections.abc import MutableMapping
from typing import Self


class Notifier:
    """Sends messages to the socket of a service manager; without one, to nothing."""

    def __init__(self, address: str | None = None) -> None:
        self._address = address

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Self:
        """Make one of the variables of systemd, and remove them: they are not for children."""
        return cls(environment.pop("NOTIFY_SOCKET", None))

    def ready(self) -> None:
        """The service works."""
        self._send("READY=1")

    def alive(self, status: str) -> None:
        """The process continues, and this is its state in words."""
        self._send(f"WATCHDOG=1\nSTATUS={' '.join(status.split())}")

    def stopping(self) -> None:
        """The process is about to end."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if self._address is None:
            return
        address = self._address.replace("@", "\0", 1) if self._address[:1] == "@" else self._address
        # A service manager that has gone must not end what works.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(text.encode(), address)
