"""``logfs reload``: a daemon gives its mount to a successor that it has started itself."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mounting import COMMAND, Mount, is_mounted, opened_store, run, wait_until
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


def test_an_open_file_continues_over_a_reload(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as mount:
        (mount.point / "orders").mkdir()
        before = mount.pid
        with open(mount.point / "orders" / "0", "ab", buffering=0) as file:
            file.write(b"first\nsec")
            result = run(*COMMAND, "reload", mount.point)
            assert not result.returncode, result
            file.write(b"ond\n")
        assert (mount.point / "orders" / "0").read_bytes() == b"first\nsecond\n"
        assert mount.pid not in (0, before)
        assert "a daemon that stopped for it" in mount.log


def test_a_killed_successor_is_started_again_by_the_holder(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as mount:
        (mount.point / "orders").mkdir()
        for _ in range(2):
            assert not run(*COMMAND, "reload", mount.point).returncode
        with open(mount.point / "orders" / "0", "ab", buffering=0) as file:
            file.write(b"first\n")
            mount.end_daemon(signal.SIGKILL)
            file.write(b"second\n")
        assert (mount.point / "orders" / "0").read_bytes() == b"first\nsecond\n"


def test_sigusr1_reloads(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as mount:
        before = mount.pid
        mount.end_daemon(signal.SIGUSR1)
        wait_until(lambda: mount.pid not in (0, before), "the old daemon has ended")
        assert "stopping for a reload" in mount.log


def test_a_writer_sees_only_a_pause(tmp_path: Path) -> None:
    stop = threading.Event()
    written = 0
    with HeldMount(tmp_path) as mount:
        path = mount.point / "orders" / "0"
        path.parent.mkdir()

        def write() -> None:
            nonlocal written
            with open(path, "ab", buffering=0) as file:
                while not stop.is_set():
                    file.write(b"%d\n" % written)
                    written += 1
                    time.sleep(0.001)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(3):
                assert not run(*COMMAND, "reload", mount.point).returncode
        finally:
            stop.set()
            writer.join()
        assert path.read_bytes() == b"".join(b"%d\n" % n for n in range(written))


def test_the_daemon_continues_if_its_successor_cannot_start(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as mount:
        (mount.point / "orders").mkdir()
        before = mount.pid
        mount.install("raise SystemExit('logfs: this version is broken')")
        result = run(*COMMAND, "reload", mount.point)
        assert result.returncode == 1
        assert b"the daemon continues" in result.stderr
        assert b"this version is broken" in result.stderr
        assert mount.pid == before
        with open(mount.point / "orders" / "0", "ab") as file:
            file.write(b"still served\n")


def test_a_mount_that_nothing_keeps_is_not_reloaded(tmp_path: Path) -> None:
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        result = run(*COMMAND, "reload", mount.point)
        assert result.returncode == 1
        assert b"nothing keeps this mount" in result.stderr
        assert os.listdir(mount.point) is not None


def test_a_read_only_mount_is_reloaded(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with opened_store(data):
        pass
    with HeldMount(tmp_path, "--read-only") as mount:
        before = mount.pid
        result = run(*COMMAND, "reload", mount.point)
        assert not result.returncode, result
        wait_until(lambda: mount.pid not in (0, before), "the old daemon has ended")


def test_no_command_waits_for_ever_for_a_daemon_that_does_not_come(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as mount, mount.without_daemon():
        commands = (["umount"], ["umount", "--dead"], ["reload"], ["status"])
        with ThreadPoolExecutor() as threads:
            results = list(threads.map(lambda words: run(*COMMAND, *words, mount.point), commands))
        assert [result.returncode for result in results] == [1, 0, 1, 2]
        assert b"umount --lazy" in results[0].stderr
        assert is_mounted(mount.point)


def test_a_mount_without_a_daemon_can_be_taken_away(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as mount:
        os.kill(mount.holder.pid, signal.SIGSTOP)
        os.kill(mount.pid, signal.SIGKILL)
        result = run(*COMMAND, "umount", "--lazy", mount.point)
        assert not result.returncode, result
        assert not is_mounted(mount.point)
        mount.end_holder()
