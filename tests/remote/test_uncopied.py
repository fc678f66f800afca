"""What retention deletes although the store does not have it: people are told before."""

import json
from pathlib import Path

import pytest

from logfs.services.retention.logs import apply_retention
from logfs.services.tiering.uncopied import near_deletion
from tests.mounting import Mount, logfs, wait_until
from tests.remote.servers import CREDENTIALS, free_port
from tests.remote.test_tiered_mount import append, text
from tests.remote.tiering import TIERED, TieredBench

HOUR_MS = 3_600_000


def test_segments_that_are_not_copied_are_near_their_deletion_at_80_percent_of_an_age() -> None:
    bench = TieredBench({**TIERED, "retention.ms": str(HOUR_MS)})
    bench.fill(40)
    sealed = len(bench.log.snapshot.segments) - 1
    later = bench.now_ms + HOUR_MS * 79 // 100
    assert near_deletion(bench.log, later) is None
    near = near_deletion(bench.log, bench.now_ms + HOUR_MS * 81 // 100)
    assert near is not None
    assert (near.segments, near.base_offset, near.setting) == (sealed, 0, "retention.ms")
    assert 0.8 <= near.share < 0.82
    bench.tier_all()
    assert near_deletion(bench.log, bench.now_ms + HOUR_MS * 81 // 100) is None


def test_segments_reach_the_size_limit_in_the_order_in_which_retention_deletes_them() -> None:
    bench = TieredBench({**TIERED, "retention.bytes": "3000"})
    bench.fill(20)
    assert near_deletion(bench.log, bench.now_ms) is None
    seen = 0
    for first in range(20, 60, 2):
        bench.fill(2, first=first)
        near = near_deletion(bench.log, bench.now_ms)
        due = apply_retention(bench.log, bench.now_ms).segments
        if due:
            assert near is not None
            assert near.share >= 1
            assert near.segments >= due
            seen += 1
        elif near is not None:
            assert 0.8 <= near.share < 1
            seen += 1
    assert seen > 3


def test_a_topic_that_is_not_to_be_copied_warns_of_nothing() -> None:
    settings = {"retention.ms": "1000", "local.retention.ms": "1000", "local.retention.bytes": "-1"}
    bench = TieredBench({**TIERED, **settings, "remote.log.copy.disable": "true"})
    bench.fill(40)
    assert near_deletion(bench.log, bench.now_ms + HOUR_MS) is None


@pytest.mark.fuse
def test_the_daemon_says_so_while_its_store_is_away(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    endpoint = f"http://127.0.0.1:{free_port()}"
    settings = f"url=s3://b/p\nendpoint={endpoint}\nread.timeout.ms=1\n"
    (data / "logfs.remote").write_text(f"{settings}remote.log.manager.task.interval.ms=100\n")
    with Mount(data, tmp_path / "mnt", variables=CREDENTIALS) as mount:
        limits = {"retention.bytes": "3000000", "segment.bytes": "1048576"}
        limits |= {"local.retention.bytes": "1", "remote.storage.enable": "true"}
        options = [f"--config={key}={value}" for key, value in limits.items()]
        logfs("topic", "create", str(mount.point / "orders"), *options)
        file = mount.point / "orders" / "0"
        append(file, text(0, 36_000))
        wait_until(lambda: "is not in the object store, and has reached" in mount.log, "a warning")
        assert mount.log.count("has reached") == 1
        remote = json.loads(Path(f"{file}.meta").read_text())["remote"]
        count = remote["near_deletion"]
        assert count > 0
        row = f'logfs_remote_copy_near_deletion_segments{{topic="orders"}} {float(count)}\n'
        assert row.encode() in logfs("metrics", str(mount.point))
