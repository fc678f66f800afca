"""The hooks: a small C library of ours between pyfuse3 and libfuse; see ``native/hooks.h``.

It is optional: built where the headers of libfuse are there, and everything works without it. It
has to be loaded before pyfuse3 is, which takes its functions in the place of libfuse's. No pyfuse3.
"""

import ctypes
import errno
import logging
import os
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

logger = logging.getLogger(__name__)

_VERSION = 3
_HERE = Path(__file__).parent
_loaded: "list[Hooks]" = []


class Hooks:
    """The library. Event loop only.

    Args:
        library: It, loaded.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.logfs_request.restype = ctypes.c_uint64
        library.logfs_ahead_reads.restype = ctypes.c_uint64
        library.logfs_ahead_put.argtypes = (
            *(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t),
        )
        library.logfs_ahead_take.argtypes = (ctypes.c_uint64,)
        library.logfs_ahead_take.restype = ctypes.c_size_t
        library.logfs_reply.argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)
        self._on_interrupt: object = None
        self._on_reply: object = None

    @property
    def is_active(self) -> bool:
        """Whether what is mounted is mounted through it."""
        return int(self._library.logfs_session()) >= 0

    @property
    def has_passthrough(self) -> bool | None:
        """Whether the kernel knows passthrough; None: it was not asked yet, or need not say."""
        return {1: True, -1: False}.get(self._library.logfs_has_passthrough())

    @property
    def uses_own_way(self) -> bool:
        """Whether libfuse itself knows passthrough."""
        return bool(self._library.logfs_uses_own_way())

    def want_passthrough(self, *, wanted: bool) -> None:
        """Say whether passthrough is to be agreed on; before the mount."""
        self._library.logfs_want_passthrough(int(wanted))

    def backing_open(self, descriptor: int) -> int:
        """Have the kernel keep an open file for passthrough; returns its number.

        Raises:
            OSError: It does not: EPERM without CAP_SYS_ADMIN, ELOOP on a stacked file system.
        """
        number = int(self._library.logfs_backing_open(descriptor))
        if number <= 0:
            raise OSError(-number or errno.EIO, os.strerror(-number or errno.EIO))
        return number

    def backing_close(self, number: int) -> None:
        """Have the kernel forget a number; what is open goes on.

        Raises:
            OSError: It does not know it.
        """
        status = int(self._library.logfs_backing_close(number))
        if status:
            raise OSError(-status, os.strerror(-status))

    def pass_through(self, handle: int, number: int) -> None:
        """Have a handle read from a backing file; the last thing the handler of OPEN does."""
        self._library.logfs_pass_through(ctypes.c_uint64(handle), number)

    def request(self) -> int:
        """Return the number of the request; only before the first await of its handler."""
        return int(self._library.logfs_request())

    def drop_buffer(self) -> None:
        """Give back the memory of a small request that may wait; when ``request`` may be called."""
        self._library.logfs_drop_buffer()

    def on_interrupt(self, interrupted: Callable[[int], None]) -> None:
        """Have a function called with the number of each request that a signal interrupts."""
        callback = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(interrupted)
        self._library.logfs_on_interrupt(callback)
        self._on_interrupt = callback  # as long as the library may call it

    def ahead_put(self, handle: int, offset: int, address: int, size: int) -> bool:
        """Have reads of a handle answered from memory, from an offset on; see ``hooks.h``.

        The memory has to stay where it is, unchanged, until ``ahead_take``.
        """
        return bool(self._library.logfs_ahead_put(handle, offset, address, size))

    def ahead_take(self, handle: int) -> int:
        """Take back what was put for a handle; returns how many bytes nobody has read."""
        return int(self._library.logfs_ahead_take(handle))

    @property
    def ahead_reads(self) -> int:
        """How many reads were answered so."""
        return int(self._library.logfs_ahead_reads())

    def on_reply(self, replied: Callable[[], None]) -> None:
        """Have a function called after the reply that is sent next after ``expect_reply``."""
        callback = ctypes.CFUNCTYPE(None)(replied)
        self._library.logfs_on_reply(callback)
        self._on_reply = callback  # as long as the library may call it

    def expect_reply(self) -> None:
        """Have that function called once."""
        self._library.logfs_expect_reply()

    def reply(self, request: int, data: memoryview) -> bool:
        """Answer a read that waits, which is not read-only memory; see ``hooks.h``.

        Returns:
            False: it is left to its handler.
        """
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        return bool(self._library.logfs_reply(request, address, len(data)))


def load() -> None:
    """Load the library, if it is there. Before anything imports pyfuse3."""
    if _loaded or "pyfuse3" in sys.modules:
        return
    for suffix in EXTENSION_SUFFIXES:
        path = _HERE / f"_hooks{suffix}"
        if not path.exists():
            continue
        try:
            # PyDLL: its calls are shorter than giving up the interpreter's lock would take.
            library = ctypes.PyDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            logger.warning("%s cannot be loaded: %s", path, error)
            return
        if library.logfs_version() == _VERSION:
            _loaded.append(Hooks(library))
        else:
            logger.warning("%s is of another version of logfs, and not used", path)
        return


def loaded() -> Hooks | None:
    """Return the library if it is loaded."""
    return _loaded[0] if _loaded else None
