"""Mounts of other kinds over restarts: other options, another user, read-only, a full disk."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loopdevices import loop_device
from tests.mounting import COMMAND, PATIENCE_S, is_mounted, logfs, run, wait_until
from tests.restarts import writer
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

NOBODY = 65534
OPEN_FILES = 10_000
WRITING = 1_000
FUSE_DEVICE = Path("/dev/fuse")
_OTHER_OPTIONS = "sys.argv[2:2] = ['-o', 'fsname=another']\n"
_STOPS_WHILE_LOADING = """\
import os, signal
from logfs.log.store import LogStore
opened = LogStore.open
def stopping(*args, **named):
    os.kill(os.getpid(), signal.SIGTERM)
    return opened(*args, **named)
LogStore.open = stopping
"""


@pytest.fixture
def held(tmp_path: Path) -> HeldMount:
    """Return a mount that is not mounted yet."""
    return HeldMount(tmp_path)


@pytest.fixture
def device_for_everybody() -> Iterator[None]:
    """Give all users ``/dev/fuse``, as udev does."""
    mode = FUSE_DEVICE.stat().st_mode
    FUSE_DEVICE.chmod(mode | 0o666)
    yield
    FUSE_DEVICE.chmod(mode)


def test_changed_options_are_a_new_mount_and_open_files_end(held: HeldMount) -> None:
    with held:
        (held.point / "t").mkdir()
        file = os.open(held.point / "t/0", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(file, b"before\n")
        held.install(changes=_OTHER_OPTIONS)
        held.end_daemon(signal.SIGUSR2)
        with pytest.raises(OSError, match="not connected"):
            os.write(file, b"lost\n")
        with contextlib.suppress(OSError):
            os.close(file)
        assert "cannot be continued" in held.log
        assert (held.point / "t/0").read_bytes() == b"before\n"
        # The new mount is kept as the first one was.
        with (held.point / "t/0").open("ab", buffering=0) as kept:
            held.end_daemon()
            kept.write(b"after\n")
        assert (held.point / "t/0").read_bytes() == b"before\nafter\n"


def test_a_stop_while_another_mount_is_made_leaves_no_dead_mount(held: HeldMount) -> None:
    with held:
        held.install(changes=_OTHER_OPTIONS + _STOPS_WHILE_LOADING)
        os.kill(held.pid, signal.SIGKILL)
        held.holder.wait(PATIENCE_S)
        assert not is_mounted(held.point)


def test_status_and_meta_name_what_keeps_the_mount(held: HeldMount) -> None:
    with held:
        (held.point / "t").mkdir()
        for _ in range(2):
            kept_by = f"process {held.holder.pid}"
            assert json.loads((held.point / "t/0.meta").read_bytes())["kept_by"] == kept_by
            assert f"mount kept by: {kept_by}" in logfs("status", held.data).decode()
            assert b"logfs_mount_kept 1" in logfs("metrics", held.data)
            logfs("reload", held.point)


def test_a_daemon_notices_that_its_holder_has_ended(held: HeldMount) -> None:
    with held:
        (held.point / "t").mkdir()
        daemon = held.pid
        held.holder.kill()
        held.holder.wait()
        wait_until(lambda: "which kept the mount, has ended" in held.log, "the daemon says so")
        assert json.loads((held.point / "t/0.meta").read_bytes())["kept_by"] is None
        assert b"nothing, open files end with the daemon" in logfs("status", held.data)
        assert b"nothing keeps this mount" in run(*COMMAND, "reload", held.point).stderr
        os.kill(daemon, signal.SIGUSR2)
        wait_until(lambda: not Path(f"/proc/{daemon}").exists(), "the daemon has ended")
        assert not is_mounted(held.point)


def _as_nobody(*command: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        user=NOBODY,
        group=NOBODY,
        extra_groups=(),
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.usefixtures("device_for_everybody")
def test_the_mount_of_another_user_continues() -> None:
    with tempfile.TemporaryDirectory() as name:  # which the user can reach
        directory, stop = Path(name), Path(name) / "stop"
        directory.chmod(0o755)
        with HeldMount(directory, user=NOBODY) as held:
            with _as_nobody("mkdir", held.point / "t") as made:
                assert made.wait() == 0
            command = [sys.executable, writer.__file__, held.point / "t/0", "w", "1", "5000"]
            with _as_nobody(*command, "fsync", stop) as wrote:
                for end in (signal.SIGKILL, signal.SIGUSR2, signal.SIGUSR1):
                    held.end_daemon(end)
                stop.touch()
                count = int(wrote.communicate(timeout=PATIENCE_S)[0])
            with _as_nobody("cat", held.point / "t/0") as cat:
                lines = cat.communicate(timeout=PATIENCE_S)[0].decode().splitlines()
    assert [int(line.split()[1]) for line in lines] == list(range(1, count + 1))


def test_readers_of_a_read_only_mount_continue(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as held:
        (held.point / "t").mkdir()
        with (held.point / "t/0").open("ab") as file:
            file.write(b"one\ntwo\nthree\n")
    with (
        HeldMount(tmp_path, "--read-only") as held,
        (held.point / "t/0").open("rb", buffering=0) as growing,
        (held.point / "t/0@offset=0..offset=2").open("rb", buffering=0) as fixed,
    ):
        for line in (b"one\n", b"two\n", b"three\n"):
            assert growing.read(len(line)) == line
            held.end_daemon(signal.SIGKILL if line == b"one\n" else signal.SIGUSR2)
            assert os.pread(fixed.fileno(), 100, 0) == b"one\ntwo\n"
        assert growing.read(1) == b""


def test_open_files_outlive_daemons_on_a_full_disk(tmp_path: Path) -> None:
    with (
        loop_device(tmp_path, 16) as device,
        HeldMount(tmp_path, data=Path(device.point, "data")) as held,
    ):
        (held.point / "t").mkdir()
        path = held.point / "t/0"
        appended = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        with path.open("rb", buffering=0) as reader:
            os.write(appended, b"first\nhalf ")
            assert reader.read(6) == b"first\n"
            device.fill()
            for end in (signal.SIGKILL, signal.SIGUSR2, signal.SIGKILL):
                held.end_daemon(end)
                with pytest.raises(OSError, match="No space left"):
                    os.write(appended, b"x" * 100_000 + b"\n")
            device.make_room()
            os.write(appended, b"whole\n")
            assert reader.read(100) == b"half whole\n"
        with contextlib.suppress(OSError):  # it reports the earlier failure
            os.close(appended)
        assert path.read_bytes() == b"first\nhalf whole\n"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Allow this process to open ten thousand files and a few more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * OPEN_FILES, max(before[1], 2 * OPEN_FILES)))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.long
@pytest.mark.usefixtures("many_descriptors")
def test_ten_thousand_open_files_continue(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as held, contextlib.ExitStack() as stack:
        topic, views = held.point / "t", ("", ".tsv", ".follow", "@offset=0", "@earliest..latest")
        topic.mkdir()
        (topic / "9").touch()
        for number in range(10):
            with (topic / str(number)).open("ab") as file:
                file.write(b"key\tfirst\n")
        readers = [
            (stack.enter_context((topic / f"{n % 10}{views[n % 5]}").open("rb", buffering=0)), n)
            for n in range(OPEN_FILES - WRITING)
        ]
        writers = [
            stack.enter_context((topic / str(n % 10)).open("ab", buffering=0))
            for n in range(WRITING)
        ]
        for number, end in enumerate((signal.SIGKILL, signal.SIGUSR2, signal.SIGUSR1)):
            for writer in writers:
                writer.write(b"half ")
            held.end_daemon(end)
            for writer in writers:
                writer.write(b"%d\n" % number)
            for reader, n in readers:
                expected = b"\\N\tkey" if n % 5 == 1 else b"key\tfirst"
                assert os.pread(reader.fileno(), 10, 0).startswith(expected), reader.name
        for number in range(10):
            lines = (topic / str(number)).read_bytes().splitlines()[1:]
            assert sorted(lines) == sorted([b"half 0", b"half 1", b"half 2"] * (WRITING // 10))
