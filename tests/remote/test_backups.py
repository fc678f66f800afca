"""Backups of a directory of which most is in an object store."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.conftest import logfs as logfs
from tests.mounting import Mount, wait_until
from tests.remote.servers import Bucket
from tests.remote.test_tiered_mount import (
    append,
    local_logs,
    make_topic,
    raw_logs,
    text,
    tiered_mount,
)

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


@pytest.fixture
def credentials(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return bucket


def filled(mount: Mount) -> None:
    """Have a log with segments in the store alone, and a local one."""
    append(make_topic(mount), text(0, 22_000))
    wait_until(lambda: len(local_logs(mount)) == 1, "the segments went")


def test_a_backup_names_the_objects_that_it_needs(
    logfs: Call, credentials: Bucket, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    with tiered_mount(tmp_path, credentials) as mount:
        filled(mount)
        outcome = logfs("backup", mount.point, copy)
        assert outcome.status == 0, outcome.errors
        objects = credentials.open()
        heads = [s.key for s in objects.list_all("") if s.key.endswith("logfs-head")]
        head, _ = objects.get(heads[0], 1 << 20)
    needs = json.loads((copy / "logfs.backup").read_text())["needs"]
    stored = {stat.key for stat in objects.list_all("")}
    assert set(needs) == {key for key in stored if key.endswith((".log", ".indexes"))}
    assert f"{len(needs)} objects of {credentials.url} are needed".encode() in outcome.out
    assert (copy / "orders-0" / "logfs.head").read_bytes() == head
    assert logfs("cat", copy / "orders" / "0").out == text(0, 22_000)


def test_a_backup_with_the_store_needs_it_no_more(
    logfs: Call, credentials: Bucket, tmp_path: Path
) -> None:
    copies = [tmp_path / "first", tmp_path / "second", tmp_path / "stopped"]
    with tiered_mount(tmp_path, credentials) as mount:
        filled(mount)
        raw = raw_logs(mount, "orders")
        assert logfs("backup", mount.point, copies[0], "--with-remote").status == 0
        previous = ["--previous", copies[0]]
        assert logfs("backup", mount.point, copies[1], "--with-remote", *previous).status == 0
    assert logfs("backup", mount.data, copies[2], "--with-remote").status == 0
    objects = credentials.open()
    for stat in list(objects.list_all("")):
        objects.delete(stat.key)
    restored = tmp_path / "restored"
    assert logfs("restore", copies[2], restored).status == 0
    for copy in (*copies, restored):
        logs = sorted((copy / "orders-0").glob("*.log"))
        assert [log.read_bytes() for log in logs] == raw
        assert logfs("cat", copy / "orders" / "0").out == text(0, 22_000)
        assert logfs("verify", copy).status == 0
    first, second = ({p.stat().st_ino for p in c.glob("orders-0/*.log")} for c in copies[:2])
    assert len(first & second) == len(raw) - 1  # linked, but for the active segment
    assert json.loads((copies[0] / "logfs.backup").read_text())["needs"] == []


def test_a_store_that_is_away_does_not_fail_a_backup_that_leaves_it_alone(
    logfs: Call, credentials: Bucket, tmp_path: Path
) -> None:
    with tiered_mount(tmp_path, credentials) as mount:
        filled(mount)
        objects = credentials.open()
        gone = next(s.key for s in objects.list_all("") if s.key.endswith(".log"))
        objects.delete(gone)
        head = next(s.key for s in objects.list_all("") if s.key.endswith("logfs-head"))
        objects.delete(head)
        outcome = logfs("backup", mount.point, tmp_path / "plain")
        assert outcome.status == 0
        assert "the heads of the store are not in it" in outcome.errors[0]
        outcome = logfs("backup", mount.point, tmp_path / "whole", "--with-remote")
        assert outcome.status == 1
        assert gone in "\n".join(outcome.errors)
    manifest = json.loads((tmp_path / "whole" / "logfs.backup").read_text())
    assert gone in manifest["needs"]
