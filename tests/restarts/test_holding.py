"""The holder: when it gives a mount up, and which processes reach it, through a real mount."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.mounting import COMMAND, environment, holder_of, is_mounted, logfs, take_away
from tests.processes import PATIENCE_S, wait_until

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


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
