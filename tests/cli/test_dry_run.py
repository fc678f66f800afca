"""``--dry-run``: it shows what the command then does, and changes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from logfs.types import View
from tests.cli.conftest import Call, Mounted, fill, run

SMALL = ["--config", "internal.segment.bytes=100"]
COMPACT = [*SMALL, "--config", "cleanup.policy=compact"]


@pytest.fixture
def data(logfs: Call, tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    logfs("topic", "create", data / "orders", *SMALL, "--partitions", "2")
    logfs("topic", "create", data / "prices", *COMPACT)
    for n in range(10):
        fill(data, {"orders/0": b"%d\n" % n, "orders/1": b"%d\n" % n})
        fill(data, {"prices/0": b"k%d\tv%d\n" % (n % 3, n)}, view=View.TSV)
    return data


def rows(out: bytes) -> list[dict[str, Any]]:
    """Return the objects that a command has printed, without the time that it took."""
    return [{key: x for key, x in row.items() if key != "elapsed_s"} for row in json.loads(out)]


def state(logfs: Call, data: Path) -> list[bytes]:
    names = ["orders/0.jsonl", "orders/1.jsonl", "prices/0.jsonl"]
    return [logfs("offsets", data / "orders").out, *(logfs("cat", data / n).out for n in names)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["trim", "orders@offset=4"],
        ["trim", "orders/0@offset=5", "--now"],
        ["trim", "orders/1@latest", "--now"],
        ["trim", "orders@offset=0"],
        ["compact", "prices"],
        ["compact", "prices/0"],
    ],
    ids=" ".join,
)
def test_the_preview_is_what_the_command_does(
    logfs: Call, data: Path, arguments: list[str]
) -> None:
    name, path, *options = arguments
    before = state(logfs, data)
    preview = logfs(name, data / path, *options, "--dry-run", "--json")
    assert (preview.status, preview.errors) == (0, [])
    assert state(logfs, data) == before
    done = logfs(name, data / path, *options, "--json")
    assert rows(preview.out) == rows(done.out)


def test_the_daemon_shows_the_same(mounted: Mounted) -> None:
    run("topic", "create", mounted.data / "orders", *SMALL)
    run("topic", "create", mounted.data / "prices", *COMPACT)
    for n in range(8):
        with (mounted.point / "orders" / "0").open("ab") as file:
            file.write(b"%d\n" % n)
        with (mounted.point / "prices" / "0.tsv").open("ab") as file:
            file.write(b"k%d\tv%d\n" % (n % 3, n))
    for arguments in (["trim", "orders/0@offset=4", "--now"], ["compact", "prices"]):
        name, path, *options = arguments
        before = [(mounted.point / place).read_bytes() for place in ("orders/0", "prices/0.tsv")]
        preview = run(name, mounted.point / path, *options, "--dry-run", "--json")
        assert preview.status == 0, preview
        after = [(mounted.point / place).read_bytes() for place in ("orders/0", "prices/0.tsv")]
        assert after == before
        assert rows(preview.out) == rows(run(name, mounted.point / path, *options, "--json").out)


def test_sentences_say_would(logfs: Call, data: Path) -> None:
    assert logfs("trim", data / "orders" / "0@offset=4", "--now", "--dry-run").out == (
        b"orders/0 would start at offset 4, 4 offsets would be deleted\n"
        b"4 segments would be deleted, 276B would be removed\n"
    )
    compact = logfs("compact", data / "prices", "--dry-run").out
    assert compact.startswith(b"prices/0: 9 records would become 3, ")
    assert logfs("topic", "delete", data / "orders", "--dry-run").out == (
        b"orders would be deleted: 2 partitions, 20 offsets, 1.3KiB\n"
    )
    assert logfs("topic", "list", data).out == b"orders\nprices\n"


def test_refusals_are_those_of_the_command(logfs: Call, data: Path) -> None:
    for name, path in [
        ("trim", "prices/0@latest"),
        ("trim", "orders/0@offset=99"),
        ("compact", "orders"),
    ]:
        preview = logfs(name, data / path, "--dry-run")
        assert preview.status == 1
        assert preview == logfs(name, data / path)
    for options in (["--dry-run"], []):
        assert logfs("topic", "delete", data / "nix", *options).status == 1
    assert logfs("compact", data / "prices", "--roll", "--dry-run").status == 2


@pytest.mark.parametrize("topics", [[], ["--topic", "orders"]], ids=["all", "one"])
@pytest.mark.parametrize("beside", [False, True])
def test_a_restore_copies_what_its_preview_says(
    logfs: Call, data: Path, tmp_path: Path, topics: list[str], beside: bool
) -> None:
    backup, target = tmp_path / "backup", tmp_path / "new"
    assert logfs("backup", data, backup).status == 0
    if beside:
        target.mkdir()
        logfs("topic", "create", target / "other")
    preview = logfs("restore", backup, target, *topics, "--dry-run")
    if beside and not topics:
        assert preview == logfs("restore", backup, target)
        assert preview.status == 1
        return
    assert preview.status == 0, preview
    assert target.exists() == beside
    done = logfs("restore", backup, target, *topics)
    assert preview.out == done.out.replace(b" copied", b" would be copied")
    assert done.status == 0
