"""``logfs offsets``, on a data directory and beside a daemon."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.types import View
from tests.cli.conftest import Call, Mounted, fill, run

HOURS = [1_700_000_000_000 + hour * 3_600_000 for hour in (0, 1, 3, 2, 5)]
TEXT = b"".join(b'{"timestamp":%d,"value":"v"}\n' % timestamp for timestamp in HOURS)
FIRST = "2023-11-14T22:13:20.000+00:00"


@pytest.fixture(autouse=True)
def _utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC0")
        time.tzset()
        yield
    time.tzset()


def make(data: Path) -> Path:
    fill(data, {"orders/1": TEXT, "orders/0": b"", "orders/2": TEXT[:-1]}, view=View.JSONL)
    return data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("offsets") / "data")


def rows(out: bytes) -> list[list[str]]:
    return [line.split() for line in out.decode().splitlines()[1:]]


@pytest.mark.parametrize("flags", [[], ["--as-kafka"], ["--isolation-level", "read_committed"]])
def test_offsets_of_a_partition(logfs: Call, data: Path, flags: list[str]) -> None:
    status, out, errors = logfs("offsets", data / "orders" / "1", *flags)
    assert (status, errors) == (0, [])
    assert rows(out) == [
        ["1", "earliest", "0", "-"],
        ["1", "latest", "5", "-"],
        ["1", "max-timestamp", "4", "2023-11-15T03:13:20.000+00:00"],
    ]


def test_offsets_of_every_partition_of_a_topic(logfs: Call, data: Path) -> None:
    _, out, _ = logfs("offsets", data / "orders", "--time", str(HOURS[0]), "--time", "latest")
    assert rows(out) == [
        ["0", str(HOURS[0]), "-", "-"],
        ["0", "latest", "0", "-"],
        ["1", str(HOURS[0]), "0", FIRST],
        ["1", "latest", "5", "-"],
        ["2", str(HOURS[0]), "0", FIRST],
        ["2", "latest", "5", "-"],
    ]


def test_offsets_of_every_topic_of_a_data_directory(
    logfs: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make(tmp_path / "data")
    fill(data, {"a.b/0": TEXT}, view=View.JSONL)
    outcome = logfs("offsets", data, "--time", "latest")
    assert outcome.out.split()[:2] == [b"TOPIC", b"PARTITION"]
    assert rows(outcome.out) == [
        ["a.b", "0", "latest", "5", "-"],
        ["orders", "0", "latest", "0", "-"],
        ["orders", "1", "latest", "5", "-"],
        ["orders", "2", "latest", "5", "-"],
    ]
    monkeypatch.chdir(data)
    assert logfs("offsets", "--time", "latest") == outcome
    found = json.loads(logfs("offsets", "--json", "--time", "earliest").out)
    assert [(row["topic"], row["partition"]) for row in found] == [
        ("a.b", 0), ("orders", 0), ("orders", 1), ("orders", 2)
    ]  # fmt: skip


@pytest.mark.expect_log("could not be loaded")
def test_a_partition_that_cannot_be_loaded_keeps_no_other_from_being_shown(
    logfs: Call, tmp_path: Path
) -> None:
    data = make(tmp_path / "data")
    (data / "orders-0" / "partition.metadata").write_text("nonsense")
    for path in (data, data / "orders"):
        status, out, errors = logfs("offsets", path, "--time", "latest")
        assert status == 1
        assert [row[-4:] for row in rows(out)] == [
            ["1", "latest", "5", "-"],
            ["2", "latest", "5", "-"],
        ]
        assert len(errors) == 1
        assert errors[0].startswith(f"logfs: {path}: orders/0: it could not be loaded")


@pytest.mark.parametrize(
    ("time", "offset"),
    [
        ("2023-11-14", "0"),
        ("2023-11-14T23:00Z", "1"),
        ("2023-11-15T01:14:00.500+00:00", "4"),
        (str(HOURS[1]), "1"),
        ("-1ms", "-"),
        ("-99999d", "0"),
        ("now", "-"),
        ("earliest", "0"),
        ("latest", "5"),
        ("max-timestamp", "4"),
    ],
)
def test_every_time_of_the_selectors(logfs: Call, data: Path, time: str, offset: str) -> None:
    assert rows(logfs("offsets", data / "orders" / "1", "--time", time).out)[0][2] == offset


def test_a_time_that_was_printed_can_be_asked_for(logfs: Call, data: Path) -> None:
    for offset, timestamp in ((1, HOURS[1]), (2, HOURS[2]), (2, HOURS[3]), (4, HOURS[4])):
        for flags in ((), ("--as-kafka",)):
            call = ("offsets", data / "orders" / "1", *flags, "--time")
            [found] = rows(logfs(*call, str(timestamp)).out)
            assert found[2] == str(offset)
            assert rows(logfs(*call, found[3]).out)[0][2] == str(offset)


def test_json_has_an_object_for_each_offset(logfs: Call, data: Path) -> None:
    arguments = ("--json", "--time", "2023-11-15T02:00Z", "--time", "now")
    status, out, errors = logfs("offsets", data / "orders" / "1", *arguments)
    assert (status, errors) == (0, [])
    common = {"topic": "orders", "partition": 1}
    assert json.loads(out) == [
        {**common, "time": "2023-11-15T02:00Z", "offset": 4, "timestamp": HOURS[4]},
        {**common, "time": "now", "offset": None, "timestamp": None},
    ]


@pytest.mark.parametrize(
    ("address", "time", "expected"),
    [
        ("orders/1", "20231115", "eight digits"),
        ("orders/1", "offset=3", "expected a time, earliest, latest or max-timestamp"),
        ("orders/1@-1h", "now", "moments go into --time"),
        ("orders/1.tsv", "now", "expected the number of a partition"),
        ("orders/7", "now", "has no partition 7"),
        ("order", "now", "no topic order"),
        ("orders/1/2", "now", "expected TOPIC or TOPIC/PARTITION"),
        (".segments", "now", "expected TOPIC or TOPIC/PARTITION"),
    ],
)
def test_offsets_refuses_wrong_arguments(
    logfs: Call, data: Path, address: str, time: str, expected: str
) -> None:
    status, out, errors = logfs("offsets", data / address, "--time", time)
    assert (status, out) == (1, b"")
    assert expected in errors[0]


def test_offsets_changes_nothing(logfs: Call, data: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in data.rglob("*")}

    before = state()
    logfs("offsets", data / "orders")
    logfs("offsets", data / "orders", "--as-kafka")
    assert state() == before


@pytest.mark.fuse
@pytest.mark.slow
def test_offsets_while_a_daemon_serves_the_directory(mounted: Mounted) -> None:
    (mounted.point / "orders").mkdir()
    with (mounted.point / "orders" / "0.jsonl").open("ab", buffering=0) as file:
        file.write(TEXT)
    for root in (mounted.point, mounted.data):
        out = run("offsets", root / "orders", "--time", str(HOURS[2]), "--time", "latest").out
        assert rows(out) == [
            ["0", str(HOURS[2]), "2", "2023-11-15T01:13:20.000+00:00"],
            ["0", "latest", "5", "-"],
        ]
