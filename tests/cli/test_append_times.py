"""``logfs append --timestamp-format``: the times of records are those in their lines."""

import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from logfs.records.linetimes import LineTimes
from tests.cli.conftest import Call

NOW_MS = 1_795_132_800_000  # 2026-11-20T00:00Z
BERLIN = ZoneInfo("Europe/Berlin")


def ms(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("form", "line", "expected"),
    [
        ("iso", b"x 2026-11-19T10:00:00.123Z y", ms(2026, 11, 19, 10) + 123),
        ("iso", b"2026-11-19 10:00:00,5 +01:00", ms(2026, 11, 19, 9) + 500),
        ("iso", b"2026-11-19T10:00", ms(2026, 11, 19, 9)),
        ("epoch-ms", b'{"t":1700000000123}', 1_700_000_000_123),
        ("%s", b"1700000000 x", 1_700_000_000_000),
        ("%s.%f", b"[1700000000.25]", 1_700_000_000_250),
        ("%d/%b/%Y:%H:%M:%S %z", b"[19/Nov/2026:10:00:07 +0100] GET", ms(2026, 11, 19, 9, 0, 7)),
        ("%b %d %H:%M:%S", b"Nov  9 10:00:00 host", ms(2026, 11, 9, 9)),
        ("%b %e %T", b"Dec 24 10:00:00 host", ms(2025, 12, 24, 9)),
        ("%b %d %H:%M", b"Feb 29 10:00 host", ms(2024, 2, 29, 9)),
        ("%m/%d/%y %I:%M:%S %p", b"07/01/26 12:30:00 AM", ms(2026, 6, 30, 22, 30)),
        ("%F %R 100%%", b"2026-07-01 01:02 100%", ms(2026, 6, 30, 23, 2)),
        ("iso", b"2026-02-30T10:00:00", None),
        ("iso", b"no time", None),
    ],
)  # fmt: skip
def test_times_are_found_in_lines(form: str, line: bytes, expected: int | None) -> None:
    assert LineTimes(form, BERLIN, NOW_MS).find(line) == expected


@pytest.mark.parametrize("form", ["", "%Q", "%Y", "%Y-%m-%d", "%Y %Y", "iso8601", "%"])
def test_a_format_that_makes_no_time_is_refused(form: str) -> None:
    with pytest.raises(ValueError, match=r"time|twice"):
        LineTimes(form, UTC, NOW_MS)


def rows(logfs: Call, path: Path) -> list[tuple[int, object, object]]:
    lines = logfs("cat", f"{path}.jsonl").out.splitlines()
    return [(row["timestamp"], row["key"], row["value"]) for row in map(json.loads, lines)]


def test_records_have_the_times_of_their_lines(logfs: Call, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "app.log"
    data.mkdir()
    file.write_bytes(
        b"2026-11-19T10:00:00Z start\n"
        b"  at main\n"
        b"\xff 2026-11-19T10:00:01Z bytes\n"
        b"2026-11-19T09:59:59Z last"
    )
    where = data / "app" / "0"
    done = logfs(
        "append", where, file, "--create", "--timestamp-format", "iso", "--header", "host=a"
    )
    assert done.status == 0, done
    ten = ms(2026, 11, 19, 10)
    assert rows(logfs, where) == [
        (ten, None, "2026-11-19T10:00:00Z start"),
        (ten, None, "  at main"),
        (ten + 1000, None, {"base64": "/yAyMDI2LTExLTE5VDEwOjAwOjAxWiBieXRlcw=="}),
        (ten - 1000, None, "2026-11-19T09:59:59Z last"),
    ]
    assert logfs("cat", where).out == file.read_bytes() + b"\n"
    assert logfs("tail", "--header", "host=a", where).out.count(b"\n") == 4


def test_a_line_before_the_first_time_is_refused(logfs: Call, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "app.log"
    data.mkdir()
    file.write_bytes(b"a=2026-11-19T10:00:00Z one\n")
    options = ["--create", "--timestamp-format", "iso", "--key-delimiter", "="]
    assert logfs("append", data / "app", file, *options).status == 0
    assert rows(logfs, data / "app" / "0")[0][1:] == ("a", "2026-11-19T10:00:00Z one")
    file.write_bytes(b"none\n2026-11-19T10:00:00Z one\n")
    refused = logfs("append", data / "app" / "0", file, *options)
    assert refused.status == 1
    assert "line 1" in refused.errors[0]
    assert "no time in the format" in refused.errors[0]
    assert len(rows(logfs, data / "app" / "0")) == 1
    refused = logfs("append", data / "app" / "0.jsonl", file, "--timestamp-format", "iso")
    assert "--timestamp-format is for text" in refused.errors[0]


@pytest.mark.parametrize(
    ("line", "moment"),
    [
        ("20261128T100000Z", "2026-11-28T10:00:00+00:00"),
        ("20261128T1000+0100", "2026-11-28T09:00:00+00:00"),
        ("20261128T100000.250Z started", "2026-11-28T10:00:00.250+00:00"),
        ("id 12345678 1234 2026-11-28T10:00:00Z", "2026-11-28T10:00:00+00:00"),
        ("2026-11-28T24:00:00Z", "2026-11-29T00:00:00+00:00"),
        ("2026-02-28 24:00Z", "2026-03-01T00:00:00+00:00"),
        ("2026-11-28T24:00:01Z", None),
        ("1202611281T1000001", None),
    ],
)
def test_more_forms_of_iso_8601(line: str, moment: str | None) -> None:
    found = LineTimes("iso", UTC, 0).find(line.encode())
    due = None if moment is None else int(datetime.fromisoformat(moment).timestamp() * 1000)
    assert found == due
