"""The units under a real systemd, as process 1 of its own namespaces."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

CONFIGURATION = """
data = "/var/lib/logfs"
mountpoint = "/mnt/logs"
options = ["allow_other"]
[kafka]
num.partitions = 2
"""


@pytest.mark.fuse
@pytest.mark.slow
def test_a_life_under_systemd(tmp_path: Path) -> None:
    (tmp_path / "web.toml").write_text(CONFIGURATION)
    (tmp_path / "scenario").write_bytes((HERE / "scenario.sh").read_bytes())
    as_root = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    logfs = f"{shlex.quote(sys.executable)} -m logfs"
    command = [*as_root, "bash", str(HERE / "boot.sh"), str(tmp_path), logfs]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result
    told = (tmp_path / "out").read_text()
    daemon = (tmp_path / "daemon").read_text()
    assert told.splitlines() == [
        "process 1: systemd",
        "started: 0 active",
        "status: serving /mnt/logs",
        "mounted: /var/lib/logfs fuse.logfs",
        "partitions: 0 1 ",
        "after a kill: first second ",
        "after a hang: first second ",
        "restarted: 0 /var/lib/logfs fuse.logfs",
        "reloaded: 0 active /var/lib/logfs fuse.logfs",
        "another main process, no restart",
        "an open file: no error, every line once",
        "verified: 0",
        "stopped by force: timeout, nothing",
        "stopped: success, nothing",
        "stopped after a reload: success, nothing",
        "clean: /var/lib/logfs/.kafka_cleanshutdown",
        "as a mount unit: /var/lib/logfs fuse.logfs, 2 lines",
        "stopped: success, nothing",
        "done",
    ], f"{told}\n{(tmp_path / 'err').read_text()}\n{daemon}"
    # The watchdog's signal has printed where the daemon hung.
    assert "Fatal Python error: Aborted" in daemon
    assert daemon.count("continuing the mount of a daemon that was killed") == 3
    assert daemon.count("continuing the mount of a daemon that stopped for it") == 3
