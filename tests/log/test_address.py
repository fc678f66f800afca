import contextlib
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import BadSelectorError, IllegalTopicNameError, UnknownNameError
from logfs.log.reading.address import (
    SELECTOR_TABLE,
    VIEW_TABLE,
    Ago,
    AtByte,
    AtGroup,
    AtOffset,
    Earliest,
    Latest,
    Midnight,
    Moment,
    Now,
    PartitionAddress,
    Point,
    Suffix,
    format_address,
    format_point,
    parse_partition_name,
    parse_point,
    parse_topic_name,
)

BERLIN = ZoneInfo("Europe/Berlin")
MAX_INT64 = 2**63 - 1
YEAR_ONE_MS = -62135596800000
DAY_MS = 86_400_000
NOV_20_UTC_MS = 1795132800000  # date -d 2026-11-20T00:00Z +%s
NOV_20_BERLIN_MS = NOV_20_UTC_MS - 3_600_000
ZONES = st.sampled_from([UTC, BERLIN, timezone(timedelta(hours=14)), ZoneInfo("Asia/Kathmandu")])


def moment(text: str, time_zone: tzinfo = UTC) -> int:
    point = parse_point(text, time_zone)
    assert isinstance(point, Moment)
    return point.timestamp_ms


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Every example of the contract's section 1, in the zone Europe/Berlin.
        ("0", PartitionAddress(0)),
        ("0@2026-11-20T10:00", PartitionAddress(0, Moment(NOV_20_BERLIN_MS + 36_000_000))),
        ("0@-15m", PartitionAddress(0, Ago(900_000))),
        (
            "0@2026-11-20..2026-11-21",
            PartitionAddress(0, Moment(NOV_20_BERLIN_MS), Moment(NOV_20_BERLIN_MS + DAY_MS)),
        ),
        ("0@earliest..latest", PartitionAddress(0, Earliest(), Latest())),
        ("0@offset=1500", PartitionAddress(0, AtOffset(1500))),
        ("0@offset=-100", PartitionAddress(0, AtOffset(-100))),
        ("0@byte=1048576", PartitionAddress(0, AtByte(1048576))),
        ("0.jsonl", PartitionAddress(0, view=Suffix.JSONL)),
        ("0.tsv", PartitionAddress(0, view=Suffix.TSV)),
        ("0@-1h.jsonl", PartitionAddress(0, Ago(3_600_000), view=Suffix.JSONL)),
        ("0.follow", PartitionAddress(0, view=Suffix.FOLLOW)),
        ("0.meta", PartitionAddress(0, view=Suffix.META)),
        ("0.in", PartitionAddress(0, view=Suffix.IN)),
        ("7.jsonl.in", PartitionAddress(7, view=Suffix.JSONL_IN)),
        ("0@-90s", PartitionAddress(0, Ago(90_000))),
        ("0@-7d", PartitionAddress(0, Ago(7 * DAY_MS))),
        ("0@now", PartitionAddress(0, Now())),
        # And beyond.
        ("2147483647.tsv", PartitionAddress(2147483647, view=Suffix.TSV)),
        ("10@latest", PartitionAddress(10, Latest())),
        ("0@today", PartitionAddress(0, Midnight(0, BERLIN))),
        (
            "0@yesterday..tomorrow.tsv",
            PartitionAddress(0, Midnight(-1, BERLIN), Midnight(1, BERLIN), Suffix.TSV),
        ),
        ("3@-1h..now.follow", PartitionAddress(3, Ago(3_600_000), Now(), Suffix.FOLLOW)),
        (
            "0@2026-11-20T00:00:00.123Z.tsv",
            PartitionAddress(0, Moment(NOV_20_UTC_MS + 123), view=Suffix.TSV),
        ),
        (
            "0@2026-11-20T00:00:00.1Z..offset=5",
            PartitionAddress(0, Moment(NOV_20_UTC_MS + 100), AtOffset(5)),
        ),
    ],
)
def test_names(name: str, expected: PartitionAddress) -> None:
    assert parse_partition_name(name, BERLIN) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", Moment(0)),
        ("7", Moment(7)),
        ("1700000000000", Moment(1700000000000)),
        ("1234567", Moment(1234567)),
        ("123456789", Moment(123456789)),
        (str(MAX_INT64), Moment(MAX_INT64)),
        ("-0s", Ago(0)),
        ("-250ms", Ago(250)),
        ("-1s", Ago(1000)),
        ("-1m", Ago(60_000)),
        ("-1h", Ago(3_600_000)),
        ("-1d", Ago(DAY_MS)),
        ("-2w", Ago(14 * DAY_MS)),
        (f"-{MAX_INT64}ms", Ago(MAX_INT64)),
        ("offset=0", AtOffset(0)),
        (f"offset=-{MAX_INT64}", AtOffset(-MAX_INT64)),
        ("byte=0", AtByte(0)),
        ("byte=-1", AtByte(-1)),
        ("1969-12-31T23:59:59.999Z", Moment(-1)),
        ("0001-01-01", Moment(YEAR_ONE_MS)),
        ("2024-02-29T12:00:30", Moment(1709208030000)),
    ],
)
def test_points(text: str, expected: Point) -> None:
    assert parse_point(text, UTC) == expected


def test_offsets_from_utc() -> None:
    assert moment("2026-11-20T00:00Z", BERLIN) == NOV_20_UTC_MS
    assert moment("2026-11-20T01:00+01:00", BERLIN) == NOV_20_UTC_MS
    assert moment("2026-11-19T18:30:00-05:30", BERLIN) == NOV_20_UTC_MS
    assert moment("2026-11-20T00:00-00:00", BERLIN) == NOV_20_UTC_MS
    assert moment("2026-11-20", BERLIN) == NOV_20_BERLIN_MS
    assert moment("9999-12-31T23:59:59.999-23:59") > moment("9999-12-31T23:59:59.999Z")


def test_local_times_that_do_not_exist_or_exist_twice_resolve_as_fold_0() -> None:
    # Clocks go from 02:00 to 03:00 on 29 March 2026 and from 03:00 back to 02:00 on 25 October.
    assert moment("2026-03-29T02:30", BERLIN) == moment("2026-03-29T01:30Z")
    assert moment("2026-10-25T02:30", BERLIN) == moment("2026-10-25T00:30Z")
    assert moment("2026-10-25T03:00", BERLIN) == moment("2026-10-25T02:00Z")


@given(st.datetimes(min_value=datetime(1900, 1, 1)))
def test_dates_agree_with_datetime(local: datetime) -> None:
    local = local.replace(microsecond=local.microsecond // 1000 * 1000)
    expected = round(local.replace(tzinfo=BERLIN).timestamp() * 1000)
    assert moment(local.isoformat(timespec="milliseconds"), BERLIN) == expected


@pytest.mark.parametrize(
    ("now", "word", "midnight"),
    [
        ("2026-11-20T22:59Z", "today", "2026-11-20T00:00+01:00"),
        ("2026-11-20T23:00Z", "today", "2026-11-21T00:00+01:00"),
        ("2026-11-20T23:00Z", "yesterday", "2026-11-20T00:00+01:00"),
        ("2026-11-20T23:00Z", "tomorrow", "2026-11-22T00:00+01:00"),
        # The clock is changed on these days: midnight is before that.
        ("2026-03-29T21:59Z", "today", "2026-03-29T00:00+01:00"),
        ("2026-03-29T22:00Z", "today", "2026-03-30T00:00+02:00"),
        ("2026-10-25T22:59Z", "today", "2026-10-25T00:00+02:00"),
        ("2026-10-25T23:00Z", "yesterday", "2026-10-25T00:00+02:00"),
    ],
)
def test_a_day_begins_at_midnight_in_its_zone(now: str, word: str, midnight: str) -> None:
    point = parse_point(word, BERLIN)
    assert isinstance(point, Midnight)
    assert point.at(moment(now)) == moment(midnight)
    assert format_point(point) == word


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), ZONES)
def test_a_day_is_that_of_a_clock_in_its_zone(now: datetime, time_zone: tzinfo) -> None:
    here = now.replace(tzinfo=UTC).astimezone(time_zone)
    expected = datetime(here.year, here.month, here.day, tzinfo=time_zone)
    now_ms = (now - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
    assert Midnight(0, time_zone).at(now_ms) == expected.timestamp() * 1000


NEARLY_NAMES = st.lists(
    st.sampled_from(
        [
            *(
                "0",
                "1",
                "42",
                "00",
                "@",
                ".",
                "..",
                "-",
                "=",
                ":",
                "T",
                "Z",
                "+",
                " ",
                "\u0663",
                "\n",
            ),
            *("now", "today", "earliest", "latest", "offset=", "byte=", "2026", "11", "2147483648"),
            *("s", "m", "h", "d", ".tsv", ".jsonl", ".meta", ".follow", "20261120", "9" * 30),
        ]
    ),
    max_size=12,
).map("".join)


@given(st.text() | NEARLY_NAMES | NEARLY_NAMES.map("0@{}".format), ZONES)
def test_any_name_parses_or_is_refused(name: str, time_zone: tzinfo) -> None:
    try:
        address = parse_partition_name(name, time_zone)
    except BadSelectorError:
        assert "@" in name
    except UnknownNameError:
        pass
    else:
        assert parse_partition_name(format_address(address), time_zone) == address


@given(
    st.from_regex(r"\A[0-9]{4}-[01][0-9]-[0-3][0-9](T[0-2][0-9]:[0-6][0-9](Z|[+-][0-9:]{5})?)?\Z"),
    ZONES,
)
def test_any_date_parses_or_is_refused(text: str, time_zone: tzinfo) -> None:
    try:
        point = parse_point(text, time_zone)
    except BadSelectorError:
        return
    assert parse_point(format_point(point), BERLIN) == point


COUNTS = st.integers(min_value=-MAX_INT64, max_value=MAX_INT64)
POINTS: st.SearchStrategy[Point] = st.one_of(
    st.builds(Moment, st.integers(min_value=YEAR_ONE_MS, max_value=MAX_INT64)),
    st.builds(Ago, st.integers(min_value=0, max_value=MAX_INT64)),
    st.builds(Ago, st.integers(min_value=0, max_value=400).map(lambda days: days * DAY_MS)),
    st.sampled_from([Now(), Earliest(), Latest(), Moment(20261120), Moment(10**8), Moment(-1)]),
    st.builds(AtOffset, COUNTS),
    st.builds(AtByte, COUNTS),
)
ADDRESSES = st.builds(
    PartitionAddress,
    st.integers(min_value=0, max_value=2**31 - 1),
    POINTS,
    st.none() | POINTS,
    st.sampled_from([one for one in Suffix if one is not Suffix.META and not one.is_in]),
) | st.builds(PartitionAddress, st.integers(0, 3), view=st.sampled_from(Suffix))


@given(ADDRESSES, ZONES)
def test_round_trip(address: PartitionAddress, time_zone: tzinfo) -> None:
    name = format_address(address)
    assert parse_partition_name(name, time_zone) == address
    assert "/" not in name
    assert name.isascii()


@pytest.mark.parametrize(
    ("point", "text"),
    [
        (Moment(NOV_20_UTC_MS), "2026-11-20T00:00:00Z"),
        (Moment(NOV_20_UTC_MS + 5), "2026-11-20T00:00:00.005Z"),
        (Moment(-1), "1969-12-31T23:59:59.999Z"),
        (Moment(YEAR_ONE_MS), "0001-01-01T00:00:00Z"),
        (Moment(253402300800000), "253402300800000"),  # year 10000
        (Ago(900_000), "-15m"),
        (Ago(90_000), "-90s"),
        (Ago(14 * DAY_MS), "-2w"),
        (Ago(3_600_001), "-3600001ms"),
        (Now(), "now"),
        (Earliest(), "earliest"),
        (Latest(), "latest"),
        (AtOffset(-100), "offset=-100"),
        (AtByte(0), "byte=0"),
    ],
)
def test_format_point(point: Point, text: str) -> None:
    assert format_point(point) == text


@pytest.mark.parametrize(
    ("name", "has_selector", "uses_clock"),
    [
        ("0", False, False),
        ("0.tsv", False, False),
        ("0@earliest", True, False),
        ("0@2026-11-20..2026-11-21", True, False),
        ("0@offset=0..byte=5", True, False),
        ("0@-15m", True, True),
        ("0@now", True, True),
        ("0@earliest..today", True, True),
        ("0@latest", True, False),
        ("0@offset=-1", True, False),
        ("0@byte=-1", True, False),
        ("0@earliest..latest", True, False),
        ("0@0..-1d.tsv", True, True),
    ],
)
def test_properties(name: str, has_selector: bool, uses_clock: bool) -> None:
    address = parse_partition_name(name, UTC)
    assert address.has_selector is has_selector
    assert address.uses_clock is uses_clock


def test_the_tables_show_what_parses() -> None:
    for example, meaning in SELECTOR_TABLE:
        address = parse_partition_name("0" + example, UTC)
        assert address.has_selector, example
        assert meaning
    kinds = {type(parse_partition_name("0" + example, UTC).start) for example, _ in SELECTOR_TABLE}
    assert kinds == {Moment, Ago, Now, Midnight, Earliest, Latest, AtOffset, AtByte, AtGroup}
    assert [suffix for suffix, _ in VIEW_TABLE] == list(Suffix)
    assert all(meaning for _, meaning in VIEW_TABLE)


@pytest.mark.parametrize(
    "name", ["orders", "a", "A.b_c-9", "__consumer_offsets", "...", "x" * 249, "0", "-", ".segment"]
)
def test_topic_names(name: str) -> None:
    assert parse_topic_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".segments",
        "x" * 250,
        "a b",
        "a/b",
        "a@b",
        "a\n",
        "\u00e9",
        "\u0663",
        "\udcff",
        "a:b",
    ],
)
def test_illegal_topic_names(name: str) -> None:
    with pytest.raises(IllegalTopicNameError, match="illegal topic name"):
        parse_topic_name(name)


@given(st.text())
def test_any_topic_name_is_returned_or_refused(name: str) -> None:
    with contextlib.suppress(IllegalTopicNameError):
        assert parse_topic_name(name) == name
