"""``logfs plan``: what it prints, for a topic to be and for a directory that is."""

import json
from pathlib import Path

import pytest

from logfs.cli.commands.plan import plan
from logfs.cli.terminal.quantities import duration, format_duration, size
from tests.cli.conftest import Call, Mounted, fill, run
from tests.cli.examples import arguments_of, examples_of

LINES = b"".join(b"line %d\n" % n for n in range(1000))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", {"orders/0": LINES, "other/0": b"one\n"})
    return tmp_path / "data"


@pytest.mark.parametrize("example", [line for line in examples_of(plan) if "--rate" in line])
def test_the_examples(logfs: Call, example: str) -> None:
    arguments = arguments_of(example, Path())
    status, out, errors = logfs(*arguments)
    assert (status, errors) == (0, [])
    assert b"disk needed" in out
    status, out, _ = logfs(*arguments, "--json")
    found = json.loads(out)
    parts = ("log", "offset_index", "time_index", "text_index", "small")
    assert found["disk"] == sum(found[part] for part in parts)
    assert found["recovery_s"] > 0


def test_there_are_examples_of_both_kinds() -> None:
    assert [("--rate" in line) for line in examples_of(plan)] == [True, True, True, True, False]


def test_records_and_bytes_are_the_same(logfs: Call) -> None:
    by_records = json.loads(logfs("plan", "--rate", "10k/s", "--record", "200", "--json").out)
    by_bytes = json.loads(logfs("plan", "--rate", "2MB/s", "--record", "200B", "--json").out)
    assert by_records["disk"] == by_bytes["disk"]
    assert by_records["records_per_s"] == 10_000


def test_disk_says_how_long_it_lasts(logfs: Call) -> None:
    out = logfs("plan", "--rate", "100", "--disk", "1TB").out.decode()
    assert "enough: " in out
    out = logfs("plan", "--rate", "100k", "--disk", "100GB").out.decode()
    assert "full after 9" in out  # and some minutes


def test_warnings(logfs: Call) -> None:
    endless = logfs("plan", "--rate", "1", "--config", "retention.ms=-1")
    assert endless.errors == [
        "logfs: warning: nothing is ever deleted: set retention.ms or retention.bytes"
    ]
    coarse = logfs("plan", "--rate", "1000", "--config", "retention.bytes=1000000")
    assert "a smaller segment.bytes saves most of the granularity" in coarse.errors[0]
    assert coarse.status == 0


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        ((), 2, "expected either --rate, or the PATH"),
        (("--rate", "1", "/tmp"), 2, "expected either --rate, or the PATH"),
        (("--rate", "many"), 2, "expected records as 5000/s, or bytes as 10MB/s"),
        (("--rate", "0"), 2, "expected more than nothing"),
        (("--rate", "1", "--record", "5 apples"), 2, "expected a size as 500, 64KiB or 1.5GB"),
        (("--rate", "1", "--tail", "soon"), 2, "expected a duration as 90s"),
        (("--rate", "1", "--config", "retention.ms=soon"), 1, "retention.ms"),
        (("--rate", "1", "--config", "cleanup.policy=compact"), 1, "expected --key SIZE and"),
        (("--rate", "1", "--record", "3MB"), 1, "max.message.bytes"),
    ],
)
def test_plan_refuses_wrong_arguments(
    logfs: Call, arguments: tuple[str, ...], status: int, expected: str
) -> None:
    outcome = logfs("plan", *arguments)
    assert (outcome.status, outcome.out) == (status, b"")
    assert expected in outcome.errors[-1]


def test_plan_of_a_directory(logfs: Call, data: Path) -> None:
    status, out, errors = logfs("plan", data)
    assert (status, errors) == (0, [])
    lines = out.decode().splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["TOPIC", "orders", "other"]
    assert lines[-1].startswith("free: ")
    found = json.loads(logfs("plan", "--json", data).out)
    assert [(row["topic"], row["records"]) for row in found["topics"]] == [
        ("orders", 1000),
        ("other", 1),
    ]
    assert found["free"] > 0
    assert logfs("plan", data / "orders").status == 1


@pytest.mark.fuse
@pytest.mark.slow
def test_plan_of_a_mount(mounted: Mounted) -> None:
    (mounted.point / "orders").mkdir()
    with (mounted.point / "orders" / "0").open("ab") as file:
        file.write(LINES)
    [row] = json.loads(run("plan", "--json", mounted.point).out)["topics"]
    assert row["records"] == 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500", 500), ("64KiB", 65_536), ("64K", 65_536), ("1.5GB", 1.5e9), ("2M", 2 << 20)],
)
def test_sizes(text: str, expected: float) -> None:
    assert size(text) == expected


def test_durations() -> None:
    assert [duration(text) for text in ("90s", "15m", "1.5h", "7d")] == [90, 900, 5400, 604_800]
    assert [format_duration(s) for s in (0.25, 1, 119, 120, 7200, 172_800)] == [
        "250 ms", "1.0 s", "119.0 s", "2.0 min", "2.0 h", "2.0 d",
    ]  # fmt: skip
