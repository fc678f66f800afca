"""``logfs status``: from the files, from a daemon, through a read-only mount."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logfs.log.forwardfile import ForwardFile, ForwardIdentity, ForwardPosition
from logfs.machine.disks import disk_of
from logfs.types import View
from tests.cli.conftest import Call, fill, open_store
from tests.log.backups import bytes_below
from tests.mounting import Mount, now_ms

LINES = b"".join(b"line %06d\n" % number for number in range(100))
TITLES = b"TOPIC PARTITIONS RECORDS SIZE KEPT SHOWN RECORDS/S BYTES/S OLDEST NEWEST LOSSES STATE"


@pytest.fixture
def data(logfs: Call, tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    settings = ["--partitions", "3", "--config", "internal.segment.bytes=700"]
    settings += ["--config", "max.message.bytes=700"]
    logfs("topic", "create", data / "orders", *settings)
    for start in range(0, len(LINES), 240):
        fill(data, {"orders/0": LINES[start : start + 240]})
    fill(data, {"orders/2": b"one\n", "users/0": b"somebody\n"})
    return data


def seen(logfs: Call, *arguments: str | Path) -> dict[str, Any]:
    status, out, errors = logfs("status", *arguments, "--json")
    assert (status, errors) == (0, [])
    found: dict[str, Any] = json.loads(out)
    return found


def rows_of(found: dict[str, Any], *keys: str) -> list[tuple[Any, ...]]:
    rows = (row for topic in found["topics"] for row in topic["partitions"])
    return [(row["topic"], row["partition"], *(row[key] for key in keys)) for row in rows]


FACTS: tuple[str, ...] = ("segments", "size_bytes", "kept_bytes", "shown_bytes", "log_start_offset")
FACTS += ("log_end_offset", "oldest_timestamp", "newest_timestamp", "losses", "offline")


def test_a_table_of_topics_and_one_of_partitions(logfs: Call, data: Path) -> None:
    status, out, errors = logfs("status", data)
    lines = out.splitlines()
    assert (status, errors) == (0, [])
    assert lines[0].startswith(b"data    %b (" % str(data).encode())
    assert lines[1] == b"daemon  none; stopped cleanly"
    assert lines[3].split() == TITLES.split()
    assert lines[4].split()[:3] == [b"orders", b"3", b"101"]
    assert lines[4].split()[4:6] == [b"1.2KiB", b"1.2KiB"]
    assert lines[4].split()[-2:] == [b"0", b"ok"]
    assert lines[5].split()[:6] == [b"users", b"1", b"1", b"76B", b"9B", b"9B"]
    assert len(lines) == 6
    _, out, _ = logfs("status", data / "orders", "--partitions")
    found = [line.split()[:4] for line in out.splitlines()[4:]]
    assert found[0][:3] == [b"orders/0", b"0", b"100"]
    assert found[1:] == [[b"orders/1", b"0", b"0", b"1"], [b"orders/2", b"0", b"1", b"1"]]


def test_status_changes_nothing_and_reads_no_sealed_segment(logfs: Call, data: Path) -> None:
    expected = rows_of(seen(logfs, data), *FACTS)
    logs = sorted((data / "orders-0").glob("*.log"))
    assert len(logs) > 4
    for path in logs[1:-1]:
        path.write_bytes(bytes(path.stat().st_size))
    before = bytes_below(data)
    assert rows_of(seen(logfs, data), *FACTS) == expected
    assert bytes_below(data) == before


def test_what_retention_removed_is_not_kept_but_was_shown(logfs: Call, data: Path) -> None:
    assert logfs("trim", data / "orders" / "0@offset=50").status == 0
    (row,) = rows_of(seen(logfs, data / "orders" / "0"), *FACTS)
    assert row[4:8] == (50 * 12, 100 * 12, 50, 100)


def test_the_rate_is_that_of_the_last_five_minutes(logfs: Call, data: Path) -> None:
    ages_s = [3600] * 50 + [290] * 10 + [200] * 20
    text = b"".join(
        json.dumps({"value": "123456789", "timestamp": now_ms() - age * 1000}).encode() + b"\n"
        for age in ages_s
    )
    fill(data, {"rated/0": text}, view=View.JSONL)
    ((_, _, records, size),) = rows_of(
        seen(logfs, data / "rated"), "records_per_second", "bytes_per_second"
    )
    assert (records, size) == (pytest.approx(30 / 300), pytest.approx(300 / 300))


@pytest.mark.expect_log("seven bytes are gone")
def test_losses_set_the_exit_status(logfs: Call, data: Path) -> None:
    store = open_store(data)
    store.partition("orders", 2).add_loss("cut", "x.log", 5, 7, "seven bytes are gone", now_ms())
    store.close(now_ms())
    status, out, _ = logfs("status", data)
    assert status == 1
    assert b"orders/2: 1 loss, the last at " in out
    assert out.endswith(b": cut, 7 bytes: seven bytes are gone\n")
    assert logfs("status", data, "--since", "-1h").status == 1
    assert logfs("status", data, "--since", "now").status == 0
    assert logfs("status", data, "--since", "soon").status == 2
    assert logfs("status", data, "--since", "2200-01-01").status == 0
    assert logfs("status", data / "users").status == 0


def kinds_of(found: dict[str, Any]) -> list[tuple[object, ...]]:
    return [(note["kind"], note["topic"], note["partition"]) for note in found["notes"]]


@pytest.mark.expect_log("seven bytes are gone")
def test_the_json_has_the_notes_and_the_verdict_of_the_lines(logfs: Call, data: Path) -> None:
    found = json.loads(logfs("status", data, "--json").out)
    assert (found["verdict"], kinds_of(found)) == ("ok", [])
    (data / "theirs-0").mkdir()
    (data / "theirs-0" / f"{7:020}.log").write_bytes(bytes(100))
    found = json.loads(logfs("status", data, "--json").out)
    notes = [("unknown", "theirs", None), ("config", "theirs", None)]
    assert (found["verdict"], kinds_of(found)) == ("unknown", notes)
    store = open_store(data)
    store.partition("orders", 2).add_loss("cut", "x.log", 5, 7, "seven bytes are gone", now_ms())
    store.close(now_ms())
    status, out, _ = logfs("status", data)
    found = json.loads(logfs("status", data, "--json").out)
    assert (found["verdict"], status) == ("trouble", 1)
    assert kinds_of(found)[0] == ("loss", "orders", 2)
    texts = [note["text"] for note in found["notes"]]
    assert out.decode().splitlines()[-len(texts) :] == texts


@pytest.mark.expect_log("orders/1 could not be loaded")
def test_an_unreadable_partition_sets_the_exit_status(logfs: Call, data: Path) -> None:
    (data / "orders-1" / "partition.metadata").write_text("nonsense")
    status, out, _ = logfs("status", data)
    assert status == 1
    assert b"1 offline" in out
    assert b"orders/1 is offline: it could not be loaded: orders-1/partition.metadata" in out
    assert rows_of(json.loads(logfs("status", data, "--json").out), "log_end_offset")[1][2] is None


def test_status_warns_about_topics_without_configuration_and_odd_settings(
    logfs: Call, data: Path
) -> None:
    (data / "users-0" / "logfs.config").unlink()
    logfs("topic", "alter", data / "orders", "--config", "segment.ms=700000000")
    (data / "theirs-0").mkdir()
    (data / "theirs-0" / f"{7:020}.log").write_bytes(bytes(100))
    status, out, _ = logfs("status", data)
    for topic in (b"users", b"theirs"):
        assert topic + b" has no configuration, as a broker leaves it" in out
    assert b"orders: warning: segment.ms=700000000" in out
    theirs = next(row for row in out.splitlines() if row.startswith(b"theirs "))
    assert theirs.split() == b"theirs 1 - 100B - - - - - - - unknown, never trimmed".split()
    assert status == 2
    assert b"theirs: nothing is known of the records of 1 partition" in out
    assert logfs("status", data / "orders").status == 0


def test_status_names_an_unclean_stop(logfs: Call, data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    assert b"daemon  none; it was not stopped cleanly: the next start" in logfs("status", data).out


def test_a_path_that_holds_no_logs(logfs: Call, data: Path, tmp_path: Path) -> None:
    status, out, errors = logfs("status", tmp_path)
    assert (status, out, len(errors)) == (2, b"", 1)
    assert logfs("status", data / "nix").errors == [f"logfs: {data / 'nix'}: no topic nix"]


@pytest.mark.fuse
def test_a_daemon_answers_the_same(logfs: Call, data: Path, tmp_path: Path) -> None:
    expected = rows_of(seen(logfs, data), *FACTS)
    (data / ".kafka_cleanshutdown").unlink()
    with Mount(data, tmp_path / "mnt", "create", "num.partitions=2") as mount:
        for path in (data, mount.point):
            found = seen(logfs, path)
            assert rows_of(found, *FACTS) == expected
            assert found["daemon"]["pid"] == mount.pid
            assert found["daemon"]["options"] == ["create", "num.partitions=2"]
            assert abs(found["daemon"]["started_ms"] - now_ms()) < 600_000
            assert found["daemon"]["was_clean"] is False
            assert found["metrics"]["logfs_partitions"] == 4
        assert f"process {mount.pid} since ".encode() in logfs("status", mount.point).out
        assert rows_of(seen(logfs, mount.point / "orders" / "2"), "log_end_offset")[0][2] == 1
        with (mount.point / "users" / "0").open("ab") as file:
            file.write(b"another\n")
        assert rows_of(seen(logfs, data / "users"), "log_end_offset") == [("users", 0, 2)]
    with Mount(data, tmp_path / "mnt", "ro") as mount:
        found = seen(logfs, mount.point)
        assert (found["is_read_only"], found["daemon"]["pid"]) == (True, mount.pid)
        assert rows_of(found, "log_end_offset")[0] == ("orders", 0, 100)
        assert b"(read-only)" in logfs("status", mount.point).out


def test_a_full_disk_sets_the_exit_status(logfs: Call, small_disk: Path) -> None:
    data = small_disk / "data"
    data.mkdir()
    logfs("topic", "create", data / "orders")
    assert logfs("status", data)[0] == 0
    (small_disk / "ballast").write_bytes(bytes(3 << 20))
    status, out, _ = logfs("status", data)
    lines = out.decode().splitlines()
    assert status == 1
    assert lines[0].endswith("free: the disk is full)")
    assert lines[4].split()[-2:] == ["disk", "full"]
    assert "appends fail" in lines[-1]
    status, out, _ = logfs("status", data, "--json")
    assert (status, json.loads(out)["is_full"]) == (1, True)
    assert b"disk full" in logfs("status", data, "--partitions")[1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system to fill up")
    point = tmp_path / "small"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", point], check=True)


def test_a_forward_that_was_not_seen_for_a_day_is_named(logfs: Call, data: Path) -> None:
    disk, hour_ms, out = disk_of(str(data)), 3_600_000, b""
    where = ForwardIdentity("cluster", "b1:9092", "there", "id", "same", 1, 7, 0, 0)
    file = ForwardFile.create(disk, "orders-0/logfs.forward-0000002a", where)
    for hours, is_named in ((23, False), (25, True)):
        file.report({"state": "forwarding", "reported": now_ms() - hours * hour_ms})
        _, out, _ = logfs("status", data)
        assert (b"nothing has forwarded it to kafka://b1:9092/there since" in out) == is_named
    assert b"retention keeps 100 offsets for that" in out
    file.hold(ForwardPosition(100))
    file.close()
    _, out, _ = logfs("status", data)
    assert b"nothing has forwarded it" not in out
