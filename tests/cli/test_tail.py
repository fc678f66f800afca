"""``logfs tail``: the last records of partitions merged by time, and those that come."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import logfs
from logfs import NewRecord
from logfs.library.places import locate
from logfs.library.writer import Writer
from tests.cli.conftest import ROOT, Call, Mounted, command, environment, fill
from tests.mounting import PATIENCE_S, wait_until

BEGIN_MS = 1_700_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic of two partitions whose records alternate in time, in twos and threes."""
    path = tmp_path / "data"
    path.mkdir()
    with logfs.open_store(path) as store:
        store.create_topic("orders", 2)
        for number, step in ((0, 2), (1, 3)):
            store.partition("orders", number).append_many(
                NewRecord(b"%d at %d" % (number, n), b"k", timestamp=BEGIN_MS + n)
                for n in range(number, 60, step)
            )
    return path


def lines(number: int, step: int) -> list[bytes]:
    return [b"%d at %d" % (number, n) for n in range(number, 60, step)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], lines(0, 2)[-10:]),
        (["-n", "3"], lines(0, 2)[-3:]),
        (["-n", "0"], []),
        (["-n", "1000"], lines(0, 2)),
        (["--from", "earliest"], lines(0, 2)),
        (["--from", "offset=25"], lines(0, 2)[25:]),
        (["--from", str(BEGIN_MS + 50)], lines(0, 2)[25:]),
        (["--from", "latest"], []),
    ],
    ids=str,
)
def test_records_and_from_select_the_first_record(
    logfs: Call, data: Path, options: list[str], expected: list[bytes]
) -> None:
    outcome = logfs("tail", *options, data / "orders" / "0")
    assert outcome == (0, b"".join(line + b"\n" for line in expected), [])


def test_partitions_are_merged_by_time(logfs: Call, data: Path) -> None:
    out = logfs("tail", "-n", "4", data / "orders").out.splitlines()
    assert out == [
        b"orders/1: 1 at 49", b"orders/0: 0 at 52", b"orders/1: 1 at 52", b"orders/0: 0 at 54",
        b"orders/1: 1 at 55", b"orders/0: 0 at 56", b"orders/0: 0 at 58", b"orders/1: 1 at 58",
    ]  # fmt: skip
    everything = logfs("tail", "--from", "earliest", "--no-prefix", data / "orders").out
    assert len(everything.splitlines()) == 50
    times = [int(line.split()[-1]) for line in everything.splitlines()]
    assert times == sorted(times)
    named = logfs("tail", "-n", "4", data / "orders" / "0", data / "orders" / "1")
    assert named.out.splitlines() == out


def test_all_topics_that_a_listing_shows(logfs: Call, data: Path) -> None:
    fill(data, {"__hidden/0": b"hidden\n", "web/0": b"GET /\n"})
    out = logfs("tail", "-n", "1", data).out.splitlines()
    assert sorted(out) == [b"orders/0: 0 at 58", b"orders/1: 1 at 58", b"web/0: GET /"]
    again = logfs("tail", "-n", "1", data, data / "__hidden")
    assert b"__hidden/0: hidden" in again.out.splitlines()


CALLS = """
import sys
calls = 0
def note(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
from logfs.cli.main import main
sys.setprofile(note)
main(["tail", "-n", "1", *sys.argv[1:]])
sys.setprofile(None)
print(calls, file=sys.stderr)
"""


def test_topics_that_are_not_read_cost_the_same_for_many_paths_as_for_one(data: Path) -> None:
    paths, others = many_topics(data, 10), 200

    def calls(count: int) -> int:
        words = [sys.executable, "-c", CALLS, *paths[:count]]
        done = subprocess.run(words, check=True, capture_output=True, env=environment())
        assert len(done.stdout.splitlines()) == count
        return int(done.stderr)

    calls(10)  # compiles what has not been imported yet
    few = calls(1), calls(10)
    for number in range(others):
        (data / f"other{number}-0").mkdir()
    one, many = calls(1) - few[0], calls(10) - few[1]
    assert one > others
    assert many - one < 3 * others  # a look more or less is made while the directory is new


def many_topics(data: Path, count: int) -> list[str]:
    """Make topics of a record each, by copying the first one; return their paths."""
    fill(data, {"t0/0": b"x\n"})
    for number in range(1, count):
        shutil.copytree(data / "t0-0", data / f"t{number}-0")
    return [str(data / f"t{number}") for number in range(count)]


def test_a_merge_keeps_the_order_of_a_partition(logfs: Call, data: Path) -> None:
    with open_partition(data / "orders" / "1") as second:
        second.append_many(NewRecord(b"late", timestamp=BEGIN_MS + n) for n in (900, 5, 6))
    with open_partition(data / "orders" / "0") as first:
        first.append(b"between", timestamp=BEGIN_MS + 500)
    out = logfs("tail", "-n", "3", data / "orders").out.splitlines()
    assert out[-4:] == [b"orders/0: between", *[b"orders/1: late"] * 3]


def open_partition(path: Path) -> "logfs.Partition":
    return logfs.open(path)


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        ("0", [], b"0 at 58\n"),
        ("0.tsv", [], b"k\t0 at 58\n"),
        ("0", ["--view", "tsv"], b"k\t0 at 58\n"),
        ("0", ["--prefix"], b"orders/0: 0 at 58\n"),
        ("0.tsv", ["--prefix"], b"orders/0: k\t0 at 58\n"),
        ("", ["--view", "tsv", "--no-prefix"], b"k\t0 at 58\nk\t1 at 58\n"),
    ],
)
def test_view_selects_the_form_of_records(
    logfs: Call, data: Path, path: str, options: list[str], expected: bytes
) -> None:
    assert logfs("tail", "-n", "1", *options, data / "orders" / path) == (0, expected, [])


def test_json_names_the_partition_in_fields(logfs: Call, data: Path) -> None:
    (alone,) = logfs("tail", "-n", "1", data / "orders" / "1.jsonl").out.splitlines()
    assert alone == logfs("cat", data / "orders" / "1@offset=-1.jsonl").out.strip()
    rows = logfs("tail", "-n", "1", "--view", "jsonl", data / "orders").out.splitlines()
    assert [json.loads(row) for row in rows] == [
        {"topic": "orders", "partition": 0, **json.loads(rows[0]), "offset": 29},
        {"topic": "orders", "partition": 1, **json.loads(alone)},
    ]


def test_records_is_the_number_of_records_and_not_of_offsets(logfs: Call, data: Path) -> None:
    with open_partition(data / "orders" / "0") as orders:
        producer = orders.producer(1)
        for n in range(30):
            with producer.transaction():  # a marker each
                producer.append_many([b"transaction %d" % n])
    out = logfs("tail", "-n", "7", data / "orders" / "0").out
    assert out.splitlines() == [b"transaction %d" % n for n in range(23, 30)]


def test_isolation_levels(logfs: Call, data: Path) -> None:
    with open_partition(data / "orders" / "0") as orders:
        producer = orders.producer(1)
        with producer.transaction():
            producer.append_many([b"committed"])
        with producer.transaction():
            producer.append_many([b"open"])
            path = data / "orders" / "0"
            assert logfs("tail", "-n", "1", path).out == b"open\n"
            level = ("--isolation-level", "read_committed")
            assert logfs("tail", "-n", "1", *level, path).out == b"committed\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["orders/7"], "topic orders has no partition 7"),
        (["order"], "no topic order"),
        (["orders/0@-1h"], "points go into --since and --until"),
        (["orders/0.meta"], "points go into --since and --until"),
        (["orders/0/x"], "expected TOPIC or TOPIC/PARTITION"),
        (["--from", "last week", "orders"], "not a point in a log"),
    ],
)
def test_tail_refuses_wrong_arguments(
    logfs: Call, data: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(data)
    status, out, errors = logfs("tail", *arguments)
    assert (status, out, len(errors)) == (1, b"", 1)
    assert message in errors[0]


def test_after_an_error_tail_prints_the_other_partitions(logfs: Call, data: Path) -> None:
    status, out, errors = logfs("tail", "-n", "1", data / "nothing", data / "orders" / "0")
    assert (status, out, len(errors)) == (1, b"0 at 58\n", 1)
    status, _, errors = logfs("tail", "-n", "1", "--from", "now", data / "orders")
    assert status == 2
    assert "give one of them" in errors[-1]


class Following:
    """A ``logfs tail -f`` that runs."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            command("tail", "-f", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            bufsize=0,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def line(self) -> bytes:
        """Wait for the next line."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], PATIENCE_S)[0], "no line comes"
        return self.process.stdout.readline().rstrip(b"\n")

    def error_line(self) -> bytes:
        """Wait for the next line of its standard error."""
        assert self.process.stderr is not None
        assert select.select([self.process.stderr], [], [], PATIENCE_S)[0], "no error comes"
        return self.process.stderr.readline().rstrip(b"\n")

    def end(self) -> tuple[int, bytes, bytes]:
        """Wait for its end; return its status, and what it has printed last."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@contextmanager
def following(*arguments: str | Path) -> Iterator[Following]:
    tail = Following(*arguments)
    try:
        yield tail
    finally:
        tail.process.kill()
        tail.process.communicate()


def test_follow_prints_new_records_at_once(data: Path) -> None:
    with logfs.open_store(data) as store, following("-n", "1", data / "orders") as tail:
        assert [tail.line(), tail.line()] == [b"orders/0: 0 at 58", b"orders/1: 1 at 58"]
        for n in range(4):
            store.partition("orders", n % 2).append(b"new %d" % n)
            assert tail.line() == b"orders/%d: new %d" % (n % 2, n)


def test_follow_includes_new_partitions(data: Path) -> None:
    with logfs.open_store(data) as store, following("-n", "1", data / "orders") as tail:
        assert [tail.line(), tail.line()] == [b"orders/0: 0 at 58", b"orders/1: 1 at 58"]
        with Writer.of(locate(store.data)) as writer:  # the one that the store uses
            writer.change_topics(lambda topics: topics.alter_topic("orders", {}, 3))
        store.partition("orders", 2).append(b"second")
        assert tail.line() == b"orders/2: second"


def test_follow_ends_when_its_topic_is_deleted(data: Path) -> None:
    with logfs.open_store(data) as store, following("-n", "1", data / "orders" / "0") as tail:
        assert tail.line() == b"0 at 58"
        store.delete_topic("orders")
        status, out, err = tail.end()
        assert (status, out) == (1, b"")
        assert err == b"logfs: orders/0: the topic has been deleted\n"


def test_follow_of_a_directory_waits_for_the_next_topic(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with logfs.open_store(data) as store, following(data) as tail:  # no topic is there yet
        store.create_topic("orders", 1)
        store.partition("orders", 0).append(b"first")
        assert tail.line() == b"first"
        store.delete_topic("orders")
        assert tail.error_line() == b"logfs: orders/0: the topic has been deleted"
        store.create_topic("visits", 1)
        store.partition("visits", 0).append(b"second")
        assert tail.line() == b"second"


def test_follow_of_a_directory_ends_when_the_directory_is_gone(data: Path) -> None:
    with following("-n", "1", data) as tail:
        assert [tail.line(), tail.line()] == [b"orders/0: 0 at 58", b"orders/1: 1 at 58"]
        with logfs.open_store(data) as store:
            store.delete_topic("orders")
        assert [tail.error_line() for _ in range(2)] == [
            b"logfs: orders/%d: the topic has been deleted" % number for number in (0, 1)
        ]
        data.rename(data.with_name("elsewhere"))
        status, out, err = tail.end()
        assert (status, out) == (1, b"")
        assert err == b"logfs: %s: No such file or directory\n" % os.fsencode(data)


def test_ctrl_c_ends_tail_quietly(data: Path) -> None:
    with following("-n", "1", data / "orders" / "0") as tail:
        assert tail.line() == b"0 at 58"
        os.kill(tail.process.pid, signal.SIGINT)
        assert tail.end() == (130, b"", b"")


def test_tail_ends_quietly_when_the_reader_of_its_output_ends(data: Path) -> None:
    with following("-n", "1", data / "orders" / "0") as tail:
        assert tail.line() == b"0 at 58"
        assert tail.process.stdout is not None
        tail.process.stdout.close()
        wait_until(lambda: tail.process.poll() is not None, "it ended, with nothing to write")
        assert tail.process.stderr is not None
        assert tail.process.stderr.read() == b""


@pytest.mark.fuse
@pytest.mark.parametrize("side", ["data", "point"])
def test_tail_while_a_daemon_serves_the_directory(mounted: Mounted, side: str) -> None:
    (mounted.point / "orders").mkdir()
    file = mounted.point / "orders" / "0"
    with file.open("ab") as writer:
        writer.write(b"before\n")
    with following(getattr(mounted, side) / "orders") as tail:
        assert tail.line() == b"before"
        for n in range(3):
            with file.open("ab") as writer:
                writer.write(b"line %d\n" % n)
            assert tail.line() == b"line %d" % n
        (mounted.point / "orders" / "1").touch()
        with (mounted.point / "orders" / "1").open("ab") as writer:
            writer.write(b"there\n")
        assert tail.line() == b"orders/1: there"
