"""Native reads over the end of a daemon: a reload, a restart, a kill."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fs.test_native_following import READER
from tests.mounting import COMMAND, run, wait_until
from tests.processes import PATIENCE_S
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

APPEND = os.O_WRONLY | os.O_APPEND
ENDINGS = ("reload", "kill", "restart", "kill", "reload")


def end(mount: HeldMount, how: str) -> None:
    if how == "reload":
        assert not run(*COMMAND, "reload", mount.point).returncode
    else:
        mount.end_daemon(signal.SIGKILL if how == "kill" else signal.SIGUSR2)


@pytest.mark.parametrize("resends", [True, False])
def test_readers_continue_over_the_end_of_a_daemon(tmp_path: Path, resends: bool) -> None:
    """Each line reaches each reader once; between two daemons one line at least was waited for."""
    with HeldMount(tmp_path, resends=resends) as mount:
        topic = mount.point / "t"
        topic.mkdir()
        writer = os.open(topic / "0", APPEND)
        text = b"".join(b"%099d\n" % number for number in range(500))
        os.write(writer, text)
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", READER, topic / name, str(size)], stdout=subprocess.PIPE
            )
            for name, size in (("0.follow", 100), ("0.follow", 5000), ("0@earliest.follow", 4096))
        ]
        plain = os.open(topic / "0", os.O_RDONLY)
        got = b"".join(os.read(plain, 1000) for _ in range(20))
        for number, how in enumerate(ENDINGS):
            for line in range(60):
                data = b"line %d of %d\n" % (line, number)
                assert os.write(writer, data) == len(data)
                text += data
                got += os.read(plain, 100)
            end(mount, how)
        os.write(writer, b"end\n")
        text += b"end\n"
        try:
            found = [reader.communicate(timeout=PATIENCE_S)[0] for reader in readers]
        finally:
            for reader in readers:
                reader.kill()
        while part := os.read(plain, 3000):
            got += part
        assert [got, *found] == [text] * 4
        for descriptor in (writer, plain):
            os.close(descriptor)


def test_a_mount_can_be_stopped_while_readers_read_and_wait(tmp_path: Path) -> None:
    """Every reader ends, with the bytes of the log or an error."""
    program = "import os, sys; f = os.open(sys.argv[1], 0)\nwhile 1: os.read(f, 4096)"
    with HeldMount(tmp_path) as mount:
        topic = mount.point / "t"
        topic.mkdir()
        writer = subprocess.Popen(
            ["sh", "-c", 'while :; do echo line || exit 5; done >> "$0"', topic / "0"],
            stderr=subprocess.DEVNULL,
        )
        readers = [
            subprocess.Popen([sys.executable, "-c", program, topic / name], stderr=subprocess.PIPE)
            for name in ("0.follow", "0.follow", "0", "0.jsonl")
        ]
        wait_until(lambda: (topic / "0").stat().st_size > 50_000, "lines come")
        mount.stop()
        assert writer.wait(PATIENCE_S) == 5
        for reader in readers:
            error = reader.communicate(timeout=PATIENCE_S)[1]
            assert (
                b"Transport endpoint is not connected" in error or b"connection abort" in error
            ), error
