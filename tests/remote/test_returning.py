"""A machine that comes back: what ``logfs remote diverged``, ``rejoin`` and ``promote`` do."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.dying import dying_variables
from tests.mounting import COMMAND, Mount, environment, logfs, wait_until
from tests.remote.servers import Bucket
from tests.remote.test_promote import (
    SETTINGS,
    fresh_mount,
    promote,
    refusal,
    wait_until_sent,
)
from tests.remote.test_tiered_mount import append, remote_of, text

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.usefixtures("bucket_environment"),
]

LOST = b'{"key":"k1","value":"one"}\n{"key":"k2","value":"two"}\n'


@contextmanager
def continued(tmp_path: Path, bucket: Bucket) -> Iterator[tuple[Mount, Mount]]:
    """Yield the mount of the old owner, which alone has some records, and that of the new one."""
    with fresh_mount(tmp_path / "a", bucket) as first:
        logfs("topic", "create", str(first.point / "orders"), *SETTINGS)
        file = first.point / "orders" / "0"
        append(file, text(0, 30_000))
        wait_until(lambda: remote_of(file)["segments"] > 1, "segments are copied")
        wait_until_sent(file)
        promote(bucket, tmp_path / "b" / "data")
        append(first.point / "orders" / "0.jsonl", LOST)
        append(file, b"unfinished")
        wait_until(lambda: bool(remote_of(file)["stopped"]), "it is fenced")
        mount = Mount(tmp_path / "b" / "data", tmp_path / "b" / "mnt", variables=bucket.environment)
        with mount as second:
            other = second.point / "orders" / "0"
            append(other, text(30_000, 20_000))
            wait_until_sent(other)
            yield first, second


def diverged(*arguments: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(logfs("remote", "diverged", "--json", *arguments))
    return found


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def values(lines: bytes) -> list[str]:
    return [json.loads(line)["value"] for line in lines.splitlines()]


def test_what_a_fenced_machine_alone_has_is_shown_and_copied(
    tmp_path: Path, bucket: Bucket
) -> None:
    with continued(tmp_path, bucket) as (first, second):
        data, lost = first.data, tmp_path / "lost"
        (one,) = diverged(first.point)["partitions"]
        assert (one["topic"], one["first_offset"]) == ("orders", 30_000)
        first.stop()
        (one,) = diverged(data)["partitions"]
        assert (one["first_offset"], one["end_offset"]) == (30_000, 30_003)
        address = f"{data}/orders/0@offset=30000"
        assert address in logfs("remote", "diverged", str(data)).decode()
        assert logfs("cat", address) == b"one\ntwo\nunfinished\n"
        before = files_of(data / "orders-0")
        logfs("remote", "diverged", str(data), "--out", str(lost))
        assert files_of(data / "orders-0") == before
        assert "it is not empty" in refusal("remote", "diverged", data, "--out", lost)
        lines = (lost / "orders-0.jsonl").read_bytes()
        append(second.point / "orders" / "0.jsonl", lines)
        everything = (second.point / "orders" / "0").read_bytes()
        assert everything == text(0, 50_000) + b"one\ntwo\nunfinished\n"
        again = (second.point / "orders" / "0@offset=50000.jsonl").read_bytes()
        assert again == lines.replace(b'"offset":3000', b'"offset":5000')


def test_a_machine_returns_and_continues_the_logs(tmp_path: Path, bucket: Bucket) -> None:
    with continued(tmp_path, bucket) as (first, second):
        data, other = first.data, second.point / "orders" / "0"
        assert f"serves it at {first.point}" in refusal("remote", "rejoin", data)
        first.stop()
        told = refusal("promote", bucket.url, data, "--endpoint", bucket.endpoint)
        assert f"'logfs remote rejoin {data}' keeps them aside first" in told
        assert "1 partition as in the store" in logfs("remote", "rejoin", str(data)).decode()
        (kept,) = tmp_path.glob("a/data.diverged-*")
        assert values((kept / "orders-0.jsonl").read_bytes()) == ["one", "two", "unfinished"]
        assert logfs("cat", str(data / "orders" / "0")) == text(0, 50_000)
        assert not diverged(data)["partitions"]

        append(other, b"meanwhile\n")
        wait_until_sent(other)
        found = json.loads(logfs("promote", bucket.url, str(data), "--json"))
        assert found["problems"] == []
        assert "it owns its store" in refusal("remote", "diverged", data)
        first.start()
        file = first.point / "orders" / "0"
        append(file, b"continued\n")
        assert file.read_bytes() == text(0, 50_000) + b"meanwhile\ncontinued\n"
        wait_until_sent(file)
        append(other, b"too late\n")
        wait_until(lambda: bool(remote_of(other)["stopped"]), "the other one is fenced")
    logfs("verify", str(data))


@pytest.mark.parametrize(
    ("suffix", "is_behind"),
    [("logfs.segments", False), (".log", True), ("leader-epoch-checkpoint", False)],
)
def test_a_rejoin_that_is_killed_is_completed_by_the_same(
    tmp_path: Path, bucket: Bucket, suffix: str, is_behind: bool
) -> None:
    with continued(tmp_path, bucket) as (first, _):
        first.stop()
        data, out = first.data, tmp_path / "kept"
        marker = tmp_path / "died"
        variables = dying_variables(
            tmp_path / "dying", marker, suffix=suffix, at=1, is_behind=is_behind
        )
        command = [*COMMAND, "remote", "rejoin", str(data), "--out", str(out)]
        killed = subprocess.run(command, env=environment(**variables), check=False)
        assert killed.returncode == -signal.SIGKILL
        told = refusal("cat", data / "orders" / "0")
        assert "'logfs remote rejoin' as before completes it" in told
        subprocess.run(command, env=environment(), check=True)
        assert values((out / "orders-0.jsonl").read_bytes()) == ["one", "two", "unfinished"]
        assert logfs("cat", str(data / "orders" / "0")) == text(0, 50_000)
