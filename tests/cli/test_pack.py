"""``logfs pack``: under the lock, and by the daemon that owns the directory."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Call, Mounted, fill, run

SETTINGS = ["logfs.sealed.compression.type=zstd", "internal.segment.bytes=3000"]
LINES = [b'10.0.0.%d - - "GET /index.html?n=%d HTTP/1.1" 200\n' % (n % 5, n) for n in range(100)]


def create(data: Path) -> None:
    settings = [word for setting in SETTINGS for word in ("--config", setting)]
    assert run("topic", "create", data / "web", *settings).status == 0


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A topic of one partition, written line by line."""
    data = tmp_path / "data"
    data.mkdir()
    create(data)
    for line in LINES:
        fill(data, {"web/0": line})
    return data


def log_bytes(data: Path) -> int:
    return sum(file.stat().st_size for file in (data / "web-0").glob("*.log"))


def test_pack_makes_sealed_segments_smaller_once(logfs: Call, written: Path) -> None:
    before = log_bytes(written)
    status, out, errors = logfs("pack", written / "web", "--roll")
    assert (status, errors) == (0, [])
    assert out.startswith(b"web/0: 4 of 4 segments packed, ")
    assert log_bytes(written) < before / 4
    assert run("cat", written / "web" / "0").out == b"".join(LINES)
    assert run("cat", written / "web" / "0@offset=42..offset=43").out == LINES[42]
    assert logfs("pack", written / "web").out == (
        b"web/0: nothing to pack: all sealed segments are packed (see --roll)\n"
    )
    (row,) = json.loads(logfs("pack", written / "web" / "0", "--json").out)
    assert (row["topic"], row["partition"], row["segments"]) == ("web", 0, 0)
    assert run("verify", written).status == 0


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "expected a partition, TOPIC/PARTITION, or a topic, TOPIC"),
        ("web/5", "topic web has no partition 5"),
        ("nix/0", "no topic nix"),
        ("plain", "plain/0: logfs.sealed.compression.type=uncompressed: choose a codec"),
        ("keyed", "keyed/0: cleanup.policy=compact: compaction rewrites its segments"),
    ],
)
def test_refusals(logfs: Call, written: Path, address: str, reason: str) -> None:
    logfs("topic", "create", written / "plain")
    logfs("topic", "create", written / "keyed", "--config", "cleanup.policy=compact")
    path = str(written / address)
    status, out, errors = logfs("pack", path)
    assert (status, out, len(errors)) == (1, b"", 1)
    assert errors[0].startswith(f"logfs: {path}: ")
    assert reason in errors[0]


@pytest.mark.fuse
def test_a_daemon_packs_its_directory_and_open_files_continue(mounted: Mounted) -> None:
    create(mounted.data)
    path = mounted.point / "web" / "0"
    with path.open("ab", buffering=0) as file:
        for line in LINES:
            file.write(line)
    raw = mounted.point / ".segments" / "web-0" / f"{0:020}.log"
    inodes = os.stat(path).st_ino, os.stat(raw).st_ino
    with path.with_name("0@earliest..latest").open("rb") as fixed, path.open("rb") as growing:
        assert growing.read(1000) == b"".join(LINES)[:1000]
        before = raw.stat().st_size
        outcome = run("pack", mounted.data / "web", "--roll")
        assert (outcome.status, outcome.errors) == (0, [])
        assert b"segments packed" in outcome.out
        assert fixed.read() == b"".join(LINES)
        assert growing.read() == b"".join(LINES)[1000:]
    assert path.read_bytes() == b"".join(LINES)
    assert os.stat(path).st_ino == inodes[0]
    assert os.stat(raw).st_ino != inodes[1], "other bytes are another inode"
    assert raw.stat().st_size < before / 4
    meta = json.loads(path.with_name("0.meta").read_bytes())
    assert meta["packed_segments"] == meta["segments"] - 1
