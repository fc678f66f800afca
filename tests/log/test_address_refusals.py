from datetime import UTC

import pytest

from logfs.errors import BadSelectorError, UnknownNameError
from logfs.log.reading.address import parse_partition_name, parse_point

MAX_INT64 = 2**63 - 1

BAD_POINTS = [
    ("20261120", "write 2026-11-20 or 1970-01-01T05:37:41.120Z"),
    ("00000000", "eight digits"),
    ("007", "leading zeros"),
    ("-05m", "leading zeros"),
    ("offset=01", "leading zeros"),
    ("offset=-0", "write 0 or latest"),
    ("byte=-0", "write 0 or latest"),
    (str(MAX_INT64 + 1), "at most 9223372036854775807"),
    (f"offset={MAX_INT64 + 1}", "at most 9223372036854775807"),
    (f"-{MAX_INT64 + 1}ms", "at most 9223372036854775807"),
    (f"-{MAX_INT64}s", "at most 9223372036854775807 ms"),
    ("9" * 10_000, "at most 9223372036854775807"),
    ("-5", "units ms s m h d w"),
    ("-5y", "units ms s m h d w"),
    ("-5M", "units ms s m h d w"),
    ("2026-13-01", "month must be in 1..12"),
    ("2026-02-29", "day is out of range"),
    ("2026-11-20T24:00", "hour must be in 0..23"),
    ("2026-11-20T23:60", "minute must be in 0..59"),
    ("2026-11-20T23:59:60", "second must be in 0..59"),
    ("0000-01-01", "not a date"),
    ("0001-01-01T00:00+00:01", "before year 1"),
    ("2026-11-20T10:00+24:00", "less than 24:00"),
    ("2026-11-20T10:00+01:60", "less than 24:00"),
    *(
        (text, "a point is a date")
        for text in (
            "",
            " ",
            "-",
            "--5m",
            "+5m",
            "15m",
            "-1.5h",
            "-1h30",
            "-5 m",
            "- 5m",
            "NOW",
            "Latest",
            "end",
            "now ",
            " now",
            "now\n",
            "offset=",
            "offset=+5",
            "offset=--5",
            "offset=1e3",
            "offset=0x10",
            "offset=1_000",
            "Offset=5",
            "offset",
            "byte=",
            "byte=5k",
            "bytes=5",
            "line=5",
            "1700000000000ms",
            "1700000000.5",
            "1_700_000_000_000",
            "2026-11",
            "2026-1-2",
            "26-11-20",
            "12026-11-20",
            "2026-W47-5",
            "2026-324",
            "2026-11-20T",
            "2026-11-20T10",
            "2026-11-20t10:00",
            "2026-11-20  10:00",
            "2026-11-20T10:00:",
            "2026-11-20T10:00:00.",
            "2026-11-20T10:00:00.1234",
            "2026-11-20T10:00:00,123",
            "2026-11-20T10:00.5",
            "2026-11-20T10:00z",
            "2026-11-20T10:00+1",
            "2026-11-20T10:00+0100",
            "2026-11-20T10:00 Europe/Berlin",
            "2026-11-20Z",
            "20261120T1000",
            "\u0663",  # Arabic-Indic digits
            "\u0661\u0667\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660",
            "-\u0661\u0665m",
            "offset=\u0661",
            "\uff12\uff10\uff12\uff16-11-20",  # full-width digits
            "2026\u221211\u221220",  # minus signs
            "\u00b2",
            "\udcff",
            "\0",
        )
    ),
]


@pytest.mark.parametrize(("text", "reason"), BAD_POINTS)
def test_bad_points(text: str, reason: str) -> None:
    with pytest.raises(BadSelectorError) as caught:
        parse_point(text, UTC)
    assert reason in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", [text for text, _ in BAD_POINTS])
@pytest.mark.parametrize("name", ["0@{}", "0@{}.jsonl", "0@{}..now", "0@now..{}", "7@now..{}.tsv"])
def test_a_bad_point_is_a_bad_selector_wherever_it_is(text: str, name: str) -> None:
    with pytest.raises(BadSelectorError):
        parse_partition_name(name.format(text), UTC)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("0@", "FROM is missing"),
        ("0@.jsonl", "FROM is missing"),
        ("0@..", "FROM is missing"),
        ("0@..now", "FROM is missing"),
        ("0@now..", "TO is missing"),
        ("0@now...tsv", "TO is missing"),
        ("0@offset=1..offset=2..offset=3", "'offset=2..offset=3'"),
        ("0@now...latest", "'.latest'"),
        ("0@@now", "'@now'"),
        ("0@now@now", "'now@now'"),
        ("0@now.JSONL", "'now.JSONL'"),
        ("0@now.jsonl.tsv", "'now.jsonl'"),
        ("0@now.csv", "'now.csv'"),
        ("0@2026-11-20T00:00:00.123.456", "'2026-11-20T00:00:00.123.456'"),
    ],
)
def test_bad_selectors(name: str, reason: str) -> None:
    with pytest.raises(BadSelectorError) as caught:
        parse_partition_name(name, UTC)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *("00", "01", "00@now", "01.jsonl", "-1", "-1@now", "+1", "1.0", "1e3", "0x1", "0-", "0~"),
        *("0.JSONL", "0.Tsv", "0.jsonl.tsv", "0.csv", "0.", "0..", ".0", ".tsv", "0.swp", "0.txt"),
        *("@now", "0now", "0:now", "0.@now", "0.tsv@now", "a", "a@now", ".segments", ".", ".."),
        *("2147483648", "2147483648@now", "99999999999999999999", "0/1", ".0.swp"),
        *("\u0663", "\u0663@now", "1\u0663", "1\u0663@now", "\u00b2"),
        *("", " ", " 0", "0 ", "0\n", "\n0", "0.tsv\n", "0\t", "\udcff"),
    ],
)
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownNameError, match="no such name; expected PARTITION"):
        parse_partition_name(name, UTC)
