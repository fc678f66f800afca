"""What another machine gets of a lost one, through mounts: groups, owners and modes, forwards."""

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.mounting import Mount, logfs, wait_until
from tests.remote.servers import Bucket
from tests.remote.test_promote import SETTINGS, fresh_mount, promote, wait_until_sent
from tests.remote.test_tiered_mount import append, text

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.usefixtures("bucket_environment"),
]


def value(mount: Mount, name: str) -> float:
    """Return a metric of the journal."""
    found = re.search(rf"^{name} (\S+)$", logfs("metrics", str(mount.point)).decode(), re.MULTILINE)
    return 0 if found is None else float(found[1])


def positions(mount: Mount) -> list[dict[str, Any]]:
    """Return the positions of both groups."""
    return [
        row
        for group in ("readers", "others")
        for row in json.loads(logfs("group", "describe", "--json", str(mount.point), group))
    ]


def seldom_mount(directory: Path, bucket: Bucket) -> Mount:
    """Return a mount that sends its journal every hour only; not started."""
    mount = fresh_mount(directory, bucket)
    settings = mount.data / "logfs.remote"
    settings.write_text(re.sub(r"freshness.ms=\d+", "freshness.ms=3600000", settings.read_text()))
    return mount


def test_groups_owners_and_modes_are_the_same_on_another_machine(
    tmp_path: Path, bucket: Bucket
) -> None:
    with fresh_mount(tmp_path / "a", bucket) as first:
        for topic in ("orders", "quiet"):
            logfs("topic", "create", str(first.point / topic), *SETTINGS)
        orders = first.point / "orders" / "0"
        append(orders, text(0, 1000))
        (first.point / "orders").chmod(0o2750)
        orders.chmod(0o640)
        os.chown(first.point / "quiet", 33, 44)
        logfs("group", "reset", "readers", f"{orders}@offset=700")
        logfs("group", "reset", "others", f"{first.point / 'quiet'}@earliest")
        wait_until_sent(orders)
        shown = positions(first)
        assert [row["position"] for row in shown] == [700, 0]
        rounds = value(first, "logfs_remote_journal_rounds_total")
        wait_until(
            lambda: value(first, "logfs_remote_journal_rounds_total") > rounds + 1, "two rounds"
        )
        objects = value(first, "logfs_remote_journal_objects_total")
        assert objects > 0
        assert value(first, "logfs_remote_journal_bytes_total") > 0
        assert value(first, "logfs_remote_journal_errors_total") == 0
        assert value(first, "logfs_remote_journal_timestamp_seconds") > 1.7e9
        wait_until(
            lambda: value(first, "logfs_remote_journal_rounds_total") > rounds + 6, "more rounds"
        )
        assert value(first, "logfs_remote_journal_objects_total") == objects  # none is idle
        first.kill()
        first.clear()
    promote(bucket, tmp_path / "b" / "data")
    mount = Mount(tmp_path / "b" / "data", tmp_path / "b" / "mnt", variables=bucket.environment)
    with mount as second:
        keys = ("group", "topic", "partition", "position", "lag", "committed_ms", "metadata")
        for was, now in zip(shown, positions(second), strict=True):
            assert [was[key] for key in keys] == [now[key] for key in keys]
        there = (second.point / "orders").stat()
        assert stat.S_IMODE(there.st_mode) == 0o2750
        assert stat.S_IMODE((second.point / "orders" / "0").stat().st_mode) == 0o640
        found = (second.point / "quiet").stat()
        assert (found.st_uid, found.st_gid) == (33, 44)
        wait_until_sent(second.point / "orders" / "0")


def test_a_clean_stop_sends_what_came_last(tmp_path: Path, bucket: Bucket) -> None:
    with seldom_mount(tmp_path / "a", bucket) as first:
        logfs("topic", "create", str(first.point / "orders"), *SETTINGS)
        file = first.point / "orders" / "0"
        append(file, b"one\n")
        wait_until(lambda: value(first, "logfs_remote_journal_rounds_total") > 0, "the first round")
        append(file, b"two\nunfinished")
        first.stop()
    data = tmp_path / "b"
    found = json.loads(
        logfs("promote", bucket.url, str(data), "--endpoint", bucket.endpoint, "--json")
    )
    assert found["problems"] == []
    assert logfs("cat", str(data / "orders" / "0")) == b"one\ntwo\nunfinished\n"


def test_a_stop_does_not_wait_for_a_store_that_is_away(tmp_path: Path, bucket: Bucket) -> None:
    mount = fresh_mount(tmp_path / "a", bucket)
    settings = mount.data / "logfs.remote"
    lines = settings.read_text().replace(bucket.endpoint, "http://127.0.0.1:9")
    settings.write_text(f"{lines}read.timeout.ms=60000\n")
    with mount as first:
        logfs("topic", "create", str(first.point / "orders"), *SETTINGS)
        append(first.point / "orders" / "0", b"one\n")
        first.stop()
        first.start()
        assert (first.point / "orders" / "0").read_bytes() == b"one\n"
