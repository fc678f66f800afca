"""``logfs explain``: the meaning of an address, and what is wrong with one."""

import json
import time
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest

from logfs.errors import LogfsError
from logfs.library.addresses import find
from logfs.library.places import locate
from logfs.types import IsolationLevel, View
from tests.cli.conftest import Call, Mounted, fill, run

HOURS = [1_700_000_000_000 + hour * 3_600_000 for hour in range(4)]
TEXT = b"".join(b'{"timestamp":%d,"value":"v"}\n' % timestamp for timestamp in HOURS)
FIRST, THIRD = "2023-11-14T22:13:20.000+00:00", "2023-11-15T00:13:20.000+00:00"


@pytest.fixture(autouse=True)
def _utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC0")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("explain") / "data"
    fill(data, {"orders/0": TEXT, "orders/1": TEXT[: TEXT.index(b"\n") + 1]}, view=View.JSONL)
    return data


def explained(out: bytes) -> tuple[list[str], list[list[str]]]:
    """Return the lines before the table, and its rows."""
    view, kind, _, *rows = out.decode().splitlines()
    return [view, kind], [row.split() for row in rows]


@pytest.mark.parametrize(
    ("name", "kind", "rows"),
    [
        ("0", "grows", [["0", "FROM", "earliest", "-", "0", FIRST]]),
        ("0@offset=-2", "grows", [["0", "FROM", "offset=-2", "-", "2", THIRD]]),
        (
            "0@2023-11-15..latest",
            "fixed",
            [
                ["0", "FROM", "2023-11-15T00:00:00Z", "2023-11-15T00:00:00.000+00:00", "2", THIRD],
                ["TO", "latest", "-", "4", "-"],
            ],
        ),
        (
            "0@group=none..2099-01-01T01:00+01:00",
            "grows: later records are added, until a record reaches TO",
            [
                ["0", "FROM", "earliest", "-", "0", FIRST],
                ["TO", "2099-01-01T00:00:00Z", "2099-01-01T00:00:00.000+00:00", "4", "-"],
            ],
        ),
    ],
)
def test_an_address_is_explained_with_offsets_and_times(
    logfs: Call, data: Path, name: str, kind: str, rows: list[list[str]]
) -> None:
    status, out, errors = logfs("explain", data / "orders" / name)
    assert (status, errors) == (0, [])
    (view, found), table = explained(out)
    assert view == "text: each value and a newline, nothing escaped"
    assert found.startswith(kind)
    assert table == rows


def test_a_range_of_a_topic_is_explained_for_each_partition(logfs: Call, data: Path) -> None:
    _, out, _ = logfs("explain", data / "orders@earliest.jsonl")
    (view, kind), rows = explained(out)
    assert view.startswith(".jsonl: one JSON object a line")
    assert kind == "fixed: it never changes"
    assert [row[:3] for row in rows] == [["0", "FROM", "earliest"], ["1", "FROM", "earliest"]]


def test_the_view_of_facts_has_no_range(logfs: Call, data: Path) -> None:
    assert logfs("explain", data / "orders" / "0.meta").out.startswith(b".meta: JSON: ")


@pytest.mark.parametrize(
    ("name", "part", "message"),
    [
        ("orders/0@20261120", "20261120", "write 2026-11-20"),
        ("orders/0@-1h..15m", "15m", "did you mean -15m?"),
        ("orders/0@Today.jsonl", "Today", "did you mean today?"),
        ("orders@-1h..", "@-1h..", "TO is missing"),
    ],
)
def test_the_wrong_part_of_a_name_is_marked(
    logfs: Call, data: Path, name: str, part: str, message: str
) -> None:
    status, out, (path, mark, error) = logfs("explain", data / name)
    assert (status, out, path) == (1, b"", str(data / name))
    assert path[mark.index("^") : len(mark)] == part
    assert message in error


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "expected one of its partitions"),
        ("order", "no topic order"),
        ("order/0", "no topic order"),
        ("order@-1h", "no topic order"),
        ("orders", "a directory; expected one of its partitions"),
        ("orders/7@-1h", "topic orders has no partition 7"),
        ("orders/0/x", "nothing lies below orders/0"),
        ("orders/0@-1h/x", "nothing lies below orders/0@-1h"),
        ("orders@-1h/0", "nothing lies below orders@-1h"),
        ("orders/x", "no such name"),
        ("orders/0@-1h.meta", ".meta goes without a selector"),
        ("orders@-1h.meta", ".meta is a view of one partition"),
        ("orders@byte=0", "a byte is a point of one partition"),
        ("orders/0@-1y", "a duration ends in one of the units"),
        (".segments", "a directory; expected one of the files"),
        (".segments/orders-0", "a directory; expected one of the files"),
    ],
)
def test_a_name_is_refused_in_the_words_of_the_library(
    logfs: Call, data: Path, name: str, message: str
) -> None:
    status, out, errors = logfs("explain", data / name)
    assert (status, out) == (1, b"")
    assert message in errors[-1]
    with pytest.raises(LogfsError) as refused:
        find(locate(str(data / name)), IsolationLevel.READ_UNCOMMITTED, UTC)
    assert errors[-1] == f"logfs: {data / name}: {refused.value}"


@pytest.mark.parametrize(
    "name",
    [
        *(f"orders/{n}.jsonl" for n in (0, "0@offset=1", "1@offset=-1", "0@offset=9")),
        *(f"orders/0@{span}.jsonl" for span in ("offset=1..offset=3", "-1h", "earliest..latest")),
        *(f"orders/0@{span}.jsonl" for span in ("2023-11-15", "group=none", "group=none..-1m")),
        *(f"orders@{span}.jsonl" for span in ("offset=1", "offset=-1..latest", "2023-11-15")),
        *(f"orders@{span}.jsonl" for span in ("group=none", "earliest..group=none")),
    ],
)
def test_cat_prints_the_offsets_that_explain_says(logfs: Call, data: Path, name: str) -> None:
    ends = {"0": 4, "1": 1}
    printed = [json.loads(line)["offset"] for line in logfs("cat", data / name).out.splitlines()]
    said: list[int] = []
    partition, begin = "", 0
    for row in explained(logfs("explain", data / name).out)[1]:
        if row[1] == "FROM":
            partition, begin = row[0], int(row[-2])
            said += range(begin, ends[partition])
        else:
            said = [*said[: len(said) - (ends[partition] - begin)], *range(begin, int(row[-2]))]
    assert sorted(printed) == sorted(said)


@pytest.mark.fuse
def test_a_mount_explains_its_names(mounted: Mounted) -> None:
    (mounted.point / "orders").mkdir()
    with (mounted.point / "orders/0.jsonl").open("ab") as file:
        file.write(TEXT)
    for root in (mounted.point, mounted.data):
        status, out, errors = run("explain", root / "orders/0@2023-11-15..latest")
        assert (status, errors) == (0, [])
        assert [row[-2] for row in explained(out)[1]] == ["2", "4"]
