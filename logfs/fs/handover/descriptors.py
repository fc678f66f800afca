"""The descriptors that a service manager keeps while no daemon runs: systemd's protocol.

    FDSTORE=1, FDNAME=name          a datagram with a descriptor: the manager keeps it
    FDSTOREREMOVE=1, FDNAME=name    the manager closes it
    LISTEN_PID, _FDS, _FDNAMES      variables of the next daemon, which gets them from 3 on

Source: sd_pid_notify_with_fds(3), sd_listen_fds_with_names(3).
"""

import os
from collections.abc import MutableMapping
from typing import NamedTuple

CONNECTION = "logfs-fuse"
"""The name of the descriptor of ``/dev/fuse``."""
STATE = "logfs-state"
"""The name of the memory file."""

_FIRST = 3


class Inherited(NamedTuple):
    """The descriptors of the predecessor."""

    connection: int
    state: int


def inherited(environment: MutableMapping[str, str]) -> Inherited | None:
    """Return the descriptors that this process was started with; None if there are not both.

    None of them is inherited by a child, and others than the two are closed. The variables are
    removed.
    """
    pid = environment.pop("LISTEN_PID", "")
    count = environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isdecimal():
        return None
    found: dict[str, int] = {}
    for number, descriptor in enumerate(range(_FIRST, _FIRST + int(count))):
        try:
            # A child with /dev/fuse open would keep the connection alive for ever.
            os.set_inheritable(descriptor, False)
        except OSError:
            continue
        name = names[number] if number < len(names) else ""
        if name in (CONNECTION, STATE) and name not in found:
            found[name] = descriptor
        else:
            os.close(descriptor)
    if len(found) < 2:
        for descriptor in found.values():
            os.close(descriptor)
        return None
    return Inherited(found[CONNECTION], found[STATE])
