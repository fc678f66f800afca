"""A machine is lost, and another one continues its logs by ``logfs promote``."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.mounting import COMMAND, Mount, environment, logfs, wait_until
from tests.remote.servers import Bucket
from tests.remote.test_tiered_mount import append, remote_of, text

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.usefixtures("bucket_environment"),
]

FRESHNESS_MS = 300
SETTINGS = (
    "--config=remote.storage.enable=true",
    "--config=retention.ms=-1",
    "--config=local.retention.bytes=0",
    "--config=segment.bytes=1048576",
)


def fresh_mount(directory: Path, bucket: Bucket) -> Mount:
    """Return a mount whose directory has a journal; not started."""
    data = directory / "data"
    data.mkdir(parents=True)
    lines = f"remote.log.manager.task.interval.ms=100\nfreshness.ms={FRESHNESS_MS}\n"
    (data / "logfs.remote").write_text(bucket.properties + lines)
    return Mount(data, directory / "mnt", variables=bucket.environment)


def is_sent(file: Path, since_ms: int) -> bool:
    missing = remote_of(file)["missing_since"]
    return missing is not None and missing > since_ms  # None: it was not looked at yet


def wait_until_sent(*files: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    wait_until(lambda: all(is_sent(file, now_ms) for file in files), "all is in the store")


def promote(bucket: Bucket, data: Path) -> dict[str, object]:
    """Promote a directory by the command; returns what it prints as JSON."""
    setting = "--config=remote.log.manager.task.interval.ms=100"
    found: dict[str, object] = json.loads(
        logfs("promote", bucket.url, str(data), "--endpoint", bucket.endpoint, "--json", setting)
    )
    assert f"freshness.ms={FRESHNESS_MS}\n" in (data / "logfs.remote").read_text()
    return found


def test_another_machine_continues_with_all_that_is_older_than_the_freshness(
    tmp_path: Path, bucket: Bucket
) -> None:
    with fresh_mount(tmp_path / "a", bucket) as first:
        for topic in ("orders", "quiet"):
            logfs("topic", "create", str(first.point / topic), *SETTINGS)
        orders, quiet = first.point / "orders" / "0", first.point / "quiet" / "0"
        append(quiet, b"the only one\n")
        append(orders, text(0, 40_000))
        wait_until(lambda: remote_of(orders)["remote_only_segments"] > 2, "segments are copied")
        append(orders, text(40_000, 777))
        wait_until_sent(orders, quiet)
        sent = orders.read_bytes()
        append(orders, text(50_000, 5))  # may be lost
        everything = orders.read_bytes()
        segments = remote_of(orders)["segments"]
        first.kill()
        first.clear()
    shutil.rmtree(first.data)
    data = tmp_path / "b" / "data"
    found = promote(bucket, data)
    assert found["problems"] == []
    assert found["segments"] == segments
    with Mount(data, tmp_path / "b" / "mnt", variables=bucket.environment) as second:
        orders, quiet = second.point / "orders" / "0", second.point / "quiet" / "0"
        there = orders.read_bytes()
        assert there.startswith(sent)
        assert everything.startswith(there)
        assert quiet.read_bytes() == b"the only one\n"
        append(orders, b"continued\n")
        assert orders.read_bytes() == there + b"continued\n"
        wait_until_sent(orders)
    again = tmp_path / "c" / "data"
    promote(bucket, again)
    with Mount(again, tmp_path / "c" / "mnt", variables=bucket.environment) as third:
        assert (third.point / "orders" / "0").read_bytes() == there + b"continued\n"
    logfs("verify", str(again))


def test_a_directory_that_is_alive_is_fenced_and_says_so(tmp_path: Path, bucket: Bucket) -> None:
    with fresh_mount(tmp_path / "a", bucket) as first:
        logfs("topic", "create", str(first.point / "orders"), *SETTINGS)
        file = first.point / "orders" / "0"
        append(file, text(0, 20_000))
        wait_until_sent(file)
        data = tmp_path / "b" / "data"
        promote(bucket, data)
        append(file, b"too late\n")
        wait_until(lambda: bool(remote_of(file)["stopped"]), "it is fenced")
        assert "fenced: another data directory" in first.log
        with Mount(data, tmp_path / "b" / "mnt", variables=bucket.environment) as second:
            other = second.point / "orders" / "0"
            append(other, b"in time\n")
            assert other.read_bytes() == text(0, 20_000) + b"in time\n"
            wait_until_sent(other)
        again = tmp_path / "c" / "data"
        promote(bucket, again)
        assert logfs("cat", str(again / "orders" / "0")) == text(0, 20_000) + b"in time\n"


def test_a_copy_of_the_directory_sends_nothing(tmp_path: Path, bucket: Bucket) -> None:
    with fresh_mount(tmp_path / "a", bucket) as first:
        logfs("topic", "create", str(first.point / "orders"), *SETTINGS)
        append(first.point / "orders" / "0", text(0, 100))
        wait_until_sent(first.point / "orders" / "0")
        copy = tmp_path / "copy"
        shutil.copytree(first.data, copy, ignore=shutil.ignore_patterns("*.socket", ".lock"))
        with Mount(copy, tmp_path / "mnt", variables=bucket.environment) as second:
            file = second.point / "orders" / "0"
            append(file, b"of the copy\n")
            wait_until(lambda: bool(remote_of(file)["stopped"]), "the copy is refused")
            assert "this data directory is a copy of another one" in second.log
        append(first.point / "orders" / "0", b"of the first\n")
        wait_until_sent(first.point / "orders" / "0")
    promote(bucket, tmp_path / "b" / "data")
    there = logfs("cat", str(tmp_path / "b" / "data" / "orders" / "0"))
    assert there == text(0, 100) + b"of the first\n"


def refusal(*arguments: str | Path) -> str:
    """Return what a command prints that fails."""
    outcome = subprocess.run(
        [*COMMAND, *arguments], env=environment(), capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 1
    return outcome.stderr


def test_a_directory_that_is_not_empty_and_an_empty_store_are_refused(
    tmp_path: Path, bucket: Bucket
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    command = ("promote", bucket.url, data, "--endpoint", bucket.endpoint)
    assert "no logs that could be continued" in refusal(*command)
    assert not list(data.iterdir())
    bucket.open().put("orders-AAAAAAAAAAAAAAAAAAAAAA/0/object", [b"x"])
    (data / "file").write_text("mine")
    assert "the directory is not empty (it holds file)" in refusal(*command)
    assert [path.name for path in data.iterdir() if path.name != ".lock"] == ["file"]


def test_a_restored_directory_takes_over_the_journal_only_if_it_has_all_records(
    tmp_path: Path, bucket: Bucket
) -> None:
    with fresh_mount(tmp_path / "a", bucket) as first:
        logfs("topic", "create", str(first.point / "orders"), *SETTINGS)
        file = first.point / "orders" / "0"
        append(file, text(0, 1000))
        wait_until_sent(file)
        logfs("backup", str(first.data), str(tmp_path / "backup"))
        append(file, text(1000, 10))
        wait_until_sent(file)
        first.kill()
        first.clear()
    logfs("restore", str(tmp_path / "backup"), str(tmp_path / "old"))
    told = refusal("remote", "take-over", tmp_path / "old")
    assert "its journal has records of orders/0 that this directory does not have" in told
    copy = tmp_path / "copy"
    shutil.copytree(first.data, copy, ignore=shutil.ignore_patterns("*.socket"))
    logfs("remote", "take-over", str(copy))
    with Mount(copy, tmp_path / "mnt", variables=bucket.environment) as mount:
        file = mount.point / "orders" / "0"
        append(file, b"continued\n")
        wait_until_sent(file)
        assert file.read_bytes() == text(0, 1010) + b"continued\n"
