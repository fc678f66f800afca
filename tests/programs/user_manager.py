"""systemd as the manager of a user, and its journal, where no systemd runs or shall be asked.

They start in their own namespaces, with an empty ``/run`` that says that systemd has booted this
machine, and in a control group that goes with them.
"""

import os
import shlex
from pathlib import Path

from tests.processes import PATIENCE_S
from tests.programs.running import printed

UNITS = "/run/user/0/systemd/user"
"""Where a script finds the place of its units."""

START = """\
/lib/systemd/systemd --user --log-target=console --log-level=warning < /dev/null &
until systemctl --user is-system-running > /dev/null 2>&1; do sleep 0.05; done
"""
"""Starts the manager, once the units are there."""

_OUTSIDE = """\
set -eu
for groups in /sys/fs/cgroup/unified /sys/fs/cgroup; do [ -e $groups/cgroup.procs ] && break; done
own=$groups/logfs-programs-$$
mkdir $own
# What it started may be left for a moment after its first process has gone.
trap 'for try in {1..100}; do
          find $own -depth -type d -exec rmdir {} + 2> /dev/null && break; sleep 0.1
      done' EXIT
(
    sh -c 'echo $PPID' > $own/cgroup.procs
    exec unshare --mount --pid --fork --kill-child --cgroup bash -c "$1"
)
"""

_INSIDE = f"""\
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system {UNITS} /run/log/journal
mount -t proc proc /proc
mount -t cgroup2 cgroup2 /sys/fs/cgroup
export XDG_RUNTIME_DIR=/run/user/0
"""


def printed_beside_systemd(script: str, cwd: Path, *, timeout_s: float | None = PATIENCE_S) -> str:
    """Run a script there, and return what it prints; what it started ends with it."""
    assert os.geteuid() == 0, "a systemd of a test's own needs root"
    return printed(
        shlex.join(["bash", "-c", _OUTSIDE, "bash", _INSIDE + script]), cwd, timeout_s=timeout_s
    )


def unit(name: str, text: str) -> str:
    """Return a script that makes a unit, or a drop-in of one."""
    path = f"{UNITS}/{name}"
    return f"mkdir -p $(dirname {path})\ncat > {path} <<'END'\n{text}\nEND\n"
