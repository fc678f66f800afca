"""The alerts about the object store: what a daemon shows makes each of them fire in Prometheus."""

import contextlib
import re
import subprocess
from pathlib import Path

import pytest

from logfs.library import remote
from logfs.library.backup import fetch_store
from logfs.library.places import locate
from tests.mounting import ROOT, Mount, logfs, wait_until
from tests.remote.servers import Bucket, FaultProxy
from tests.remote.test_tiered_mount import append, local_logs, make_topic, text, tiered_mount

pytestmark = [pytest.mark.fuse, pytest.mark.slow, pytest.mark.programs]

RULES = ROOT / "examples" / "prometheus" / "logfs.rules.yml"
SAMPLE = re.compile(r'^(logfs_remote_\w+)(?:\{topic="(\w+)"\})? (\S+)$', re.MULTILINE)
TEST = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
{series}
    promql_expr_test:
      - expr: count by (alertname) (ALERTS{{alertname=~"LogfsRemote.*",alertstate="firing"}})
        eval_time: {minute}m
        exp_samples: []
"""


def samples(mount: Mount) -> dict[tuple[str, str], float]:
    """Return the metrics about the object store, by name and topic."""
    found = SAMPLE.findall(logfs("metrics", str(mount.point)).decode())
    return {(name, topic): float(value) for name, topic, value in found}


def value(mount: Mount, name: str) -> float:
    """Return a metric of the topic, or of the mount."""
    found = samples(mount)
    return found.get((name, "orders"), found.get((name, ""), 0))


def firing(
    folder: Path, before: dict[tuple[str, str], float], mount: Mount, *, minutes: int = 20
) -> set[str]:
    """Return the alerts that fire if metrics change from ``before`` to those of now, and stay."""
    lines = []
    for (name, topic), now in samples(mount).items():
        labels = f'{{instance="a",topic="{topic}"}}' if topic else '{instance="a"}'
        was = before.get((name, topic), now)
        lines.append(f"      - {{series: '{name}{labels}', values: '{was}x9 {now}x{minutes}'}}")
    file = folder / "alerts.yml"
    text = TEST.format(rules=RULES, series="\n".join(lines), minute=10 + minutes)
    file.write_text(text)
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], check=False, capture_output=True, text=True
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0 or "got:" in told, told
    return set(re.findall(r'alertname="(\w+)"', told.partition("got:")[2]))


def test_a_store_that_is_away_and_comes_back(
    tmp_path: Path, bucket: Bucket, faults: FaultProxy
) -> None:
    with tiered_mount(tmp_path, bucket.through(faults)) as mount:
        file = make_topic(mount)
        append(file, text(0, 40_000))
        wait_until(lambda: len(local_logs(mount)) == 1, "the segments went")
        well = samples(mount)
        assert firing(tmp_path, well, mount, minutes=90) == set()
        with faults.refusing():
            append(file, text(40_000, 30_000))
            wait_until(lambda: value(mount, "logfs_remote_copy_failing") == 1, "it fails")
            with contextlib.suppress(OSError):
                Path(f"{file}@offset=3000..offset=30000").read_bytes()
            wait_until(lambda: value(mount, "logfs_remote_fetch_errors_total") > 0, "reads fail")
            away = {"LogfsRemoteCopyFails", "LogfsRemoteReadsFail"}
            assert firing(tmp_path, well, mount) == away
            assert firing(tmp_path, well, mount, minutes=90) == {
                "LogfsRemoteCopyFails",
                "LogfsRemoteCopyBehind",
            }
            logfs("topic", "alter", str(mount.point / "orders"), "--config=retention.bytes=3200000")
            name = "logfs_remote_copy_near_deletion_segments"
            wait_until(lambda: value(mount, name) > 0, "segments are near their deletion")
            assert firing(tmp_path, well, mount) == {*away, "LogfsRemoteCopyLate"}
        wait_until(lambda: value(mount, "logfs_remote_copy_lag_segments") == 0, "all is copied")
        assert firing(tmp_path, samples(mount), mount, minutes=90) == set()


def test_a_topic_that_is_not_to_be_copied_lags_behind_nothing(
    tmp_path: Path, bucket: Bucket
) -> None:
    with tiered_mount(tmp_path, bucket) as mount:
        file = make_topic(mount)
        more = ("local.retention.bytes=-2", "remote.log.copy.disable=true")
        options = [f"--config={one}" for one in more]
        logfs("topic", "alter", str(mount.point / "orders"), *options)
        append(file, text(0, 40_000))
        assert len(local_logs(mount)) > 2
        assert firing(tmp_path, samples(mount), mount, minutes=90) == set()


def test_another_directory_takes_over(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, setting in bucket.environment.items():
        monkeypatch.setenv(name, setting)
    other = tmp_path / "other"
    with tiered_mount(tmp_path, bucket) as mount:
        file = make_topic(mount)
        append(file, text(0, 40_000))
        wait_until(lambda: len(local_logs(mount)) == 1, "the segments went")
        well = samples(mount)
        fetch_store(bucket.url, str(other))
        remote.init_store(str(other), bucket.url, {})
        remote.take_over(locate(str(other)))
        append(file, text(40_000, 30_000))
        wait_until(lambda: value(mount, "logfs_remote_copy_stopped") == 1, "it has stopped")
        assert "LogfsRemoteCopyStopped" in firing(tmp_path, well, mount)


def test_an_object_that_is_damaged(tmp_path: Path, bucket: Bucket) -> None:
    with tiered_mount(tmp_path, bucket) as mount:
        file = make_topic(mount)
        append(file, text(0, 40_000))
        wait_until(lambda: len(local_logs(mount)) == 1, "the segments went")
        well = samples(mount)
        (log, *_) = sorted(
            one.key for one in bucket.open().list_all("") if one.key.endswith(".log")
        )
        bucket.damage(log, 5000)
        with pytest.raises(OSError, match="error"):
            file.read_bytes()
        wait_until(lambda: value(mount, "logfs_remote_corrupt_blocks_total") > 0, "it is noticed")
        assert "LogfsRemoteDamaged" in firing(tmp_path, well, mount)
