"""Leaving the terminal: what the caller gets to know, and when."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.conftest import command, environment

BEGIN = """
import os, sys, time, click
from logfs.cli.terminal.background import leave_terminal
try:
    ready = leave_terminal()
except click.exceptions.Exit as end:
    print("parent", end.exit_code, flush=True)
    sys.exit(end.exit_code)
"""


def start(
    program: str, *arguments: str | Path, keeps: Sequence[int] = ()
) -> "subprocess.Popen[str]":
    """Start a program that goes into the background first, with descriptors that it inherits."""
    return subprocess.Popen(
        [*command()[:1], "-c", BEGIN + program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        pass_fds=keeps,
    )


def test_the_caller_waits_until_it_is_ready(tmp_path: Path) -> None:
    program = (
        "print('starting', flush=True)\nready()\nprint('lost', flush=True)\n"
        "time.sleep(0.1)\nopen(sys.argv[1], 'w').write(os.getcwd())"
    )
    with start(program, tmp_path / "done") as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert sorted(out.splitlines()) == ["parent 0", "starting"]
    # The daemon continues after that.
    deadline = time.monotonic() + 30
    while not (tmp_path / "done").exists() or not (tmp_path / "done").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (tmp_path / "done").read_text() == "/"


def test_the_daemon_keeps_nothing_open_of_the_caller(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    program = "ready()\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.01)"
    with start(program, tmp_path / "end", keeps=(writing,)) as process:
        os.close(writing)
        try:
            assert process.wait(30) == 0
            assert select.select([reading], [], [], 10) == ([reading], [], [])
            assert os.read(reading, 1) == b""
        finally:
            (tmp_path / "end").touch()
            os.close(reading)


@pytest.mark.parametrize(
    ("program", "status", "text"),
    [
        ("sys.exit('why')", 1, "why\n"),
        ("sys.exit(7)", 7, ""),
        ("sys.exit(0)", 1, ""),
        ("os.kill(os.getpid(), 9)", 1, "logfs: the daemon was ended by SIGKILL before"),
    ],
)
def test_a_daemon_that_ends_before_it_is_ready(program: str, status: int, text: str) -> None:
    with start(program) as process:
        out, err = process.communicate(timeout=30)
    assert process.returncode == status
    assert out == f"parent {status}\n"
    assert err.startswith(text)
    assert bool(err) == bool(text)


@pytest.mark.slow
def test_ctrl_c_ends_a_daemon_that_is_not_ready(tmp_path: Path) -> None:
    with start(
        "open(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(60)", tmp_path / "pid"
    ) as (process):
        deadline = time.monotonic() + 30
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        daemon = int((tmp_path / "pid").read_text())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in err
    while Path(f"/proc/{daemon}").exists() and _state(daemon) != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"
