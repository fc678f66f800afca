"""Requests that end daemons, and how often a daemon may end, through a real mount."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.mounting import COMMAND, environment, holder_of, is_mounted, logfs, take_away
from tests.processes import PATIENCE_S, wait_until
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

DIES = """
import os, signal
from logfs.fs import filereads, hooks
hooks.load()
from logfs.fs.operations import Operations
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
from logfs.fs.replies import request_handler
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


def test_a_mount_whose_daemons_never_serve_is_given_up_and_the_log_says_so(tmp_path: Path) -> None:
    data, point, log = tmp_path / "data", tmp_path / "mnt", tmp_path / "log"
    program = tmp_path / "logfs"
    for directory in (data, point):
        directory.mkdir()
    text = f'#!/bin/sh\n[ -e {tmp_path}/broken ] && exit 3\nexec {" ".join(COMMAND)} "$@"\n'
    program.write_text(text)
    program.chmod(0o755)
    holder = subprocess.Popen(
        [COMMAND[0], "-c", _QUICK, "-1", f"--log-file={log}",
         program, "mount", "--log-file", log, data, point],
        env=environment(),
    )  # fmt: skip
    try:
        wait_until(lambda: log.exists() and " is mounted\n" in log.read_text(), "it is served")
        pid = int(os.getxattr(point, "user.logfs.pid"))
        (tmp_path / "broken").touch()
        os.kill(pid, signal.SIGKILL)
        holder.wait(PATIENCE_S)
    finally:
        holder.kill()
        holder.wait()
        if is_mounted(point):
            take_away(point)
    assert "ERROR the daemon ended with status 3, and so did 3 in a row" in log.read_text()


_QUICK = """
import sys
from logfs.machine import holder
holder.STARTS = 3
sys.exit(holder.main(sys.argv[1:]))
"""


def test_no_other_process_can_send_to_a_holder(tmp_path: Path) -> None:
    data, point = tmp_path / "data", tmp_path / "mnt"
    data.mkdir()
    point.mkdir()
    logfs("mount", data, point, "--background")
    try:
        pid = int(os.getxattr(point, "user.logfs.pid"))
        holder = holder_of(pid)
        inodes = {
            os.readlink(f"/proc/{holder}/fd/{name}") for name in os.listdir(f"/proc/{holder}/fd")
        }
        rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
        names = [row[7] for row in rows if len(row) > 7 and f"socket:[{row[6]}]" in inodes]
        assert any(name.startswith("socket:") for name in inodes)
        assert names == []
    finally:
        logfs("umount", point)
