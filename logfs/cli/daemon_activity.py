"""The activity of the daemon, as ``logfs status`` prints it: appends, flushes, files and tasks."""

from collections.abc import Mapping
from typing import Any

from logfs.cli.terminal.tables import counted, format_bytes


def describe_activity(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what to say of the metrics that are not of single topics: a word and a text each.

    Args:
        metrics: As the daemon answers ``metrics``; one of another version may lack some.
    """
    rows = [
        ("writes", _writes(metrics)),
        ("open", _open(metrics)),
        ("recovery", _recovery(metrics)),
        ("cleaner", _cleaner(metrics)),
    ]
    return [(word, text) for word, text in rows if text]


def _writes(metrics: Mapping[str, Any]) -> str:
    append = metrics.get("logfs_log_append_duration_seconds")
    flush = metrics.get("logfs_log_flush_duration_seconds")
    if not append or not flush:
        return ""
    text = f"{append['count']} appends{_times(append)}; {flush['count']} flushes{_times(flush)}"
    failed = int(metrics.get("logfs_log_failed_flushes_total", 0))
    return f"{text}; {failed} flushes failed" if failed else text


def _times(histogram: Mapping[str, Any]) -> str:
    half, most = histogram["p50_within"], histogram["p99_within"]
    if half is None:
        return ""
    last = "99 of 100 take longer" if most is None else f"99 of 100 within {_seconds(most)}"
    return f" (half within {_seconds(half)}, {last})"


def _seconds(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1_000_000:.0f} µs"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.0f} s"


def _open(metrics: Mapping[str, Any]) -> str:
    files = {row["mode"]: int(row["value"]) for row in metrics.get("logfs_open_files", [])}
    lanes = {row["where"]: int(row["value"]) for row in metrics.get("logfs_lanes", [])}
    if not files:
        return ""
    text = f"{files.get('append', 0)} files to append, {files.get('read', 0)} to read"
    slow = lanes.get("thread", 0)
    if not slow:
        return text
    return f"{text}; {counted(slow, 'partition')} served by threads, as the disk was slow"


def _recovery(metrics: Mapping[str, Any]) -> str:
    count = int(metrics.get("logfs_recoveries_total", 0))
    if not count:
        return ""
    size, seconds = (
        metrics.get(f"logfs_{name}_total", 0) for name in ("recovered_bytes", "recovery_seconds")
    )
    return f"{counted(count, 'partition')}, {format_bytes(int(size))} scanned in {seconds:.1f} s"


def _cleaner(metrics: Mapping[str, Any]) -> str:
    rounds, read, written = (
        int(metrics.get(f"logfs_log_cleaner_{name}_total", 0))
        for name in ("rounds", "bytes_read", "bytes_written")
    )
    bad = int(metrics.get("logfs_log_cleaner_uncleanable_partitions", 0))
    text = ""
    if rounds:
        text = f"{counted(rounds, 'round')}, {format_bytes(read)} became {format_bytes(written)}"
    if bad:
        text += "; " if text else ""
        text += f"{counted(bad, 'partition')} not compacted: the log says why"
    return text
