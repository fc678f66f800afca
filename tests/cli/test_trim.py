"""``logfs trim``: under the lock, and by the daemon that owns the directory."""

import json
import os
from pathlib import Path

import pytest

from logfs.log import names
from tests.cli.conftest import Call, Mounted, fill, run
from tests.mounting import kill_with_holder, wait_until

LINES = b"".join(b"%d\n" % number for number in range(10))


@pytest.fixture
def trimmed(logfs: Call, tmp_path: Path) -> Path:
    """A topic of two partitions, in segments of a batch each."""
    data = tmp_path / "data"
    data.mkdir()
    settings = ["--config", "internal.segment.bytes=100", "--partitions", "2"]
    logfs("topic", "create", data / "orders", *settings)
    for n in range(10):
        fill(data, {"orders/0": b"%d\n" % n})
    return data


def text(data: Path, name: str = "orders/0") -> bytes:
    outcome = run("cat", data / name)
    assert outcome.status == 0, outcome
    return outcome.out


def test_trim_deletes_the_records_of_a_partition_before_a_point(logfs: Call, trimmed: Path) -> None:
    status, out, errors = logfs("trim", trimmed / "orders" / "0@offset=4")
    assert (status, errors) == (0, [])
    assert out == b"orders/0 starts at offset 4, 4 offsets deleted\n4 segments deleted\n"
    assert text(trimmed) == LINES[8:]
    again = logfs("trim", trimmed / "orders" / "0@offset=3")
    assert again == (0, b"orders/0 starts at offset 4, nothing before that\n", [])


def test_trim_of_a_topic_trims_every_partition(logfs: Call, trimmed: Path) -> None:
    status, out, _ = logfs("trim", trimmed / "orders@latest", "--json")
    assert status == 0
    assert [(x["topic"], x["partition"], x["log_start_offset"]) for x in json.loads(out)] == [
        ("orders", 0, 10),
        ("orders", 1, 0),
    ]
    assert text(trimmed) == b""


def test_now_removes_the_files(logfs: Call, trimmed: Path) -> None:
    path = trimmed / "orders" / "0@offset=4"
    _, out, _ = logfs("trim", path, "--now")
    assert out.splitlines()[1] == b"4 segments deleted, 276B removed"
    assert not [x for x in os.listdir(trimmed / "orders-0") if x.endswith(".deleted")]
    logfs("trim", trimmed / "orders" / "0@offset=6")
    assert [x for x in os.listdir(trimmed / "orders-0") if x.endswith(".deleted")]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "expected a partition, TOPIC/PARTITION@FROM, or all of a topic, TOPIC@FROM"),
        ("orders", "expected a partition, TOPIC/PARTITION@FROM"),
        ("orders/0", "expected one @FROM, the first record to keep"),
        ("orders/0@1..2", "expected one @FROM"),
        ("orders/0@soon", "soon"),
        ("orders/0@offset=11", "offset 11 is outside the log, which holds [0, 10)"),
        ("orders/0@2999-01-01", "has not come yet, so every record lies before it"),
        ("orders@offset=1", "offset 1 is outside the log, which holds [0, 0)"),
        ("orders/5@earliest", "topic orders has no partition 5"),
        ("nix/0@earliest", "no topic nix"),
        ("compacted/0@latest", "compacted/0: its cleanup.policy is compact, so records are not"),
    ],
)
def test_refusals(logfs: Call, trimmed: Path, address: str, reason: str) -> None:
    logfs("topic", "create", trimmed / "compacted", "--config", "cleanup.policy=compact")
    path = str(trimmed / address)
    status, out, errors = logfs("trim", path)
    assert (status, out, len(errors)) == (1, b"", 1)
    assert errors[0].startswith(f"logfs: {path}: ")
    assert reason in errors[0]
    assert text(trimmed) == LINES


def test_the_help_has_the_points(logfs: Call) -> None:
    out = logfs("trim", "--help").out.decode()
    assert "@-15m" in out
    assert "@earliest..latest " not in out.split("FROM, the first record to keep")[1]


@pytest.mark.fuse
def test_a_daemon_trims_its_directory(mounted: Mounted) -> None:
    run("topic", "create", mounted.data / "orders", "--config", "internal.segment.bytes=100")
    path = mounted.point / "orders" / "0"
    for n in range(10):
        with path.open("ab") as file:
            file.write(b"%d\n" % n)
    inode = os.stat(path).st_ino
    with path.with_name("0@earliest..latest").open("rb") as fixed:
        # Through the data directory and through the mount point.
        for place, offset in ((mounted.data, 4), (mounted.point, 6)):
            outcome = run("trim", place / "orders" / f"0@offset={offset}")
            assert (outcome.status, outcome.errors) == (0, [])
            assert path.read_bytes() == text(mounted.data) == LINES[2 * offset :]
        outcome = run("trim", mounted.data / "orders@offset=8", "--now")
        assert outcome.out == (
            b"orders/0 starts at offset 8, 2 offsets deleted\n2 segments deleted\n"
        )
        assert "552B are still read through open names with an end" in outcome.errors[0]
        assert fixed.read() == LINES
    assert (os.stat(path).st_ino, os.stat(path).st_size) == (inode, len(LINES))
    # Within a second the mount gives the same answer for the earliest record again.
    fixed_now = path.with_name("0@earliest..latest")
    wait_until(lambda: fixed_now.read_bytes() == LINES[16:], "the name is resolved again")
    refused = run("trim", mounted.point / "orders" / "0@offset=99")
    assert refused.status == 1
    assert "offset 99 is outside the log, which holds [8, 10)" in refused.errors[0]


@pytest.mark.fuse
def test_trim_ignores_the_socket_of_a_dead_daemon(mounted: Mounted) -> None:
    run("topic", "create", mounted.data / "orders")
    socket = mounted.data / names.CONTROL_SOCKET
    assert socket.is_socket()
    assert run("umount", mounted.point).status == 0
    assert not socket.exists()
    assert run("mount", mounted.data, mounted.point, "--background").status == 0
    kill_with_holder(mounted.pid)
    assert run("umount", mounted.point).status == 0
    assert socket.is_socket()
    assert run("topic", "create", mounted.data / "other") == (0, b"", [])
    assert run("trim", mounted.data / "orders" / "0@latest").status == 0
    assert run("mount", mounted.data, mounted.point, "--background").status == 0
    assert run("trim", mounted.data / "orders" / "0@latest").status == 0


@pytest.mark.fuse
def test_trim_refuses_a_read_only_mount(mounted: Mounted, tmp_path: Path) -> None:
    run("topic", "create", mounted.data / "orders")
    assert run("umount", mounted.point).status == 0
    arguments = (mounted.data, mounted.point, "--background", "--read-only")
    assert run("mount", *arguments).status == 0
    assert not (mounted.data / names.CONTROL_SOCKET).exists()
    refused = run("trim", mounted.point / "orders" / "0@latest")
    assert (refused.status, refused.errors[0].split(": ")[-1]) == (
        1,
        "the mount is read-only, its daemon changes nothing",
    )
    run("umount", mounted.point)
