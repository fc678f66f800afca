"""The connection to the kernel, which outlives the daemon; see ``native/handover.h``."""

import ctypes
import os


class KeptConnection:
    """The connection of the mount. Event loop only.

    Args:
        library: The hooks.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    @property
    def descriptor(self) -> int:
        """Of ``/dev/fuse``; -1: nothing is mounted."""
        return int(self._library.logfs_session())

    def keep(self, state: int) -> None:
        """Keep the state of the session in a memory file; before the mount.

        Raises:
            OSError: It cannot be mapped.
        """
        status = int(self._library.logfs_keep(state))
        if status:
            raise OSError(-status, os.strerror(-status))

    def adopt(self, connection: int) -> None:
        """Have the next mount take over a connection, after ``keep``."""
        self._library.logfs_adopt(connection)

    @property
    def is_adopted(self) -> bool:
        """Whether the connection was taken over."""
        return int(self._library.logfs_is_adopted()) == 1

    def stop_reading(self) -> None:
        """Leave all further requests in the kernel."""
        self._library.logfs_stop_reading()

    @property
    def in_flight(self) -> int:
        """How many requests have been read and not been answered."""
        return int(self._library.logfs_in_flight())

    @property
    def keeps_requests(self) -> bool:
        """Whether this kernel does not send requests again, so that the state has them."""
        return bool(self._library.logfs_keeps_requests())

    def without_resend(self) -> None:
        """Do as on a kernel that does not send requests again; before the mount, for tests."""
        self._library.logfs_without_resend()
