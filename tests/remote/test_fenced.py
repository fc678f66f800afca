"""A machine whose logs another one continues: what its programs see, and after each start."""

import contextlib
import errno
import io
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.mounting import Mount, logfs, wait_until
from tests.remote.servers import Bucket
from tests.remote.test_promote import SETTINGS, fresh_mount, promote, wait_until_sent
from tests.remote.test_tiered_mount import append, remote_of, text

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.usefixtures("bucket_environment"),
]


def readonly_mount(directory: Path, bucket: Bucket) -> Mount:
    """Return a mount that takes no records once it is fenced; not started."""
    mount = fresh_mount(directory, bucket)
    settings = mount.data / "logfs.remote"
    settings.write_text(settings.read_text() + "fenced.action=readonly\n")
    return mount


def refusal(file: Path) -> int | None:
    """Return the errno of an append by open(2) or write(2); None: it was taken."""
    try:
        with file.open("ab", buffering=0) as out:
            out.write(b"too late\n")
    except OSError as error:
        return error.errno
    return None


def written(out: io.FileIO) -> int:
    """Write lines until a write is refused; returns how many were taken."""
    taken = 0
    with contextlib.suppress(OSError):
        while True:
            out.write(b"too late\n")
            taken += 1
            time.sleep(0.01)
    return taken


def test_programs_of_a_fenced_machine_are_told_with_erofs(tmp_path: Path, bucket: Bucket) -> None:
    with readonly_mount(tmp_path / "a", bucket) as first:
        for topic in ("orders", "quiet"):
            logfs("topic", "create", str(first.point / topic), *SETTINGS)
        logfs("topic", "create", str(first.point / "local"))
        orders, quiet = first.point / "orders" / "0", first.point / "quiet" / "0"
        append(orders, text(0, 20_000))
        append(quiet, b"one\n")
        wait_until_sent(orders, quiet)
        opened = orders.open("ab", buffering=0)
        promote(bucket, tmp_path / "b" / "data")
        taken = written(opened)
        with pytest.raises(OSError, match="Read-only"):
            opened.close()
        assert refusal(quiet) == errno.EROFS
        assert refusal(first.point / "local" / "0") is None  # it is in no store
        there = text(0, 20_000) + b"too late\n" * taken
        assert orders.read_bytes() == there
        facts = remote_of(quiet)
        assert (facts["stopped"], facts["read_only"]) == (True, True)
        assert "writes the journal (on host" in facts["error"]
        assert "writes the journal (on host" in logfs("remote", "status", str(first.point)).decode()
        assert re.search("ERROR .*fenced: another data directory", first.log)

        first.crash()
        assert refusal(orders) == errno.EROFS
        assert orders.read_bytes() == there
        first.stop()
        settings = first.data / "logfs.remote"
        lines = [one for one in settings.read_text().splitlines() if "endpoint" not in one]
        settings.write_text("\n".join([*lines, "endpoint=http://127.0.0.1:9", ""]))
        first.start()  # the store does not answer
        assert refusal(orders) == errno.EROFS
        assert refusal(first.point / "local" / "0") is None


def test_a_machine_that_comes_back_takes_no_record_before_it_knows(
    tmp_path: Path, bucket: Bucket
) -> None:
    with readonly_mount(tmp_path / "a", bucket) as first:
        logfs("topic", "create", str(first.point / "orders"), *SETTINGS)
        orders = first.point / "orders" / "0"
        append(orders, text(0, 1000))
        wait_until_sent(orders)
        first.kill()
        first.clear()
        promote(bucket, tmp_path / "b" / "data")
        first.start()
        assert refusal(orders) == errno.EROFS
        assert orders.read_bytes() == text(0, 1000)


def test_a_daemon_that_was_paused_refuses_what_comes_after_its_next_round(
    tmp_path: Path, bucket: Bucket
) -> None:
    with readonly_mount(tmp_path / "a", bucket) as first:
        logfs("topic", "create", str(first.point / "orders"), *SETTINGS)
        orders = first.point / "orders" / "0"
        append(orders, text(0, 1000))
        wait_until_sent(orders)
        os.kill(first.pid, signal.SIGSTOP)
        promote(bucket, tmp_path / "b" / "data")
        os.kill(first.pid, signal.SIGCONT)
        wait_until(lambda: refusal(orders) == errno.EROFS, "it refuses")
        assert logfs("cat", str(tmp_path / "b" / "data" / "orders" / "0")) == text(0, 1000)


def test_a_directory_without_a_journal_learns_it_from_its_heads(
    tmp_path: Path, bucket: Bucket
) -> None:
    mount = readonly_mount(tmp_path / "a", bucket)
    settings = mount.data / "logfs.remote"
    settings.write_text(re.sub(r"freshness.ms=\d+\n", "", settings.read_text()))
    with mount as first:
        logfs("topic", "create", str(first.point / "orders"), *SETTINGS)
        orders = first.point / "orders" / "0"
        append(orders, text(0, 20_000))
        wait_until(lambda: remote_of(orders)["segments"] > 0, "a segment is copied")
        logfs(
            "promote", bucket.url, str(tmp_path / "b"), "--endpoint", bucket.endpoint,
        )  # fmt: skip
        append(orders, text(0, 20_000))  # another segment is to be copied
        wait_until(lambda: refusal(orders) == errno.EROFS, "it refuses")
        first.crash()
        assert refusal(orders) == errno.EROFS
