"""What ``logfs status`` says of what a daemon does."""

import pytest

from logfs.cli.daemon_activity import describe_activity
from tests.cli.conftest import Mounted, run

QUICK = {"count": 3, "seconds": 0.1, "p50_within": 0.00005, "p99_within": 0.004}
SLOW = {"count": 2, "seconds": 9.0, "p50_within": 5.0, "p99_within": None}
NEVER = {"count": 0, "seconds": 0.0, "p50_within": None, "p99_within": None}


def test_status_of_an_idle_daemon() -> None:
    metrics = {
        "logfs_log_append_duration_seconds": NEVER,
        "logfs_log_flush_duration_seconds": NEVER,
        "logfs_open_files": [{"mode": "append", "value": 0}, {"mode": "read", "value": 0}],
    }
    assert describe_activity(metrics) == [
        ("writes", "0 appends; 0 flushes"),
        ("open", "0 files to append, 0 to read"),
    ]


def test_status_of_a_daemon_with_activity() -> None:
    metrics = {
        "logfs_log_append_duration_seconds": QUICK,
        "logfs_log_flush_duration_seconds": SLOW,
        "logfs_log_failed_flushes_total": 1,
        "logfs_open_files": [{"mode": "append", "value": 2}, {"mode": "read", "value": 1}],
        "logfs_lanes": [{"where": "loop", "value": 1}, {"where": "thread", "value": 4}],
        "logfs_recoveries_total": 2,
        "logfs_recovered_bytes_total": 3 * 1024 * 1024,
        "logfs_recovery_seconds_total": 0.26,
        "logfs_log_cleaner_rounds_total": 5,
        "logfs_log_cleaner_bytes_read_total": 4096,
        "logfs_log_cleaner_bytes_written_total": 1024,
        "logfs_log_cleaner_uncleanable_partitions": 1,
    }
    assert dict(describe_activity(metrics)) == {
        "writes": "3 appends (half within 50 µs, 99 of 100 within 4 ms); "
        "2 flushes (half within 5 s, 99 of 100 take longer); 1 flushes failed",
        "open": "2 files to append, 1 to read; "
        "4 partitions served by threads, as the disk was slow",
        "recovery": "2 partitions, 3.0MiB scanned in 0.3 s",
        "cleaner": "5 rounds, 4.0KiB became 1.0KiB; 1 partition not compacted: the log says why",
    }


def test_a_daemon_of_another_version() -> None:
    assert describe_activity({}) == []


@pytest.mark.fuse
def test_in_the_status_of_a_mount(mounted: Mounted) -> None:
    (mounted.point / "orders").mkdir()
    with (mounted.point / "orders" / "0").open("ab", buffering=0) as file:
        file.write(b"one\n")
        lines = run("status", mounted.point).out.decode().splitlines()
    assert lines[1].startswith("daemon  process ")
    assert lines[2].startswith("        sealed files: ")
    assert lines[3].startswith("        mount kept by: ")
    assert lines[4].startswith("        writes: 1 appends (half within ")
    assert lines[5].startswith("        open: 1 files to append, 0 to read")
