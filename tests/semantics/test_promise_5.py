"""Promise 5 of SEMANTICS.md, through a mount; each docstring is the sentence that is run."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import pytest

import logfs as library
from tests.mounting import Mount, logfs, now_ms, output
from tests.semantics.holes import make_holes
from tests.semantics.programs import append, attribute, configure, numbered

pytestmark = pytest.mark.fuse

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
FIRST_DAY_MS = int(datetime(2020, 5, 1, tzinfo=UTC).timestamp() * 1000)


class Written(NamedTuple):
    """One record of a test's log."""

    timestamp_ms: int
    line: bytes


def write(partition: Path, records: list[Written]) -> None:
    """Append records with timestamps, some in each batch."""
    lines = [
        json.dumps({"timestamp": timestamp, "value": line[:-1].decode()}).encode() + b"\n"
        for timestamp, line in records
    ]
    view = partition.with_name(f"{partition.name}.jsonl")
    for at in range(0, len(lines), 37):
        append(view, b"".join(lines[at : at + 37]))


def reached(records: list[Written], timestamp_ms: int) -> int:
    """Return the number of the first record at or after a moment, or of all records."""
    return next((n for n, x in enumerate(records) if x.timestamp_ms >= timestamp_ms), len(records))


def text(records: list[Written]) -> bytes:
    """Return what ``cat`` prints of some records."""
    return b"".join(record.line for record in records)


def read(path: Path, selector: str, view: str = "") -> bytes:
    """Read what a selector names."""
    return path.with_name(f"{path.name}@{selector}{view}").read_bytes()


@pytest.fixture(scope="module")
def in_order(shared_mount: Mount) -> tuple[Path, list[Written]]:
    """A record a minute for three days, in many segments."""
    return _fill(shared_mount, "in-order", [n * MINUTE_MS for n in range(3 * 24 * 60)])


@pytest.fixture(scope="module")
def out_of_order(shared_mount: Mount) -> tuple[Path, list[Written]]:
    """The same times, each up to half a day early or late, and a few far away."""
    count = 3 * 24 * 60
    times = [n * MINUTE_MS + (n * 7_919 % 1441 - 720) * MINUTE_MS for n in range(count)]
    times[100], times[2_000], times[-1] = 20 * DAY_MS, -30 * DAY_MS, -DAY_MS
    return _fill(shared_mount, "out-of-order", times)


def _fill(mount: Mount, name: str, times: list[int]) -> tuple[Path, list[Written]]:
    topic = mount.point / name
    topic.mkdir()
    configure(topic, internal_segment_bytes=20_000)
    lines = numbered(0, len(times), 60)
    records = [Written(FIRST_DAY_MS + t, x) for t, x in zip(times, lines, strict=True)]
    write(topic / "0", records)
    return topic / "0", records


@pytest.mark.parametrize(
    ("selector", "minute"),
    [
        ("2020-05-01", 0),
        ("2020-05-01T10:00", 600),
        ("2020-05-01T10:00Z", 600),
        ("2020-05-01T10:00:00.001Z", 601),
        ("2020-05-01T10:00:59", 601),
        ("2020-05-01T12:00+02:00", 600),
        ("2020-05-03T23:59Z", 4319),
        (f"{FIRST_DAY_MS + 600 * MINUTE_MS}", 600),
        (f"{FIRST_DAY_MS + 600 * MINUTE_MS + 1}", 601),
    ],
)
def test_a_time_is_where_reading_begins(
    in_order: tuple[Path, list[Written]], selector: str, minute: int
) -> None:
    """`@TIME` begins with the first record at or after that time."""
    path, records = in_order
    assert len(list((path.parents[1] / ".segments" / "in-order-0").glob("*.log"))) > 10
    assert read(path, selector) == text(records[minute:])


def test_a_look_up_includes_what_was_just_written(topic: Path) -> None:
    """A look-up includes everything that was written before it."""
    name, written = topic / "0@earliest..latest", b""
    for number in range(200):
        append(topic / "0", b"%d\n" % number)
        written += b"%d\n" % number
        assert name.read_bytes() == written


def test_grep_by_time(in_order: tuple[Path, list[Written]]) -> None:
    """`@TIME` begins with the first record at or after that time."""
    path, records = in_order
    day = records[24 * 60 : 48 * 60]
    found = output("grep", "-F", "00 .", f"{path}@2020-05-02..2020-05-03")
    assert found.splitlines(keepends=True) == [x.line for x in day if b"00 ." in x.line]
    assert output("grep", "-c", "", f"{path}@2020-05-02T07:00..2020-05-02T07:30") == b"30\n"


@pytest.mark.parametrize("hours", range(-24, 25 * 4, 5))
def test_times_need_not_be_in_order(out_of_order: tuple[Path, list[Written]], hours: int) -> None:
    """Times need not be in order. The name begins with the first record in the log that has reached
    the time, and shows everything after it."""
    path, records = out_of_order
    moment = FIRST_DAY_MS + hours * 60 * MINUTE_MS
    first = reached(records, moment)
    assert read(path, str(moment)) == text(records[first:])
    behind = reached(records, moment + 30 * MINUTE_MS)
    assert read(path, f"{moment}..{moment + 30 * MINUTE_MS}") == text(records[first:behind])


@pytest.mark.parametrize(
    ("selector", "part"),
    [
        ("earliest", slice(None)),
        ("offset=0", slice(None)),
        ("offset=1500", slice(1_500, None)),
        ("offset=4319", slice(4_319, None)),
        ("offset=-100", slice(-100, None)),
        ("offset=-100000", slice(None)),
        ("offset=10..offset=20", slice(10, 20)),
        ("offset=-20..offset=-10", slice(-20, -10)),
        ("offset=4000..latest", slice(4_000, None)),
        ("2020-05-02..offset=1500", slice(1_440, 1_500)),
    ],
)
def test_an_offset_is_where_reading_begins(
    in_order: tuple[Path, list[Written]], selector: str, part: slice
) -> None:
    """`@offset=N` begins at an offset; a negative one is relative to the end."""
    path, records = in_order
    assert read(path, selector) == text(records[part])
    shown = [json.loads(line)["offset"] for line in read(path, selector, ".jsonl").splitlines()]
    assert shown == list(range(len(records)))[part]


def test_a_group_begins_at_its_position(tmp_path: Path) -> None:
    """`@group=NAME` begins at the position that a consumer group has committed, and at the earliest
    record if it has none."""
    lines = [b"%d\n" % n for n in range(10)]
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        path = mount.point / "orders" / "0"
        path.parent.mkdir()
        append(path, b"".join(lines))
        assert read(path, "group=unknown") == b"".join(lines)
        with library.open(path) as partition:
            for offset in (3, 1, 10):
                partition.commit("billing", offset)
                assert read(path, "group=billing") == b"".join(lines[offset:])
                assert read(path, "earliest..group=billing") == b"".join(lines[:offset])


@pytest.mark.parametrize(
    ("selector", "part"),
    [
        ("byte=0", slice(None)),
        ("byte=1", slice(1, None)),
        ("byte=100001", slice(100_001, None)),
        ("byte=-1", slice(-1, None)),
        ("byte=-4096", slice(-4_096, None)),
        ("byte=61..byte=63", slice(61, 63)),
        ("byte=1000..latest", slice(1_000, None)),
    ],
)
def test_a_byte_is_where_reading_begins(
    in_order: tuple[Path, list[Written]], selector: str, part: slice
) -> None:
    """`@byte=N` begins at a byte of the view, also inside a record; a negative one is relative to
    the end."""
    path, records = in_order
    assert read(path, selector) == text(records)[part]
    tsv = path.with_name("0.tsv").read_bytes()
    assert read(path, selector, ".tsv") == tsv[part]


@pytest.mark.parametrize(
    ("selector", "part"),
    [
        ("2020-05-02..2020-05-03", slice(1_440, 2_880)),
        ("2020-05-02..2020-05-02T00:01", slice(1_440, 1_441)),
        ("2020-05-02..2020-05-02", slice(0)),
        ("2020-05-03..2020-05-02", slice(0)),
        ("latest..earliest", slice(0)),
        ("offset=7..offset=7", slice(0)),
        ("earliest..2020-05-02", slice(1_440)),
        ("1970-01-01..2020-05-02", slice(1_440)),
        ("offset=1440..2020-05-03", slice(1_440, 2_880)),
    ],
)
def test_a_range_has_its_beginning_and_not_its_end(
    in_order: tuple[Path, list[Written]], selector: str, part: slice
) -> None:
    """A range includes FROM and excludes TO; if TO lies before FROM the file is empty."""
    path, records = in_order
    assert read(path, selector) == text(records[part])
    assert os.stat(path.with_name(f"0@{selector}")).st_size == len(text(records[part]))


def test_durations_count_back_from_now(topic: Path) -> None:
    """A duration goes back from now: `@-15m`, `@-1h..-30m`."""
    start = now_ms()
    ages = [10 * DAY_MS, 25 * 60 * MINUTE_MS, 90 * MINUTE_MS, 40 * MINUTE_MS, 5 * MINUTE_MS, 0]
    records = [Written(start - age, b"%d\n" % age) for age in ages]
    write(topic / "0", records)
    path = topic / "0"
    for selector, part in {
        "-2w": slice(0, None),
        "-7d": slice(1, None),
        "-1d": slice(2, None),
        "-1h": slice(3, None),
        "-15m": slice(4, None),
        "-900s": slice(4, None),
        "-900000ms": slice(4, None),
        "-1h..-30m": slice(3, 4),
        "-7d..-1d": slice(1, 2),
        "-1d..2020-01-01": slice(0),
    }.items():
        assert read(path, selector) == text(records[part]), selector


@pytest.mark.parametrize("end", ["", "..2099-01-01", "..offset=1000", "..byte=100000"])
def test_names_whose_end_lies_ahead_grow(topic: Path, end: str) -> None:
    """A name grows if it has no end, or an end that is not reached yet. Such an end is
    a time in the future, an offset or a byte after the end of the log."""
    path = topic / "0"
    append(path, b"first\nsecond\n")
    with path.with_name(f"0@offset=1{end}").open("rb", buffering=0) as file:
        assert file.read(100) == b"second\n"
        append(path, b"third\n")
        assert file.read(100) == b"third\n"
        assert os.fstat(file.fileno()).st_size == len(b"second\nthird\n")


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        ("earliest..offset=3", b"0\n1\n2\n"),
        ("byte=2..byte=7", b"1\n2\n3"),
        ("2099-01-01", b"1\n2\n3\n4\n"),
    ],
)
def test_names_end_where_they_say(topic: Path, selector: str, shown: bytes) -> None:
    """It ends at its end once that is reached. A FROM that is not reached is the end of the log
    when the name was looked up."""
    path = topic / "0"
    append(path, b"0\n")
    with path.with_name(f"0@{selector}").open("rb", buffering=0) as file:
        for number in range(1, 5):
            append(path, b"%d\n" % number)
        assert file.readall() == shown
        assert os.fstat(file.fileno()).st_size == len(shown)


def test_a_beginning_that_is_gone_is_the_first_kept_record(mount: Mount) -> None:
    """A FROM before the first retained record is that record."""
    mount.stop()
    (mount.data / "orders-0").rename(mount.data / "others-0")
    kept = make_holes(mount.data)
    mount.start()
    path = mount.point / "orders" / "0"
    for selector in ("earliest", "offset=0", "offset=1233", "byte=0", "byte=98719", "2020-05-01"):
        assert read(path, selector) == kept.text
        assert read(path, f"{selector}..latest") == kept.text
        assert attribute(path.with_name(f"0@{selector}"), "start") == kept.starts[0]
    assert read(path, "offset=1235") == b"".join(kept.lines[1:])
    assert read(path, f"byte={kept.starts[0] + 1}") == kept.text[1:]


@pytest.fixture
def far_east(tmp_path: Path) -> Iterator[Mount]:
    """A mount whose daemon lives five and a half hours east of Greenwich."""
    with Mount(tmp_path / "data", tmp_path / "mnt", variables={"TZ": "XST-5:30"}) as mount:
        yield mount


def test_dates_are_in_the_daemons_time_zone(far_east: Mount) -> None:
    """A date or time without a zone is in the zone of the daemon (`TZ`)."""
    topic = far_east.point / "orders"
    topic.mkdir()
    half_hours = [Written(FIRST_DAY_MS + n * 30 * MINUTE_MS, b"%d\n" % n) for n in range(48)]
    write(topic / "0", half_hours)
    for selector, first in {
        "2020-05-01": 0,
        "2020-05-01T05:30": 0,
        "2020-05-01T06:00": 1,
        "2020-05-01T06:00Z": 12,
        "2020-05-01T06:00+05:30": 1,
        "2020-05-02": 37,
    }.items():
        assert read(topic / "0", selector) == text(half_hours[first:]), selector


def test_days_have_names(far_east: Mount) -> None:
    """`@today`, `@yesterday` and `@tomorrow` mean midnight of that day, in the zone of the daemon,
    as it is at the look-up: `@yesterday..today` is a whole day."""
    topic = far_east.point / "orders"
    topic.mkdir()
    zone, epoch = timezone(timedelta(minutes=330)), datetime(1970, 1, 1, tzinfo=UTC)
    today = datetime.now(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    midnight = (today - epoch) // timedelta(milliseconds=1)
    times = (midnight - DAY_MS - 1, midnight - DAY_MS, midnight - 1, midnight)
    records = [Written(time, b"%d\n" % n) for n, time in enumerate(times)]
    write(topic / "0", records)
    days = {
        "today": slice(3, None),
        "yesterday": slice(1, None),
        "yesterday..today": slice(1, 3),
        "earliest..yesterday": slice(0, 1),
        "today..tomorrow": slice(3, None),
        "tomorrow": slice(4, None),
    }
    found = {selector: read(topic / "0", selector) for selector in days}
    with (topic / "0@today..tomorrow").open("rb", buffering=0) as file:
        assert file.read(100) == b"3\n"
        append(topic / "0", b"new\n")
        new = file.read(100)
    merged = output("cat", far_east.point / "orders@yesterday..today")
    if datetime.now(zone).date() == today.date():  # else midnight has passed meanwhile
        assert found == {selector: text(records[part]) for selector, part in days.items()}
        assert new == b"new\n"
        assert merged == text(records[1:3])


def test_views_and_selectors_combine(in_order: tuple[Path, list[Written]]) -> None:
    """Views and selectors combine: `orders/0@2020-05-02.jsonl`."""
    path, records = in_order
    day = records[1_440:2_880]
    shown = read(path, "2020-05-02..2020-05-03", ".jsonl").splitlines()
    assert [json.loads(line)["timestamp"] for line in shown] == [x.timestamp_ms for x in day]
    assert read(path, "2020-05-02..2020-05-03", ".tsv") == b"".join(b"\\N\t" + x.line for x in day)


@pytest.mark.parametrize(
    "selector", ["", "@2020-05-02.jsonl", "@offset=-5.tsv", "@byte=7..byte=99"]
)
def test_addresses_work_without_a_mount(mount: Mount, selector: str) -> None:
    """The same addresses work without a mount: `logfs cat DATA/orders/0@-1h.jsonl`."""
    records = [Written(FIRST_DAY_MS + n * MINUTE_MS * 10, b"%d\n" % n) for n in range(400)]
    write(mount.point / "orders" / "0", records)
    shown = (mount.point / "orders" / f"0{selector}").read_bytes()
    assert shown
    paths = [root / "orders" / f"0{selector}" for root in (mount.data, mount.point)]
    assert [logfs("cat", path) for path in paths] == [shown, shown]
    mount.stop()
    assert logfs("cat", mount.data / "orders" / f"0{selector}") == shown
    mount.start()


def test_a_long_log_is_one_lookup(mount: Mount) -> None:
    """The number of segments makes no difference."""
    orders = mount.point / "orders"
    configure(orders, internal_segment_bytes=1_000)
    records = [Written(FIRST_DAY_MS + n * 1000, b"%06d\n" % n) for n in range(9_000)]
    write(orders / "0", records)
    assert len(list((mount.data / "orders-0").glob("*.log"))) > 200
    for start_again in (mount.restart, mount.crash):
        for n in (0, 1, 777, 5_000, 8_999):
            assert read(orders / "0", f"offset={n}..offset={n + 2}") == text(records[n : n + 2])
            assert read(orders / "0", str(records[n].timestamp_ms)) == text(records[n:])
            assert read(orders / "0", f"byte={7 * n}..byte={7 * n + 7}") == records[n].line
        start_again()


def test_a_range_of_a_topic(shared_mount: Mount) -> None:
    """`TOPIC@FROM[..TO][.VIEW]` beside the topic's directory is a range of all its partitions,
    merged by time."""
    topic = shared_mount.point / "merged"
    topic.mkdir()
    (topic / "2").touch()
    records = [Written(FIRST_DAY_MS + n, line) for n, line in enumerate(numbered(0, 300))]
    for number in range(3):
        write(topic / str(number), records[number::3])
    start, stop = FIRST_DAY_MS + 50, FIRST_DAY_MS + 250
    path = shared_mount.point / f"merged@{start}..{stop}"
    assert path.read_bytes() == text(records[50:250])
    assert shared_mount.point.joinpath("merged@earliest.jsonl").read_bytes().count(b"\n") == 300
    with path.open("rb") as file:
        file.seek(1000)
        assert file.read(500) == text(records[50:250])[1000:1500]
