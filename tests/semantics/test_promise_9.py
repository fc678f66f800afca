"""Promise 9 of SEMANTICS.md, with a holder; each docstring is the sentence that is run."""

import contextlib
import mmap
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.long import KILLS
from tests.mounting import COMMAND, is_mounted, logfs, run
from tests.processes import PATIENCE_S, wait_until
from tests.restarts.held import HeldMount
from tests.restarts.programs import check_lines, start_writers

pytestmark = pytest.mark.fuse
SEEDS = [1, pytest.param(2, marks=pytest.mark.long)]
"""Other moments only where kills are hundreds anyway."""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[HeldMount]:
    """Return a mount with a topic of three partitions."""
    with HeldMount(tmp_path) as mount:
        (mount.point / "t").mkdir()
        for partition in ("0", "1", "2"):
            (mount.point / "t" / partition).touch()
        yield mount


def end_daemons(mount: HeldMount, times: int, chance: random.Random) -> None:
    """Kill and restart at random moments, sometimes while the successor still starts."""
    for _ in range(times):
        time.sleep(chance.random() * 0.5)
        mount.signal_daemon(chance.choice((signal.SIGKILL, signal.SIGUSR2)))
        if chance.random() < 0.3:
            time.sleep(chance.random() * 0.5)
            mount.signal_daemon(signal.SIGKILL)
        mount.wait_for_next()


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("seed", SEEDS)
def test_writers_lose_no_line_and_write_none_twice(
    held: HeldMount, tmp_path: Path, seed: int, kills: int
) -> None:
    """No line that programs write is lost, stored twice, cut or out of order, however often the
    daemon is killed or restarted meanwhile.
    """
    writers = start_writers(held.point, tmp_path / "stop")

    end_daemons(held, kills, random.Random(seed))
    (tmp_path / "stop").touch()
    ended = [process.communicate(timeout=60) for process in writers]

    assert [errors for _, errors in ended] == [""] * len(writers)
    counts = [int(out) for out, _ in ended]
    assert min(counts) > 0
    check_lines(held.point, counts)


def test_readers_continue(held: HeldMount, tmp_path: Path) -> None:
    """Readers continue: `tail -f`, `cat orders/0.follow`, poll(2), and fixed names that are open or
    mapped.
    """
    path, follow = held.point / "t" / "0", held.point / "t" / "0.follow"
    outputs = [tmp_path / name for name in ("tail", "follow")]
    commands = (["tail", "-n", "+1", "-f", str(path)], ["cat", str(follow)])
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("ab", buffering=0))
        file.write(b"first\n")
        fixed = stack.enter_context((held.point / "t" / "0@offset=0..offset=1").open("rb"))
        mapped = stack.enter_context(mmap.mmap(fixed.fileno(), 0, prot=mmap.PROT_READ))
        for command, output in zip(commands, outputs, strict=True):
            into = stack.enter_context(output.open("wb"))
            reader = stack.enter_context(subprocess.Popen(command, stdout=into))
            stack.callback(reader.terminate)
        wait_until(lambda: all(o.read_bytes() == b"first\n" for o in outputs), "both read")
        followed = stack.enter_context(follow.open("rb", buffering=0))
        assert followed.read(100) == b"first\n"
        poller = select.poll()
        poller.register(followed, select.POLLIN)

        for number in (signal.SIGKILL, signal.SIGUSR2, signal.SIGKILL):
            held.signal_daemon(number)
            file.write(f"after {number}\n".encode())
            assert poller.poll(30_000)
            assert followed.read(100) == f"after {number}\n".encode()
            assert mapped.read(6) == b"first\n" == os.pread(fixed.fileno(), 100, 0)
            mapped.seek(0)
        whole = path.read_bytes()

        wait_until(lambda: all(o.read_bytes() == whole for o in outputs), "both have read all")


def test_half_a_line_continues_after_a_crash(held: HeldMount) -> None:
    """An unfinished line stays unfinished, and the program completes it."""
    path = held.point / "t" / "0"
    with path.open("ab", buffering=0) as file:
        file.write(b"one\ntw")
        held.signal_daemon(signal.SIGKILL)
        file.write(b"o\nth")
        held.signal_daemon(signal.SIGUSR2)
        file.write(b"ree\n")

        assert path.read_bytes() == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("kills", KILLS)
def test_directories_are_made_and_removed_once(held: HeldMount, kills: int) -> None:
    """mkdir(2), rmdir(2), open(2) and setxattr(2) are done once."""
    program = (
        f"import os, sys\nfor n in range({12 * kills}):\n    path = sys.argv[1] + '/n%d' % n\n"
        "    os.mkdir(path)\n    os.setxattr(path, 'user.logfs.retention.ms', b'1000000')\n"
        "    open(f'{path}/0', 'a').close()\n    n % 2 or os.rmdir(path)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(held.point)]) as process:
        chance = random.Random(3)
        for _ in range(kills):
            if process.poll() is None:
                held.end_daemon(signal.SIGKILL)
                time.sleep(chance.random() * 0.1)
        process.wait(PATIENCE_S)
    assert process.returncode == 0
    kept = [f"n{n}" for n in range(1, 12 * kills, 2)]
    assert sorted(os.listdir(held.point)) == sorted(["t", *kept])


@pytest.mark.parametrize("how", ["a signal", "umount"])
def test_the_mount_ends_with_a_stop(tmp_path: Path, how: str) -> None:
    """SIGTERM, `systemctl stop` and `logfs umount` end the mount."""
    with HeldMount(tmp_path) as held:
        (held.point / "t").mkdir()
        held.end_daemon(signal.SIGKILL)
        path = held.point / "t" / "0"
        with path.open("ab", buffering=0) as file:
            file.write(b"line\n")
            if how == "umount":
                assert run(*COMMAND, "umount", str(held.point)).returncode == 1  # in use
        if how == "umount":
            logfs("umount", held.point)
            assert not is_mounted(held.point)
            held.holder.wait(PATIENCE_S)  # a signal in its last moments would end it
