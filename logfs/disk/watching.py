"""Waiting until something changes in directories: inotify, as in the kernel.

A write into a file of a watched directory, by any process of this machine, ends a ``wait``, and so
does a name that appears or disappears. Changes made through a map, or on another machine with the
same disk, are not reported, so callers also look from time to time.
"""

import contextlib
import ctypes
import os
import select
import threading
from collections.abc import Iterable

from logfs.types import Closeable

_MODIFY = 0x00000002
_MOVED = 0x000000C0
_CREATE = 0x00000100
_DELETE = 0x00000200
_DELETE_SELF = 0x00000400
_EVENTS = _MODIFY | _MOVED | _CREATE | _DELETE | _DELETE_SELF
_NON_BLOCKING = os.O_NONBLOCK | os.O_CLOEXEC
_BUFFER_BYTES = 1 << 16
_BLIND_S = 0.1
"""Longest wait where nothing can be watched, because the system gives no more watches."""


class Watch(Closeable):
    """Directories that are watched. One thread waits; any may call ``wake``."""

    def __init__(self) -> None:
        self._events = self._woken = -1
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None)
        self._events = self._libc.inotify_init1(_NON_BLOCKING)
        self._is_blind = self._events < 0
        self._woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._watched: set[str] = set()

    def add(self, paths: Iterable[str]) -> None:
        """Watch directories from now on; those that are watched already, or gone, are passed over.

        Where the system gives no more watches (``fs.inotify.max_user_watches``), ``wait`` is short
        instead.
        """
        for path in paths:
            if path in self._watched or self._is_blind:
                continue
            number = self._libc.inotify_add_watch(self._events, os.fsencode(path), _EVENTS)
            if number >= 0:
                self._watched.add(path)
            elif os.path.isdir(path):
                self._is_blind = True

    def wait(self, timeout_s: float) -> bool:
        """Wait for a change since the last call, or for so many seconds; True: there was one."""
        descriptors = [self._woken] if self._is_blind else [self._events, self._woken]
        if self._is_blind:
            timeout_s = min(timeout_s, _BLIND_S)
        ready, _, _ = select.select(descriptors, [], [], max(timeout_s, 0.0))
        for descriptor in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(descriptor, _BUFFER_BYTES)
        return bool(ready)

    def wake(self) -> None:
        """End the ``wait`` of another thread, or the next one; nothing once it is closed."""
        with self._lock:
            if self._woken >= 0:
                os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """Watch nothing any more."""
        with self._lock:
            for descriptor in (self._events, self._woken):
                if descriptor >= 0:
                    os.close(descriptor)
            self._events = self._woken = -1

    def __del__(self) -> None:
        self.close()
