"""``logfs reindex``: indexes as they were, from the logs alone."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Call, command, environment
from tests.cli.indexed import SUFFIXES, indexes_of
from tests.cli.indexed import data as data  # a fixture
from tests.mounting import Mount


def test_indexes_that_are_wrong_or_missing_are_recreated(logfs: Call, data: Path) -> None:
    before = indexes_of(data)
    assert before[f"orders-0/{0:020}.textindex"]
    whole = logfs("reindex", data)
    assert (whole.status, whole.errors) == (0, [])
    assert whole.out.decode().endswith(" read: 0 index files rewritten\n")
    damaged = [f"orders-0/{0:020}{suffix}" for suffix in SUFFIXES]
    (data / damaged[0]).write_bytes(b"\xff" * 24)
    (data / damaged[1]).unlink()
    (data / damaged[2]).write_bytes(before[damaged[2]][:-7])
    assert logfs("verify", data, "-q").status == 1
    done = logfs("reindex", data / "orders", "--json")
    told = json.loads(done.out)
    assert (done.status, done.errors) == (0, [])
    assert set(told["written"]) == set(damaged)
    assert indexes_of(data) == before
    assert logfs("verify", data, "-q") == (0, b"", [])


def test_positions_of_a_compacted_log_do_not_change(logfs: Call, data: Path) -> None:
    assert logfs("compact", data / "prices").status == 0
    before, text = indexes_of(data), logfs("cat", data / "prices" / "0.jsonl").out
    (index,) = [
        data / name for name in before if name.startswith("prices") and name.endswith(".index")
    ][:1]
    index.write_bytes(bytes(8) * 3)
    done = logfs("reindex", data / "prices" / "0")
    assert "text indexes of 1 compacted segment left alone" in done.out.decode()
    assert indexes_of(data) == before
    assert logfs("cat", data / "prices" / "0.jsonl").out == text
    assert logfs("verify", data, "-q") == (0, b"", [])


def test_reindex_recovers_an_unclean_directory_first(logfs: Call, data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    (log,) = [file for file in data.glob("orders-1/*.log") if not file.stat().st_size]
    log.write_bytes(b"half a batch")
    assert logfs("reindex", data).status == 0
    assert log.stat().st_size == 0
    assert logfs("verify", data, "-q") == (0, b"", [])


def test_a_lost_table_costs_no_text_index(logfs: Call, data: Path) -> None:
    assert logfs("compact", data / "prices").status == 0
    before, table = indexes_of(data), data / "prices-0" / "logfs.segments"
    kept = table.read_bytes()
    table.write_bytes(b"")
    for name in before:
        if not name.endswith(".textindex"):
            (data / name).unlink()
    assert logfs("reindex", data).status == 0
    table.write_bytes(kept)
    assert indexes_of(data) == before
    assert logfs("verify", data, "-q") == (0, b"", [])


def test_a_corrupt_batch_is_named(logfs: Call, data: Path) -> None:
    log = data / "orders-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    done = logfs("reindex", data)
    assert done.status == 1
    (line,) = done.errors
    assert line.startswith(f"logfs: {log}: byte 0: the batch (")
    assert "restore the segment from a backup" in line


@pytest.mark.fuse
def test_reindex_refuses_a_directory_that_a_daemon_serves(logfs: Call, tmp_path: Path) -> None:
    mount = Mount(tmp_path / "served", tmp_path / "mnt")
    mount.start()
    try:
        (mount.point / "orders").mkdir()
        for path in (mount.data, mount.point):
            status, out, (line,) = logfs("reindex", path)
            assert (status, out) == (1, b"")
            assert "umount" in line or "unmount" in line
    finally:
        mount.stop()


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_complete_indexes(logfs: Call, data: Path) -> None:
    before = indexes_of(data)
    ours = [name for name in before if name.startswith("orders") and before[name]]
    for restored in (1, 4, 9):
        for name in ours:
            (data / name).write_bytes(b"")
        process = subprocess.Popen(command("reindex", data, "-j", "1"), env=environment())
        while process.poll() is None:
            if sum((data / name).stat().st_size > 0 for name in ours) >= restored:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.0002)
        process.wait()
        assert all((data / name).read_bytes() in {b"", before[name]} for name in ours)
    assert logfs("reindex", data).status == 0
    assert indexes_of(data) == before
