"""Promise 9 of SEMANTICS.md: daemons that end often; each docstring is the sentence that is run."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.mounting import logfs
from tests.processes import PATIENCE_S
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

DIES = """
import os, signal
from logfs.fs.files import filereads
from logfs.fs.kernel import hooks
hooks.load()
from logfs.fs.operations.served import Operations
before = {name: getattr(Operations, name) for name in ("open", "read", "getxattr", "setattr")}
def deadly(name):
    handler = before[name]
    async def die(self, number, *rest, **named):
        node = self.inodes.node(self.journal.files[number].ino if name == "read" else number)
        partition = node.partition
        if partition is not None and partition.topic_partition.topic == "bad-" + name:
            os.kill(os.getpid(), signal.SIGKILL)
        return await handler(self, number, *rest, **named)
    return die
from logfs.fs.tree.replies import request_handler
for name in before:
    inner = before[name].__wrapped__
    before[name] = inner
    replacement = deadly(name)
    replacement.__name__ = name
    setattr(Operations, name, request_handler(replacement))
"""
ATTEMPTS = {
    "open": "open(path)",
    "read": "os.read(os.open(path, os.O_RDONLY), 10)",
    "getxattr": "os.getxattr(path, 'user.logfs.end')",
    "setattr": "os.chmod(path, 0o600)",
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_request_that_ends_each_daemon_is_refused_by_the_third(tmp_path: Path, name: str) -> None:
    """A request that was under way when two daemons in a row were killed is answered EIO"""
    with HeldMount(tmp_path, "-o", "no_native", changes=DIES, suspects=True) as mount:
        for topic in (f"bad-{name}", "good"):
            (mount.point / topic).mkdir()
        with (mount.point / "good" / "0").open("ab") as file:
            file.write(b"one\n")
        follower = subprocess.Popen(
            ["cat", mount.point / "good" / "0.follow"], stdout=subprocess.PIPE
        )
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"one\n"
        attempt = subprocess.run(
            ["python3", "-c", f"import os, sys; path = sys.argv[1]; {ATTEMPTS[name]}",
             mount.point / f"bad-{name}" / "0"],
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        assert "OSError: [Errno 5]" in attempt.stderr, attempt
        # Another one if the read of the follower was under way as well.
        assert mount.log.count("continuing the mount") in (2, 3)
        assert f"{name}: bad-{name}/0: this request was under way when two daemons" in mount.log
        with (mount.point / "good" / "0").open("ab") as file:
            file.write(b"two\n")
        assert follower.stdout.readline() == b"two\n"
        follower.kill()
        follower.wait()
        follower.stdout.close()


def test_kills_of_daemons_that_served_do_not_end_the_mount(tmp_path: Path) -> None:
    """A mount is not given up while its daemons serve, however often they end."""
    data, point, log = tmp_path / "data", tmp_path / "mnt", tmp_path / "log"
    data.mkdir()
    point.mkdir()
    logfs("mount", data, point, "--background", "--log-file", log)
    try:
        (point / "t").mkdir()
        with (point / "t" / "0").open("ab", buffering=0) as file:
            for number in range(12):
                pid = int(os.getxattr(point, "user.logfs.pid"))
                os.kill(pid, signal.SIGKILL)
                assert file.write(b"%d\n" % number)
        assert (point / "t" / "0").read_text().split() == [str(n) for n in range(12)]
    finally:
        logfs("umount", point)
    assert "given up" not in log.read_text()
