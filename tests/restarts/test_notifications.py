"""A daemon that is killed while the kernel holds up one of its notifications."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.mounting import COMMAND, PATIENCE_S, environment, wait_until
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

# A directory cannot lose a name while a program makes another one in it.
_HANGS_IN_MKDIR = """\
import os, trio
from logfs.fs.kernel import hooks
hooks.load()
from logfs.fs.operations.served import Operations
mkdir = Operations.mkdir
async def hanging(self, parent, name, mode, ctx):
    if os.path.exists({marker!r}):
        os.rename({marker!r}, {marker!r} + ".seen")
        await trio.sleep_forever()
    return await mkdir(self, parent, name, mode, ctx)
Operations.mkdir = hanging
"""


def test_a_notification_does_not_keep_a_killed_daemon(tmp_path: Path) -> None:
    marker, seen = tmp_path / "marker", tmp_path / "marker.seen"
    with HeldMount(tmp_path, changes=_HANGS_IN_MKDIR.format(marker=str(marker))) as held:
        (held.point / "gone").mkdir()
        marker.touch()
        # Its program starts now: the directory is locked later.
        delete = ["bash", "-c", 'until [ -e "$1" ]; do sleep 0.05; done; shift; exec "$@"', "-"]
        delete += [str(seen), *COMMAND, "topic", "delete", str(held.data / "gone")]
        with (
            subprocess.Popen(["mkdir", held.point / "made"]) as making,
            subprocess.Popen(delete, env=environment()) as deleting,
        ):
            daemon = held.pid
            wait_until(lambda: _is_held_up(daemon), "the kernel holds the notification up")
            held.end_daemon(signal.SIGKILL)
            assert making.wait(PATIENCE_S) == 0
            assert deleting.wait(PATIENCE_S) == 0
        assert os.listdir(held.point) == ["made"]


def _is_held_up(daemon: int) -> bool:
    """Whether a thread or a child of a daemon sleeps in the kernel in a way that no signal ends."""
    tasks = Path(f"/proc/{daemon}/task")
    children = (tasks / str(daemon) / "children").read_text().split()
    stats = [*tasks.glob("*/stat"), *(Path(f"/proc/{child}/stat") for child in children)]
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return any(stat.read_text().rpartition(")")[2].split()[0] == "D" for stat in stats)
    return False
