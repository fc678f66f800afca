"""Pipes that hold more than the 64 KiB they are born with: fewer, larger reads."""

import contextlib
import fcntl

_PIPE_BYTES = 1 << 20
"""What everybody may ask for, unless ``/proc/sys/fs/pipe-max-size`` says otherwise."""


def widen_pipe(descriptor: int) -> None:
    """Let a pipe hold 1 MiB; nothing if that may not be, or the descriptor is no pipe's."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
