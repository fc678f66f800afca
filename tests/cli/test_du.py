"""``logfs du``: what files take, and what a mount shows of them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from logfs.cli.commands.du import du
from tests.cli.conftest import Call, Mounted, fill, run
from tests.cli.examples import arguments_of, examples_of

LINES = b"".join(b"line %d\n" % n for n in range(1000))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", {"orders/0": LINES, "orders/1": LINES, "other/0": b"one\n"})
    return tmp_path / "data"


def blocks(path: Path) -> int:
    """Return what a file takes, or everything in a directory."""
    found = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(p.stat().st_blocks * 512 for p in found)


def rows(logfs: Call, *arguments: str | Path) -> dict[str, dict[str, Any]]:
    status, out, errors = logfs("du", "--json", *arguments)
    assert (status, errors) == (0, [])
    return {row.pop("name"): row for row in json.loads(out)}


def test_topics_and_partitions(logfs: Call, data: Path) -> None:
    found = rows(logfs, data)
    assert list(found) == ["orders", "other", "(root)", "(total)"]
    assert found["orders"]["disk"] == blocks(data / "orders-0") + blocks(data / "orders-1")
    assert found["orders"]["log"] == sum(blocks(p) for p in data.glob("orders-*/*.log"))
    assert found["(total)"]["disk"] == blocks(data)
    for row in found.values():
        assert row["disk"] == row["log"] + row["index"] + row["other"]
    assert list(rows(logfs, data, "--all"))[:3] == ["orders/0", "orders/1", "other/0"]
    assert list(rows(logfs, data / "orders", data / "other")) == ["orders/0", "orders/1", "other/0"]


@pytest.mark.parametrize("example", examples_of(du))
def test_the_examples(logfs: Call, data: Path, example: str) -> None:
    status, out, errors = logfs(*arguments_of(example, data))
    assert (status, errors) == (0, [])
    assert b"orders" in out


def test_a_table_for_people(logfs: Call, data: Path) -> None:
    header, *lines = logfs("du", "-h", data / "orders").out.decode().splitlines()
    assert header.split() == ["NAME", "DISK", "LOG", "INDEX", "OTHER", "KEPT", "SHOWN"]
    assert lines[0].split()[-1] == "8.7KiB"
    assert logfs("du", data / "orders").out.decode().split()[-1] == str(len(LINES))


def test_deleted_records_are_in_shown_and_not_in_kept(logfs: Call, data: Path) -> None:
    assert logfs("topic", "alter", data / "orders", "--config", "segment.ms=1").status == 0
    for _ in range(2):
        fill(data, {"orders/0": LINES})
    before = rows(logfs, data / "orders" / "0")["orders/0"]
    assert (before["kept"], before["shown"]) == (3 * len(LINES), 3 * len(LINES))
    assert logfs("trim", data / "orders" / "0@offset=2000", "--now").status == 0
    after = rows(logfs, data / "orders" / "0")["orders/0"]
    assert (after["kept"], after["shown"]) == (len(LINES), 3 * len(LINES))
    assert after["log"] < before["log"]


def test_holes_and_further_names_add_nothing(logfs: Call, data: Path) -> None:
    before = rows(logfs, data)["orders"]["disk"]
    with (data / "orders-0" / f"{0:020}.index").open("r+b") as file:
        file.truncate(10_000_000)
    log = data / "orders-0" / f"{0:020}.log"
    os.link(log, data / "orders-1" / "copy")
    assert rows(logfs, data)["orders"]["disk"] == before
    assert rows(logfs, data)["orders"]["log"] == sum(blocks(p) for p in data.glob("orders*/*.log"))


def test_du_of_a_directory_of_a_broker(logfs: Call, data: Path) -> None:
    gone = data / f"old-0.{'0' * 32}-delete"
    gone.mkdir()
    (gone / f"{0:020}.log").write_bytes(bytes(10_000))
    (data / "orders-0" / "logfs.segments").unlink()
    found = rows(logfs, data)
    assert found["(deleted)"]["disk"] == found["(deleted)"]["log"] == blocks(gone)
    assert (found["orders"]["kept"], found["orders"]["shown"]) == (None, None)


def test_du_refuses_a_missing_path(logfs: Call, data: Path) -> None:
    status, out, errors = logfs("du", data / "nope")
    assert (status, out, errors) == (1, b"", [f"logfs: {data}/nope: no topic nope"])


@pytest.mark.fuse
@pytest.mark.slow
def test_du_of_a_mount(mounted: Mounted) -> None:
    (mounted.point / "orders").mkdir()
    with (mounted.point / "orders" / "0").open("ab") as file:
        file.write(LINES)
    for root in (mounted.point, mounted.data):
        [row] = json.loads(run("du", "--json", root / "orders").out)
        assert (row["kept"], row["shown"]) == (len(LINES), len(LINES))
        assert row["disk"] == blocks(mounted.data / "orders-0")
