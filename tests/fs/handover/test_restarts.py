"""Programs that continue while daemons of their mount end: through the kernel."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mounting import PATIENCE_S, opened_store, wait_until
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2])
def test_an_unfinished_line_continues_after_a_restart(
    tmp_path: Path, number: signal.Signals
) -> None:
    with HeldMount(tmp_path) as mount:
        topic = mount.point / "orders"
        topic.mkdir()
        with open(topic / "0", "ab", buffering=0) as file:
            file.write(b"whole\nbeg")
            mount.end_daemon(number)
            file.write(b"un\n")
            assert (topic / "0").read_bytes() == b"whole\nbegun\n"


def test_a_reader_ends_while_no_daemon_serves(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as mount:
        (mount.point / "orders").mkdir()
        file = mount.point / "orders/0"
        with file.open("ab") as output:
            output.write(b"line\n")
        command = [
            sys.executable,
            "-c",
            "import sys; f = open(sys.argv[1], 'rb'); print(len(f.read()), flush=True); input()",
        ]
        reader = subprocess.Popen([*command, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"5\n"
        before = mount.pid

        os.kill(before, signal.SIGSTOP)
        try:
            reader.communicate(b"\n", timeout=PATIENCE_S / 2)
        finally:
            os.kill(before, signal.SIGCONT)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.3])
def test_a_stop_while_the_next_daemon_starts_ends_the_mount(tmp_path: Path, after_s: float) -> None:
    with HeldMount(tmp_path) as mount:
        (mount.point / "orders").mkdir()
        os.kill(mount.pid, signal.SIGKILL)
        time.sleep(after_s)

        mount.stop()


def test_a_stop_directly_after_the_connection_was_adopted_ends_the_mount(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as mount:
        (mount.point / "orders").mkdir()
        os.kill(mount.pid, signal.SIGKILL)
        wait_until(lambda: "continuing the mount" in mount.log, "the next daemon has adopted it")

        mount.stop()


def test_a_stopped_mount_is_gone_and_its_lines_are_records(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as mount:
        topic = mount.point / "orders"
        topic.mkdir()
        file = os.open(topic / "0", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(file, b"no newline")
        mount.end_daemon(signal.SIGKILL)
        mount.stop()
        with pytest.raises(OSError, match="not connected"):
            os.write(file, b"x")
        with contextlib.suppress(OSError):
            os.close(file)

    with opened_store(mount.data) as store:
        assert store.partition("orders", 0).log_end_offset == 1
