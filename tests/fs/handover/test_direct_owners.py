"""Programs that open the data directory themselves leave it alone while a mount is restarted."""

import subprocess
import time
from pathlib import Path

import pytest

from tests.mounting import COMMAND, PATIENCE_S, environment
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


def test_an_append_waits_for_the_next_daemon(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as mount:
        (mount.point / "orders").mkdir()
        # It starts now: a child of a process with open files closes them, which waits as well.
        client = subprocess.Popen(
            ["bash", "-c", "read; exec \"$@\" <<< 'of another program'", "-", *COMMAND,
             "append", f"{mount.data}/orders/0"],
            stdin=subprocess.PIPE, env=environment(),
        )  # fmt: skip
        assert client.stdin is not None
        with (mount.point / "orders/0").open("ab", buffering=0) as file:
            file.write(b"first\nhalf ")
            with mount.without_daemon():
                client.stdin.write(b"\n")
                client.stdin.close()
                time.sleep(3)  # long enough to open the directory
                assert client.poll() is None
            file.write(b"a line\n")
            assert client.wait(PATIENCE_S) == 0
        lines = (mount.point / "orders/0").read_bytes().splitlines()
    assert sorted(lines) == [b"first", b"half a line", b"of another program"]
