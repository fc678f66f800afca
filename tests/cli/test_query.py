"""``logfs cat`` and ``logfs tail``: records chosen by time, value, key, header and field."""

import json
import subprocess
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path

import pytest

import logfs
from logfs import NewRecord, open_store
from logfs.cli.record_query import moment_of
from logfs.errors import BadSelectorError
from logfs.log.reading.address import Ago, AtOffset, Midnight, Moment, Point
from tests.cli.conftest import Call, Mounted, command, environment

BEGIN = datetime(2026, 11, 20, 9, tzinfo=UTC)
LEVELS = ("info", "warn", "error")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two topics with a record a minute, in turn: orders/0, orders/1, web/0."""
    path = tmp_path / "data"
    path.mkdir()
    with logfs.open_store(path) as store:
        store.create_topic("orders", 2)
        store.create_topic("web")
        store.create_topic("__internal")
        store.partition("__internal").append(b"hidden error")
        for turn, (topic, number) in enumerate((("orders", 0), ("orders", 1), ("web", 0))):
            store.partition(topic, number).append_many(
                NewRecord(
                    json.dumps({"n": n, "level": LEVELS[n % 3 - turn]}).encode(),
                    b"key %d" % (n % 4),
                    [("host", b"h%d" % (n % 2))],
                    BEGIN + timedelta(minutes=n),
                )
                for n in range(turn, 30, 3)
            )
    return path


def numbers(out: bytes) -> list[int]:
    return [json.loads(line[line.index(b"{") :])["n"] for line in out.splitlines()]


def test_cat_merges_topics_by_time(logfs: Call, data: Path) -> None:
    outcome = logfs("cat", data)
    assert numbers(outcome.out) == list(range(30))
    assert outcome.out.splitlines()[1] == b'orders/1: {"n": 1, "level": "info"}'
    outcome = logfs("cat", "--no-prefix", data / "web", data / "orders" / "0")
    assert outcome.status == 0
    assert numbers(outcome.out) == [n for n in range(30) if n % 3 != 1]
    assert outcome.out.startswith(b'{"n": 0')
    named = [json.loads(line) for line in logfs("cat", "--view", "jsonl", data).out.splitlines()]
    assert [(row["topic"], row["partition"]) for row in named[:3]] == [
        ("orders", 0), ("orders", 1), ("web", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--grep", '"n": 7'], {7}),
        (["--grep", '"n": 7|"n": 9'], {7, 9}),
        (["-g", '"n": 7', "-g", '"n": 9'], {7, 9}),
        (["--grep", r'"n": \d\b', "-k", "key 1"], {1, 5, 9}),
        (["--grep", '"N": 7'], set()),
        (["-i", "--grep", '"N": 7'], {7}),
        (["-F", '"n": 7'], {7}),
        (["-F", '"n": .'], set()),
        (["-F", '"n": 7', "--fixed-string", '"n": 9'], {7, 9}),
        (["-F", '"n": 7', "--grep", '"n": [89]\\b'], {7, 8, 9}),
        (["-i", "-F", '"N": 7'], {7}),
        (["-F", ""], set(range(30))),
        (["--key", "key 3", "--key", "key 2"], {n for n in range(30) if n % 4 > 1}),
        (["--header", "host=h1", "--key", "key 3"], {n for n in range(30) if n % 4 == 3}),
        (["--header", "host=h1", "--key", "key 2"], set()),
        (["--field", "n=12"], {12}),
        (["--field", "n=12", "--grep", "warn"], set()),
        (["--since", "2026-11-20T09:20Z"], set(range(20, 30))),
        (["-S", "2026-11-20 09:20Z", "-U", "2026-11-20 09:23Z"], {20, 21, 22}),
        (["--until", "2026-11-20T09:02Z"], {0, 1}),
        (["--since", "offset=-1"], {27, 28, 29}),
    ],
    ids=str,
)
def test_options_choose_records(
    logfs: Call, data: Path, options: list[str], expected: set[int]
) -> None:
    outcome = logfs("cat", *options, data)
    assert (outcome.status, outcome.errors) == (0, [])
    assert numbers(outcome.out) == sorted(expected)
    if not any(option in {"-S", "--since"} for option in options):
        options = [*options, "-n", "1000"]
    assert logfs("tail", *options, data).out == outcome.out


def test_an_address_may_say_where_cat_begins_and_ends(logfs: Call, data: Path) -> None:
    day = "0@2026-11-20T09:10Z..2026-11-20T09:20Z"
    outcome = logfs("cat", "--grep", "n", data / "orders" / day)
    assert numbers(outcome.out) == [12, 15, 18]
    outcome = logfs("cat", "--since", "-1h", data / "orders" / day)
    assert (outcome.status, outcome.out) == (1, b"")
    assert "says where to begin; leave out --since and --until" in outcome.errors[0]
    first = logfs("cat", "--grep", "n", data / "orders" / "0@offset=9.jsonl").out
    assert json.loads(first)["key"] == "key 3"


def test_tail_counts_the_chosen_records(logfs: Call, data: Path) -> None:
    outcome = logfs("tail", "-n", "2", "--key", "key 0", "--no-prefix", data / "orders")
    assert numbers(outcome.out) == [12, 16, 24, 28]


def test_a_format_is_that_of_kcat(logfs: Call, data: Path) -> None:
    form = r"%t/%p@%o %T %d\t%k %h [%S %K] %s%%\x21"
    out = logfs("cat", "--format", form, "--grep", '"n": 29', data).out
    assert out == (
        b"web/0@9 1795166940000 2026-11-20T09:29:00.000Z\tkey 1 host=h1 [26 5] "
        b'{"n": 29, "level": "info"}%!\n'
    )
    assert logfs("tail", "-n", "1", "--format", "%o", data).out == b"9\n9\n9\n"
    assert logfs("tail", "-n", "1", "--format", r"%o\n", data).out == b"9\n9\n9\n"
    assert logfs("tail", "-n", "1", "--format", r"\n%o", data / "web").out == b"\n9\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cat", "--grep", "("], "'(' is not a regular expression"),
        (["cat", "--format", "%q"], "%q: expected % and one of"),
        (["cat", "--format", r"\q"], r"\q: expected \n, \t"),
        (["cat", "--field", "level"], "expected PATH=VALUE, as user.id=4711"),
        (["cat", "--header", "host"], "expected NAME=VALUE"),
        (["cat", "-i"], "give one, or leave -i out"),
        (["cat", "--since", "soon"], "not a point in a log"),
        (["tail", "--since", "-1h", "-n", "3"], "--since and -n exclude each other"),
        (["tail", "--since", "-1h", "--from", "-1h"], "--from is the same as --since"),
        (["tail", "-f", "--until", "now"], "--until ends, -f does not"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused(
    logfs: Call, data: Path, arguments: list[str], message: str
) -> None:
    outcome = logfs(*arguments, data)
    assert outcome.status in {1, 2}
    assert outcome.out == b""
    assert message in outcome.errors[0]


ROME = timezone(timedelta(hours=1))
NOW_MS = int(datetime(2026, 11, 20, 23, 30, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("today", ROME, Midnight(0, ROME)),
        ("yesterday", UTC, Midnight(-1, UTC)),
        ("9:00", UTC, "2026-11-20T09:00+00:00"),
        ("09:00:30", ROME, "2026-11-21T09:00:30+01:00"),
        ("2026-11-18 9:15", ROME, "2026-11-18T09:15+01:00"),
        ("2026-11-18", UTC, "2026-11-18T00:00+00:00"),
        ("-1h30m", UTC, Ago(5_400_000)),
        ("@offset=-3", UTC, AtOffset(-3)),
    ],
)
def test_times_are_also_those_of_journalctl(text: str, zone: tzinfo, expected: str | Point) -> None:
    if isinstance(expected, str):
        expected = Moment(int(datetime.fromisoformat(expected).timestamp() * 1000))
    assert moment_of(text, zone, NOW_MS) == expected


@pytest.mark.parametrize("text", ["last week", "25:00", "2026-11-18 noon", ""])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(BadSelectorError):
        moment_of(text, UTC, NOW_MS)


@pytest.mark.fuse
def test_chosen_records_are_followed_through_a_mount(mounted: Mounted) -> None:
    with logfs.open_store(mounted.data) as store:
        store.create_topic("orders")
        store.partition("orders").append_many([b"error 1", b"fine"])
        arguments = command("tail", "-f", "--grep", "error [0-9]", mounted.point / "orders")
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment()) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == b"error 1\n"
            store.partition("orders").append_many([b"fine", b"error x", b"error 2"])
            assert follower.stdout.readline() == b"error 2\n"
            follower.terminate()


@pytest.mark.parametrize("name", ["cat", "tail"])
def test_an_option_level_is_told_to_be_a_field(logfs: Call, data: Path, name: str) -> None:
    outcome = logfs(name, "--level", "error", data)
    assert outcome.status == 2
    (error,) = outcome.errors
    assert "no such option --level; for records whose value is JSON: --field level=error" in error
    assert "--level" not in logfs(name, "--help").out.decode().replace("--isolation-level", "")


@pytest.mark.parametrize("view", ["text", "tsv", "jsonl"])
def test_one_large_partition_is_searched_in_its_order(
    logfs: Call, tmp_path: Path, view: str
) -> None:
    path = tmp_path / "large"
    path.mkdir()
    values = [b"%d %s" % (n, b"x" * 1000) for n in range(20_000)]
    with open_store(path) as store:
        store.create_topic("t")
        for begin in range(0, len(values), 100):
            store.partition("t").append_many(map(NewRecord, values[begin : begin + 100]))
    outcome = logfs("cat", "--view", view, "--grep", "7 x", path / "t" / "0")
    everything = logfs("cat", f"{path}/t/0" + ("" if view == "text" else f".{view}"))
    wanted = [line for line in everything.out.splitlines() if b"7 x" in line]
    assert outcome.out.splitlines() == wanted
    assert len(wanted) == 2000
