"""``logfs cat`` on a data directory without a daemon."""

import json
import shutil
from pathlib import Path

import pytest

from logfs.log.lines.writer import LineWriter
from logfs.types import View
from tests.cli.conftest import Call, Mounted, fill, open_store, run

LINES = b"".join(b"line %d\n" % n for n in range(1000))


def make(data: Path) -> Path:
    """Make a data directory with a topic ``orders`` of three partitions."""
    fill(data, {"orders/2": b"", "orders/0": LINES})
    fill(data, {"orders/1": b"k\tv\nno key\n"}, view=View.TSV)
    return data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that no test changes."""
    return make(tmp_path_factory.mktemp("cat") / "data")


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The same, with a partition that cannot be loaded."""
    path = make(tmp_path / "data")
    (path / "orders-0" / "partition.metadata").write_text("nonsense")
    return path


def snapshot(data: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of everything in a directory."""
    found = {str(p): p.stat() for p in data.rglob("*")}
    return {name: (s.st_size, s.st_mtime_ns) for name, s in found.items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0", LINES),
        ("2", b""),
        ("1", b"v\nno key\n"),
        ("1.tsv", b"k\tv\n\\N\tno key\n"),
        ("0@offset=-2", b"line 998\nline 999\n"),
        ("0@offset=1..offset=3", b"line 1\nline 2\n"),
        ("0@byte=5..byte=7", b"0\n"),
        ("0@earliest..latest", LINES),
        ("0@-1h", LINES),
        ("0@2000-01-01..2000-01-02", b""),
        ("0@-1h..2999-01-01", LINES),
        ("0@latest", b""),
    ],
)
def test_cat_prints_an_address(logfs: Call, data: Path, name: str, expected: bytes) -> None:
    before = snapshot(data)
    assert logfs("cat", data / "orders" / name) == (0, expected, [])
    assert snapshot(data) == before


def test_cat_prints_a_range_of_a_topic(logfs: Call, data: Path) -> None:
    before = snapshot(data)
    status, out, errors = logfs("cat", data / "orders@earliest..latest")
    assert (status, errors) == (0, [])
    assert sorted(out.splitlines()) == sorted([*LINES.splitlines(), b"v", b"no key"])
    assert [line for line in out.splitlines(keepends=True) if b"line" in line] == [
        *LINES.splitlines(keepends=True)
    ]
    assert logfs("cat", data / "orders@2000-01-01..2000-01-02") == (0, b"", [])
    assert logfs("cat", data / "orders@offset=1..offset=2.tsv").out.count(b"\n") == 2
    found = logfs("cat", "--grep", "line 99", "--no-prefix", data / "orders@offset=-15")
    assert found == (0, b"".join(b"line %d\n" % n for n in range(990, 1000)), [])
    assert snapshot(data) == before


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("nothing@-1h", "no topic nothing"),
        ("orders@-1h/0", "nothing lies below orders@-1h"),
        ("orders@-1h.meta", ".meta is a view of one partition"),
        ("orders@byte=0", "a byte is a point of one partition"),
        ("orders@lastweek", "not a point in a log"),
    ],
)
def test_cat_refuses_what_is_no_range_of_a_topic(
    logfs: Call, data: Path, name: str, part: str
) -> None:
    status, out, (error,) = logfs("cat", data / name)
    assert (status, out) == (1, b"")
    assert part in error


def test_json_lines(logfs: Call, data: Path) -> None:
    rows = [json.loads(line) for line in logfs("cat", data / "orders/1.jsonl").out.splitlines()]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, "k", "v"),
        (1, None, "no key"),
    ]


def test_cat_prints_meta(logfs: Call, data: Path) -> None:
    meta = json.loads(logfs("cat", data / "orders" / "0.meta").out)
    assert meta["topic"] == "orders"
    assert meta["log_end_offset"] == 1000
    assert meta["positions"]["text"] == {"start": 0, "end": len(LINES)}


def test_several_paths_one_after_the_other(logfs: Call, data: Path) -> None:
    outcome = logfs("cat", data / "orders/1", data / "orders/9", data / "orders/0@offset=-1")
    assert outcome.status == 1
    assert outcome.out == b"v\nno key\nline 999\n"
    assert outcome.errors == [f"logfs: {data}/orders/9: topic orders has no partition 9"]


def test_the_files_of_segments(logfs: Call, data: Path) -> None:
    directory = data / ".segments" / "orders-0"
    log = (data / "orders-0" / "00000000000000000000.log").read_bytes()
    assert logfs("cat", directory / "00000000000000000000.log").out == log
    assert logfs("cat", directory / "00000000000000000000.txt").out == LINES
    assert b"retention" not in logfs("cat", directory / "logfs.config").out


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nix", "no topic nix"),
        ("nix/0", "no topic nix"),
        ("orders-0/0", "no topic orders-0; a partition is named orders/0"),
        ("orders/3", "topic orders has no partition 3"),
        ("orders/0/1", "a partition is a file: nothing lies below orders/0"),
        ("orders/00", "'00': no such name; expected PARTITION"),
        ("orders/0@-1y", "'-1y': a duration ends in one of the units"),
        ("orders/0@-1h.meta", "'0@-1h.meta': .meta goes without a selector"),
        ("orders/0.follow", "'0.follow' waits for records to come, which only a mount can show"),
        (".segments", "a directory; expected one of the files, {data}/.segments/TOPIC-PARTITION"),
        (".segments/nix", "a directory; expected one of the files"),
        (".segments/nix/x", "'nix': expected TOPIC-PARTITION, as orders-0"),
        (".segments/nix-0/x", "no topic nix"),
        (".segments/orders-7/x", "topic orders has no partition 7"),
        (".segments/orders-0/x", "orders-0 has no file x"),
        (".segments/orders-0/00000000000000000005.txt", "orders-0 has no file 0000"),
    ],
)
def test_refusals(logfs: Call, data: Path, path: str, reason: str) -> None:
    given = str(data / path)
    status, out, errors = logfs("cat", given)
    assert (status, out, len(errors)) == (1, b"", 1)
    assert errors[0].startswith(f"logfs: {given}: {reason.format(data=data)}")


def test_cat_refuses_a_directory_without_logs(logfs: Call, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, _, errors = logfs("cat", tmp_path / "orders" / "0")
    assert status == 1
    assert errors == [
        f"logfs: {tmp_path}/orders/0: expected a data directory or a mount point of logfs before "
        f"TOPIC/PARTITION; {tmp_path}, the last directory of the path that exists, holds no logs"
    ]


def test_cat_prints_the_records_before_a_corrupt_batch(logfs: Call, tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, {"orders/0": b"good\n"})
    log = data / "orders-0" / "00000000000000000000.log"
    intact = log.stat().st_size
    fill(data, {"orders/0": b"damaged\n"})
    content = bytearray(log.read_bytes())
    content[intact + 61] ^= 0xFF
    log.write_bytes(content)
    status, out, errors = logfs("cat", data / "orders/0", data / "orders/0@offset=0..offset=1")
    assert (status, out) == (1, b"good\ngood\n")
    assert len(errors) == 1
    assert errors[0].startswith(f"logfs: {data}/orders/0: ")
    assert "00000000000000000000.log" in errors[0]


LARGE = b"".join(b"a line of a log that is copied in pieces %09d\n" % n for n in range(500_000))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that no test changes, with a log of 25 MB in several segments."""
    path = tmp_path_factory.mktemp("large") / "data"
    fill(path, {"big/0": b""})
    for begin in range(0, len(LARGE), 5_100_000):
        part = LARGE[begin : begin + 5_100_000]
        store = open_store(path)
        log = store.partition("big", 0)
        writer = LineWriter(log, View.TEXT)
        assert writer.write(part, 1_700_000_000_000) == len(part)
        writer.close(1_700_000_000_000)
        log.roll(1_700_000_000_000)
        store.close(1_700_000_000_000)
    return path


@pytest.mark.slow
def test_a_large_log_is_copied_in_pieces(logfs: Call, large: Path) -> None:
    log = large / "big" / "0"
    assert logfs("cat", log).out == LARGE
    assert logfs("cat", f"{log}@byte=77").out == LARGE[77:]
    assert logfs("cat", f"{log}@byte=77..byte=-9").out == LARGE[77:-9]
    rows = logfs("cat", f"{log}.jsonl").out.splitlines()
    assert len(rows) == 500_000
    assert [json.loads(rows[n])["offset"] for n in (0, 99_999, -1)] == [0, 99_999, 499_999]


@pytest.mark.slow
def test_a_large_log_is_printed_up_to_its_damage(logfs: Call, large: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(large, data)
    damaged = sorted((data / "big-0").glob("*.log"))[3]
    content = bytearray(damaged.read_bytes())
    content[2_500_000] ^= 0xFF
    damaged.write_bytes(content)
    status, out, errors = logfs("cat", data / "big" / "0")
    assert (status, len(errors)) == (1, 1)
    assert damaged.name in errors[0]
    assert LARGE.startswith(out)
    assert 15_100_000 < len(out) < 18_000_000


@pytest.mark.expect_log("could not be loaded")
def test_a_partition_that_cannot_be_loaded(logfs: Call, damaged: Path) -> None:
    status, out, errors = logfs("cat", damaged / "orders/0", damaged / "orders/1")
    assert (status, out) == (1, b"v\nno key\n")
    assert len(errors) == 1
    assert "orders/0: it could not be loaded" in errors[0]


@pytest.mark.parametrize("name", ["cat", "offsets", "append"])
def test_cat_reports_a_load_error_once(damaged: Path, name: str) -> None:
    # A separate process: what the layers below warn of is shown there.
    outcome = run(name, damaged / "orders/0", stdin=b"line\n")
    assert (outcome.status, len(outcome.errors)) == (1, 1), outcome
    assert "it could not be loaded" in outcome.errors[0]


def test_cat_loads_only_its_partition(logfs: Call, damaged: Path) -> None:
    # What cannot be loaded would be in the log.
    assert logfs("cat", damaged / "orders" / "1").status == 0


def test_cat_takes_no_lock(logfs: Call, tmp_path: Path) -> None:
    fill(tmp_path / "data", {"orders/0": b"a\n"})
    store = open_store(tmp_path / "data")
    assert logfs("cat", tmp_path / "data" / "orders" / "0") == (0, b"a\n", [])
    store.close(0)


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed", "high_watermark"])
def test_every_isolation_level_of_a_log_without_transactions(
    logfs: Call, data: Path, level: str
) -> None:
    for name, expected in (("0", LINES), ("0@earliest..latest", LINES), ("2", b"")):
        call = ("cat", "--isolation-level", level, data / "orders" / name)
        assert logfs(*call) == (0, expected, [])
    meta = json.loads(logfs("cat", "--isolation-level", level, data / "orders" / "0.meta").out)
    assert meta["isolation_level"] == level


def test_cat_refuses_an_unknown_isolation_level(logfs: Call, data: Path) -> None:
    status, _, errors = logfs("cat", "--isolation-level", "committed", data / "orders" / "0")
    assert status == 2
    assert "'read_uncommitted', 'read_committed', 'high_watermark'" in errors[-1]


@pytest.mark.fuse
@pytest.mark.slow
def test_cat_reads_the_files_for_another_isolation_level_than_the_mounts(mounted: Mounted) -> None:
    (mounted.point / "orders").mkdir()
    with (mounted.point / "orders" / "0").open("ab") as file:
        file.write(LINES)
    for root in (mounted.data, mounted.point):
        for level in ("read_uncommitted", "read_committed"):
            path = root / "orders" / "0"
            assert run("cat", "--isolation-level", level, path) == (0, LINES, [])
            meta = run("cat", "--isolation-level", level, f"{path}.meta").out
            assert json.loads(meta)["isolation_level"] == level
