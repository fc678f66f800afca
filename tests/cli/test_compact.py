"""``logfs compact``: under the lock, and by the daemon that owns the directory."""

import json
import os
from pathlib import Path

import pytest

from logfs.types import View
from tests.cli.conftest import Call, Mounted, fill, run

SETTINGS = ["cleanup.policy=compact", "internal.segment.bytes=100", "min.cleanable.dirty.ratio=1"]
TSV = [b"k%d\tv%d\n" % (n % 3, n) for n in range(10)]


def create(data: Path) -> None:
    settings = [word for setting in SETTINGS for word in ("--config", setting)]
    assert run("topic", "create", data / "prices", *settings).status == 0


@pytest.fixture
def dirty(tmp_path: Path) -> Path:
    """A topic of one partition, in segments of a batch each."""
    data = tmp_path / "data"
    data.mkdir()
    create(data)
    for line in TSV:
        fill(data, {"prices/0": line}, view=View.TSV)
    return data


def test_compact_keeps_the_last_record_of_each_key(logfs: Call, dirty: Path) -> None:
    status, out, errors = logfs("compact", dirty / "prices" / "0")
    assert (status, errors) == (0, [])
    assert out.startswith(b"prices/0: 9 records became 3, ")
    assert out.endswith(b"; clean up to offset 9\n")
    assert run("cat", dirty / "prices" / "0.tsv").out == b"".join(TSV[6:])
    again = logfs("compact", dirty / "prices", "--roll", "--json")
    (row,) = json.loads(again.out)
    assert (row["end_offset"], row["rounds"], row["written_records"]) == (10, 1, 3)
    assert run("cat", dirty / "prices" / "0.tsv").out == b"".join(TSV[7:])


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "expected a partition, TOPIC/PARTITION, or a topic, TOPIC"),
        ("prices/0.tsv", "expected a partition"),
        ("prices/5", "topic prices has no partition 5"),
        ("nix/0", "no topic nix"),
        ("plain", "plain/0: its cleanup.policy is delete, so records stay"),
    ],
)
def test_refusals(logfs: Call, dirty: Path, address: str, reason: str) -> None:
    logfs("topic", "create", dirty / "plain")
    path = str(dirty / address)
    status, out, errors = logfs("compact", path)
    assert (status, out, len(errors)) == (1, b"", 1)
    assert errors[0].startswith(f"logfs: {path}: ")
    assert reason in errors[0]


def test_compact_leaves_the_active_segment_alone(logfs: Call, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    create(tmp_path / "data")
    _, out, _ = logfs("compact", tmp_path / "data" / "prices")
    assert out == b"prices/0: nothing to compact: all of it is in the active segment (see --roll)\n"


@pytest.mark.fuse
def test_a_daemon_compacts_its_directory(mounted: Mounted) -> None:
    create(mounted.data)
    path = mounted.point / "prices" / "0"
    for line in TSV:
        with path.with_name("0.tsv").open("ab") as file:
            file.write(line)
    raw = mounted.point / ".segments" / "prices-0" / f"{0:020}.log"
    inodes, before = (os.stat(path).st_ino, os.stat(raw).st_ino), path.read_bytes()
    with path.with_name("0@earliest..latest").open("rb") as fixed, raw.open("rb") as old:
        outcome = run("compact", mounted.data / "prices" / "0")
        assert (outcome.status, outcome.errors) == (0, [])
        assert b"prices/0: 9 records became 3" in outcome.out
        assert fixed.read() == before
        assert path.read_bytes() == b"v6\nv7\nv8\nv9\n"
        assert path.with_name("0.tsv").read_bytes() == b"".join(TSV[6:])
        assert len(old.read()) > 0
    meta = json.loads(path.with_name("0.meta").read_bytes())
    assert meta["cleaner"]["first_dirty_offset"] == 9
    assert os.stat(path).st_size == len(before)
    assert os.stat(path).st_ino == inodes[0]
    assert os.stat(raw).st_ino != inodes[1]
    assert run("compact", mounted.point / "prices", "--roll").status == 0
    assert path.read_bytes() == b"v7\nv8\nv9\n"
