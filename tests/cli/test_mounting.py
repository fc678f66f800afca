"""``logfs mount`` and ``logfs umount``, and every command through a mount."""

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import (
    Call,
    Mounted,
    Outcome,
    command,
    environment,
    fill,
    is_mounted,
    run,
    take_away,
)
from tests.mounting import holder_of, kill_with_holder


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until something holds, half a minute at most."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def point(tmp_path: Path) -> Path:
    """An empty directory to mount at."""
    path = tmp_path / "mnt"
    path.mkdir()
    return path


# Mounting


@pytest.mark.fuse
def test_background_returns_when_the_mount_answers(mounted: Mounted) -> None:
    assert is_mounted(mounted.point)
    (mounted.point / "orders").mkdir()
    with (mounted.point / "orders" / "0").open("a") as file:
        file.write("hello\n")
    assert (mounted.point / "orders" / "0").read_text() == "hello\n"
    assert os.getsid(mounted.pid) == holder_of(mounted.pid)
    assert Path(f"/proc/{mounted.pid}/cwd").readlink() == Path("/")
    for descriptor in range(3):
        assert Path(f"/proc/{mounted.pid}/fd/{descriptor}").readlink() == Path(os.devnull)


@pytest.mark.fuse
def test_the_log_goes_to_a_file(mounted: Mounted, tmp_path: Path) -> None:
    assert f"INFO {mounted.point} is mounted" in (tmp_path / "mount.log").read_text()


@pytest.mark.fuse
def test_umount_returns_when_the_directory_is_free(mounted: Mounted, logfs: Call) -> None:
    (mounted.point / "orders").mkdir()
    assert run("umount", mounted.point) == (0, b"", [])
    assert not is_mounted(mounted.point)
    assert not (mounted.data / "logfs.daemon").exists()
    assert (mounted.data / ".kafka_cleanshutdown").exists()
    assert logfs("topic", "delete", mounted.data / "orders") == (0, b"", [])


@pytest.mark.fuse
def test_a_second_mount_is_refused(mounted: Mounted, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    status, _, errors = run("mount", mounted.data, other, "--background")
    assert status == 1
    assert f"locked by process {mounted.pid}" in errors[-1]
    status, _, errors = run("mount", other, mounted.point, "--background")
    assert status == 1
    assert f"{mounted.data} is mounted there already" in errors[-1]


@pytest.mark.fuse
def test_the_mount_of_a_dead_daemon_is_replaced(mounted: Mounted, tmp_path: Path) -> None:
    run("topic", "create", mounted.data / "orders")
    path = mounted.point / "orders" / "0"
    with path.open("a") as file:
        file.write("kept\n")
    first = mounted.pid
    kill_with_holder(first)
    wait_until(lambda: run("cat", path).status == 1)
    dead = run("cat", path)
    assert len(dead.errors) == 1
    assert "the daemon of this mount has died" in dead.errors[0]
    assert run("cat", mounted.data / "orders" / "0").out == b"kept\n"
    log = tmp_path / "second.log"
    arguments = ("mount", mounted.data, mounted.point, "--background", "--log-file", log)
    assert run(*arguments) == (0, b"", [])
    assert mounted.pid != first
    assert run("cat", path) == (0, b"kept\n", [])
    assert "no clean shutdown" in log.read_text()


@pytest.mark.fuse
def test_umount_removes_the_mount_of_a_dead_daemon(mounted: Mounted) -> None:
    kill_with_holder(mounted.pid)
    wait_until(lambda: run("topic", "list", mounted.point).status == 1)
    assert run("umount", mounted.point) == (0, b"", [])
    assert not is_mounted(mounted.point)


@pytest.mark.fuse
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_foreground_stops_cleanly(tmp_path: Path, point: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with subprocess.Popen(
        command("mount", data, point), stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stderr is not None
        assert any(f"INFO {point} is mounted\n" in line.decode() for line in process.stderr)
        assert run("topic", "create", data / "orders").status == 0
        process.send_signal(number)
        assert process.wait(30) == 0
        assert number.name in process.stderr.read().decode()
    assert not is_mounted(point)
    assert (data / ".kafka_cleanshutdown").exists()


@pytest.mark.fuse
def test_hangup_reopens_the_log_file(mounted: Mounted, tmp_path: Path) -> None:
    log = tmp_path / "mount.log"
    log.rename(tmp_path / "mount.log.1")
    os.kill(mounted.pid, signal.SIGHUP)
    wait_until(lambda: log.exists() and "reopened the log after SIGHUP" in log.read_text())
    assert (mounted.point / ".segments").is_dir()


@pytest.mark.fuse
@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_closed_terminal_ends_the_mount_unless_nohup_protects_it(
    tmp_path: Path, point: Path, *, is_ignored: bool
) -> None:
    mounted, log = Mounted(tmp_path / "data", point), tmp_path / "log"
    mounted.data.mkdir()
    arguments = command("mount", mounted.data, point, "--log-file", log)
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover - another program from here on
        signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
        os.execve(arguments[0], arguments, environment())
    try:
        wait_until(lambda: log.exists() and "is mounted" in log.read_text())
        os.close(terminal)
        if is_ignored:
            os.kill(pid, signal.SIGHUP)
            wait_until(lambda: "reopened" in log.read_text())
            assert is_mounted(point)
            os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        take_away(mounted)
    assert not is_mounted(point)
    assert (mounted.data / ".kafka_cleanshutdown").exists()
    assert log.read_text().endswith("INFO stopped\n")


@pytest.mark.fuse
def test_a_read_only_mount_writes_nothing(tmp_path: Path, point: Path) -> None:
    data = tmp_path / "data"
    fill(data, {"orders/0": b"a\n"})
    mounted = Mounted(data, point)
    log = tmp_path / "log"
    outcome = run("mount", data, point, "--read-only", "--background", "--log-file", log)
    try:
        assert outcome == (0, b"", [])
        assert run("cat", point / "orders" / "0").out == b"a\n"
        status, _, errors = run("topic", "create", point / "new")
        assert status == 1
        refusal = "the mount is read-only, its daemon changes nothing"
        assert errors == [f"logfs: {point}/new: {refusal}"]
        # No process owns the data directory, so there it can be done.
        assert run("topic", "create", data / "new").status == 0
    finally:
        take_away(mounted)


@pytest.mark.fuse
def test_settings_of_the_store(tmp_path: Path, point: Path) -> None:
    mounted = Mounted(tmp_path / "data", point)
    mounted.data.mkdir()
    log = tmp_path / "log"
    outcome = run(
        *("mount", mounted.data, point, "--background", "--log-file", log),
        *("-o", "create,log.retention.ms=70000000000", "--config", "num.partitions=3"),
    )
    try:
        assert outcome == (0, b"", [])
        assert run("topic", "create", mounted.data / "orders") == (0, b"", [])
        assert sorted(path.name for path in (point / "orders").iterdir()) == ["0", "1", "2"]
        shown = json.loads(run("topic", "describe", point / "orders", "--json", "--all").out)
        assert shown["effective_config"]["retention.ms"] == "70000000000"
        assert shown["config"] == {}
        assert run("topic", "create", point / "small", "--partitions", "2") == (0, b"", [])
        assert sorted(path.name for path in (point / "small").iterdir()) == ["0", "1"]
        assert run("topic", "list", point).out == b"orders\nsmall\n"
    finally:
        take_away(mounted)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["data", "data"], "{0}/data: holds logs, which a mount would hide; expected 'logfs mount"),
        (["mnt", "data"], "{0}/data: holds logs, which a mount would hide; expected 'logfs mount"),
        (["other", "mnt"], "{0}/other: holds files but no logs; expected a data directory"),
        (["none/data", "mnt"], "{0}/none/data: no such directory; 'mkdir {0}/none/data' makes an"),
        (["data", "mnt", "-o", "alow_other"], "mount option alow_other: did you mean allow_other?"),
        (["data", "mnt", "--config", "a=b"], "'a': no such store setting"),
    ],
)
def test_mount_refuses_other_directories(
    logfs: Call, tmp_path: Path, point: Path, arguments: list[str], reason: str
) -> None:
    fill(tmp_path / "data", {"orders/0": b"a\n"})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    data, where, *options = arguments
    status, out, errors = logfs("mount", tmp_path / data, tmp_path / where, *options)
    assert (status, out, len(errors)) == (1, b"", 1)
    assert errors[0].startswith(f"logfs: {reason.format(tmp_path)}")
    assert not is_mounted(point)


@pytest.mark.fuse
def test_mount_does_not_create_a_missing_data_directory(tmp_path: Path, point: Path) -> None:
    mounted = Mounted(tmp_path / "mistyped", point)
    outcome = run("mount", *mounted, "--background", "--log-file", tmp_path / "log")
    take_away(mounted)
    reason = f"no such directory; 'mkdir {mounted.data}' makes an empty one"
    assert outcome == (1, b"", [f"logfs: {mounted.data}: {reason}"])
    assert not mounted.data.exists()


@pytest.mark.slow
def test_mount_refuses_a_missing_mount_point(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"orders/0": b"a\n"})
    arguments = ("mount", tmp_path / "data", tmp_path / "none")
    for options in ((), ("--background", "--log-file", tmp_path / "log")):
        status, _, errors = run(*arguments, *options)
        assert status == 1
        assert errors[-1].startswith(f"logfs: {tmp_path}/none: ")
    assert "existing directory" in (tmp_path / "log").read_text()


def test_a_log_file_that_cannot_be_written(tmp_path: Path, point: Path) -> None:
    log = tmp_path / "none" / "log"
    (tmp_path / "data").mkdir()
    status, _, errors = run("mount", tmp_path / "data", point, "--background", "--log-file", log)
    assert (status, len(errors)) == (1, 1)
    assert errors[0] == f"logfs: {log}: No such file or directory"


def test_umount_of_what_is_not_mounted(logfs: Call, point: Path) -> None:
    assert logfs("umount", point) == (1, b"", [f"logfs: {point}: logfs is not mounted there"])


# The same commands wherever the path begins


@pytest.mark.fuse
@pytest.mark.parametrize("where", ["data", "point"])
def test_topics_through_a_mount(mounted: Mounted, logfs: Call, where: str) -> None:
    root: Path = getattr(mounted, where)
    orders = root / "orders"
    done = Outcome(0, b"", [])
    config = ("--config", "min.compaction.lag.ms=5", "--config", "max.compaction.lag.ms=10")
    assert logfs("topic", "create", orders, "--partitions", "2", *config) == done
    assert sorted(os.listdir(mounted.point / "orders")) == ["0", "1"]
    # Both rise together: on the way the minimum must not be above the maximum.
    config = ("--config", "min.compaction.lag.ms=50", "--config", "max.compaction.lag.ms=60")
    assert logfs("topic", "alter", orders, *config, "--partitions", "3") == done
    assert logfs("topic", "alter", orders, "--config", "flush.ms=9") == done
    assert logfs("topic", "alter", orders, "--delete", "flush.ms") == done
    assert sorted(os.listdir(mounted.point / "orders")) == ["0", "1", "2"]
    shown = json.loads(logfs("topic", "describe", orders, "--json").out)
    assert shown["config"] == {"min.compaction.lag.ms": "50", "max.compaction.lag.ms": "60"}
    assert len(shown["partitions"]) == 3
    value = os.getxattr(mounted.point / "orders", "user.logfs.max.compaction.lag.ms")
    assert value == b"60"
    assert logfs("topic", "create", root / "__hidden") == done
    assert logfs("topic", "list", root).out == b"__hidden\norders\n"
    assert logfs("topic", "delete", orders) == done
    assert os.listdir(mounted.point) == []


@pytest.mark.fuse
@pytest.mark.parametrize("where", ["data", "point"])
def test_refusals_through_a_mount(mounted: Mounted, logfs: Call, where: str) -> None:
    root: Path = getattr(mounted, where)
    logfs("topic", "create", root / "orders", "--partitions", "2")
    for arguments, reason in (
        (["create", "orders"], "topic orders exists already"),
        (["create", "a b"], "illegal topic name 'a b'"),
        (["create", "new", "--config", "x=1"], "'x': no such topic setting"),
        (["create", "new", "--config", "flush.ms=x"], "flush.ms='x': expected"),
        (["describe", "nix"], "no topic nix"),
        (["alter", "nix", "--partitions", "2"], "no topic nix"),
        (["alter", "orders", "--partitions", "1"], "topic orders has 2 partitions; it can grow"),
        (["alter", "orders", "--delete", "flush.ms"], "flush.ms is not set for topic orders"),
        (["delete", "nix"], "no topic nix"),
    ):
        name, topic, *options = arguments
        status, out, errors = logfs("topic", name, root / topic, *options)
        assert (status, out) == (1, b"")
        assert len(errors) == 1
        assert errors[0].startswith(f"logfs: {root / topic}: {reason}")
    assert os.listdir(mounted.point) == ["orders"]


@pytest.mark.fuse
def test_describe_is_the_same_with_and_without_a_mount(mounted: Mounted, logfs: Call) -> None:
    orders = mounted.data / "orders"
    logfs("topic", "create", orders, "--partitions", "2", "--config", "retention.ms=1000")
    (mounted.point / "orders" / "0").open("a").close()
    through = logfs("topic", "describe", orders, "--all")
    assert through.status == 0
    assert logfs("topic", "describe", mounted.point / "orders", "--all").out == through.out
    logfs("umount", mounted.point)
    assert logfs("topic", "describe", orders, "--all") == through


@pytest.mark.fuse
def test_cat_through_a_mount(mounted: Mounted, logfs: Call) -> None:
    (mounted.point / "orders").mkdir()
    lines = b"".join(b"line %d\n" % n for n in range(300_000))
    with (mounted.point / "orders" / "0").open("ab") as file:
        file.write(lines)
    for root in mounted:
        for name in ("orders/0", "orders"):
            assert logfs("cat", root / name) == (0, lines, [])
        assert logfs("cat", root / "orders" / "0@offset=-1.tsv").out == b"\\N\tline 299999\n"
        assert logfs("cat", root / ".segments/orders-0/00000000000000000000.txt").out == lines
        for name, reason in (
            ("orders/1", "topic orders has no partition 1"),
            ("orders/0@-1y", "'-1y': a duration ends in one of the units"),
            ("orders/x", "'x': no such name"),
            ("orders/0/1", "a partition is a file: nothing lies below orders/0"),
            ("nix/0", "no topic nix"),
        ):
            status, out, errors = logfs("cat", root / name)
            assert (status, out, len(errors)) == (1, b"", 1)
            assert errors[0].startswith(f"logfs: {root / name}: {reason}")


@pytest.mark.fuse
def test_relative_paths_below_a_mount(mounted: Mounted) -> None:
    (mounted.point / "orders").mkdir()
    with (mounted.point / "orders" / "0").open("a") as file:
        file.write("a\nb\n")
    assert run("cat", "0@offset=1", cwd=mounted.point / "orders") == (0, b"b\n", [])
    assert run("cat", "../orders/0", cwd=mounted.point / "orders") == (0, b"a\nb\n", [])
