"""Programs that continue while daemons of their mount end: through the kernel."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.mounting import PATIENCE_S, opened_store, wait_until
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

WRITER = """
import os, random, sys, time
path, name, stop = sys.argv[1:]
chance = random.Random(name)
file = os.open(path, os.O_WRONLY | os.O_APPEND)
count, rest = 0, b""
while rest or not os.path.exists(stop):
    while len(rest) < 2000 and not os.path.exists(stop):
        rest += b"%s %d %s\\n" % (name.encode(), count, b"x" * chance.choice([0, 9, 200, 5000]))
        count += 1
    if not rest:
        break
    size = chance.randint(1, len(rest))
    written = os.write(file, rest[:size])
    rest = rest[written:]
    time.sleep(0.002 * chance.random())  # as a program does something else meanwhile
os.close(file)
print(count)
"""


def _run_writer(path: Path, name: str, stop: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", WRITER, str(path), name, str(stop)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _count_of(writer: "subprocess.Popen[bytes]") -> int:
    output, errors = writer.communicate(timeout=PATIENCE_S)
    assert not errors, errors.decode()
    return int(output)


@pytest.mark.parametrize("resends", [True, False], ids=["resend", "no-resend"])
def test_each_line_is_written_once_over_kills_and_restarts(tmp_path: Path, resends: bool) -> None:
    stop = tmp_path / "stop"
    chance = Random(7)
    with HeldMount(tmp_path, resends=resends) as mount:
        topic = mount.point / "orders"
        topic.mkdir()
        (topic / "0").touch()
        names = ["one", "two", "three"]
        writers = [_run_writer(topic / "0", name, stop) for name in names]
        followed = tmp_path / "followed"
        with followed.open("wb") as output:
            reader = subprocess.Popen(["cat", topic / "0@byte=0.follow"], stdout=output)
        try:
            for number in (signal.SIGKILL, signal.SIGUSR2, *[signal.SIGKILL] * 2):
                mount.end_daemon(number)
                time.sleep(chance.random() / 5)
        finally:
            stop.touch()
        counts = [_count_of(writer) for writer in writers]
        text = (topic / "0").read_bytes()
        wait_until(lambda: followed.stat().st_size >= len(text), "the reader has everything")
        reader.terminate()
        reader.wait(PATIENCE_S)

    assert followed.read_bytes() == text
    lines = [line.split(b" ")[:2] for line in text.splitlines()]
    for name, count in zip(names, counts, strict=True):
        numbers = [int(number) for of, number in lines if of == name.encode()]
        assert numbers == list(range(count))


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
