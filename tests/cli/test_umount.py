"""``logfs umount`` of mounts that are in use, or dead, or closed slowly."""

import mmap
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Mounted, command, environment, is_mounted, run
from tests.mounting import kill_with_holder, wait_until

pytestmark = pytest.mark.fuse


def refusal(mounted: Mounted) -> str:
    status, out, errors = run("umount", mounted.point)
    assert (status, out, len(errors)) == (1, b"", 1)
    assert errors[0].startswith(f"logfs: {mounted.point}: in use: ")
    assert is_mounted(mounted.point)
    return errors[0]


def test_the_error_names_a_process_whose_working_directory_is_in_the_mount(
    mounted: Mounted,
) -> None:
    (mounted.point / "orders").mkdir()
    with subprocess.Popen(["sleep", "60"], cwd=mounted.point / "orders") as user:
        text = refusal(mounted)
        user.terminate()
    assert f"sleep (process {user.pid}): working directory {mounted.point}/orders;" in text
    assert f"'logfs umount --lazy {mounted.point}'" in text
    assert run("umount", mounted.point) == (0, b"", [])


def test_the_error_names_open_and_mapped_files(mounted: Mounted) -> None:
    (mounted.point / "orders").mkdir()
    with (mounted.point / "orders" / "0").open("ab") as file:
        file.write(b"a\n")
        file.flush()
        assert f"(process {os.getpid()}): {mounted.point}/orders/0 open;" in refusal(mounted)
    fixed = mounted.point / "orders" / "0@earliest..latest"
    with fixed.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 2, access=mmap.ACCESS_READ)
    assert f"(process {os.getpid()}): {fixed} mapped, {fixed} open;" in refusal(mounted)
    mapped.close()


def test_the_error_names_a_mount_inside_the_mount(mounted: Mounted, tmp_path: Path) -> None:
    inner = Mounted(tmp_path / "other", mounted.point / "orders")
    for directory in inner:
        directory.mkdir()
    log = tmp_path / "other.log"
    assert run("mount", *inner, "--background", "--log-file", log) == (0, b"", [])
    try:
        assert f"in use: {inner.point} is mounted in it;" in refusal(mounted)
    finally:
        assert run("umount", inner.point) == (0, b"", [])


def test_lazy_ends_the_daemon_with_the_last_user(mounted: Mounted) -> None:
    (mounted.point / "orders").mkdir()
    pid = mounted.pid
    with (mounted.point / "orders" / "0").open("ab") as file:
        assert run("umount", "--lazy", mounted.point) == (0, b"", [])
        assert not is_mounted(mounted.point)
        file.write(b"still there\n")
        file.flush()
        assert Path(f"/proc/{pid}").exists()
    wait_until((mounted.data / ".kafka_cleanshutdown").exists, "the daemon has stopped")
    assert run("cat", mounted.data / "orders" / "0").out == b"still there\n"


def test_dead_unmounts_only_a_dead_mount(mounted: Mounted) -> None:
    assert run("umount", "--dead", mounted.point) == (0, b"", [])
    assert is_mounted(mounted.point)
    kill_with_holder(mounted.pid)
    wait_until(lambda: not os.access(mounted.point, os.R_OK), "it is dead")
    assert run("umount", "--dead", mounted.point) == (0, b"", [])
    assert not is_mounted(mounted.point)
    assert run("umount", "--dead", mounted.point) == (0, b"", [])


def test_the_next_mount_waits_for_a_daemon_that_closes(mounted: Mounted, tmp_path: Path) -> None:
    (mounted.point / "orders").mkdir()
    pid = mounted.pid
    # umount(8) does not wait for the daemon, which cannot close anything while it is stopped.
    os.kill(pid, signal.SIGSTOP)
    subprocess.run(["umount", "-l", mounted.point], check=True)
    second = tmp_path / "second.log"
    arguments = ("mount", mounted.data, mounted.point, "--background", "--log-file", second)
    with subprocess.Popen(
        command(*arguments),
        env=environment(),
    ) as process:
        wait_until(lambda: second.exists() and "which closes it" in second.read_text(), "it waits")
        os.kill(pid, signal.SIGCONT)
        assert process.wait(60) == 0
    assert os.listdir(mounted.point) == ["orders"]
    assert f"waiting for process {pid}, which closes it" in second.read_text()
