"""``logfs cat``: the number of records, the context of those that are chosen, the last one first.

The oracles are ``grep`` and ``tac``.
"""

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from logfs import NewRecord, open_store
from tests.cli.conftest import Call, run

SMALL = {"internal.segment.bytes": "20000"}


def unix(command: Sequence[str], lines: bytes) -> bytes:
    return subprocess.run(command, input=lines, stdout=subprocess.PIPE, check=False).stdout


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of two thousand records in many batches, in several segments."""
    data = tmp_path_factory.mktemp("context")
    numbers = random.Random(7)
    with open_store(data) as store:
        store.create_topic("words", config=SMALL)
        one = store.partition("words")
        n = 0
        while n < 2000:
            count = min(numbers.randrange(1, 60), 2000 - n)
            one.append_many(
                NewRecord(b"%d %d %s" % (k, k * k % 97, b"x" * numbers.randrange(40)))
                for k in range(n, n + count)
            )
            n += count
    return data / "words" / "0"


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition in which most offsets have no record any more."""
    data = tmp_path_factory.mktemp("compacted")
    numbers = random.Random(3)
    with open_store(data) as store:
        store.create_topic("keys", config=SMALL | {"cleanup.policy": "compact"})
        one = store.partition("keys")
        for begin in range(0, 4000, 40):
            one.append_many(
                NewRecord(b"%d %d" % (n, n % 7), b"%d" % numbers.randrange(900))
                for n in range(begin, begin + 40)
            )
    run("compact", data / "keys")
    return data / "keys" / "0"


OPTIONS = [
    ["-C", "1"],
    ["-A", "3"],
    ["-B", "2"],
    ["-A", "1", "-B", "4"],
    ["-C", "2", "-A", "0"],
    ["-C", "0"],
    ["-c"],
    ["-c", "-A", "2"],
]
EXPRESSIONS = ["^1", "7 ", " 13 ", "99", "^1999", "^0 ", "never", "", "^[0-9]*[02468] ", "x{30}"]


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_records_are_printed_as_grep_prints_lines(
    logfs: Call, partition: Path, compacted: Path, options: list[str]
) -> None:
    for path in (partition, compacted):
        lines = logfs("cat", path).out
        for expression in EXPRESSIONS:
            outcome = logfs("cat", *options, "-g", expression, path)
            assert (outcome.status, outcome.errors) == (0, [])
            assert outcome.out == unix(["grep", "-E", *options, expression], lines), expression


def test_the_compacted_partition_has_gaps(logfs: Call, compacted: Path) -> None:
    assert 500 < int(logfs("cat", "-c", compacted).out) < 2000


def test_the_context_stays_in_the_range(logfs: Call, partition: Path) -> None:
    fixed = partition.with_name("0@offset=1000..offset=1010")
    out = logfs("cat", "-C", "3", "-g", "^(1001|1009) ", fixed).out
    assert [int(line.split()[0]) for line in out.splitlines() if line != b"--"] == [
        1000, 1001, 1002, 1003, 1004, 1006, 1007, 1008, 1009,
    ]  # fmt: skip


@pytest.mark.parametrize("options", [[], ["-g", "7 "], ["-g", "never"]], ids=str)
def test_the_last_record_is_first(
    logfs: Call, partition: Path, compacted: Path, options: list[str]
) -> None:
    for path in (partition, compacted, partition.with_name("0@offset=700..offset=1300")):
        outcome = logfs("cat", "-r", *options, path)
        assert (outcome.status, outcome.errors) == (0, [])
        assert outcome.out == unix(["tac"], logfs("cat", *options, path).out)


def test_large_records_are_reversed_in_pieces(logfs: Call, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with open_store(data) as store:
        store.create_topic("large")
        for n in range(60):
            store.partition("large").append(b"%d " % n + b"x" * 300_000)
    out = logfs("cat", "-r", data / "large" / "0").out
    assert [int(line.split()[0]) for line in out.splitlines()] == list(range(59, -1, -1))


def test_the_groups_of_several_partitions_are_not_mixed(logfs: Call, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with open_store(data) as store:
        store.create_topic("both", 2)
        for number in (0, 1):
            store.partition("both", number).append_many(
                NewRecord(b"%d" % n, timestamp=1_795_000_000_000 + 10 * n + number)
                for n in range(9)
            )
    out = logfs("cat", "-A", "1", "-g", "[26]", data / "both").out.decode()
    assert out.split("--\n") == [
        f"both/{number}: {n}\nboth/{number}- {n + 1}\n" for n in (2, 6) for number in (0, 1)
    ]
    assert logfs("cat", "-c", data / "both").out == b"both/0: 9\nboth/1: 9\n"
    assert logfs("cat", "-c", "--no-prefix", "-F", "7", data / "both").out == b"1\n1\n"
    reverse = logfs("cat", "-r", data / "both").out
    assert reverse == unix(["tac"], logfs("cat", data / "both").out)
    json = logfs("cat", "-A", "1", "-g", "[26]", "--view", "jsonl", data / "both").out
    assert json.count(b"\n") == json.count(b'{"topic":"both"') == 8


def test_what_is_not_damaged_is_printed(logfs: Call, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with open_store(data) as store:
        store.create_topic("damaged", config={"internal.segment.bytes": "7000"})
        for n in range(100):
            store.partition("damaged").append(b"record %d" % n)
    log = min((data / "damaged-0").glob("*.log"))
    text = log.read_bytes()
    log.write_bytes(text.replace(b"record 50", b"record 5x"))
    path = data / "damaged" / "0"
    for options, printed in [
        (["-r"], [b"record %d" % n for n in range(99, 50, -1)]),
        (["-C", "1", "-g", "[48]9"], [b"record 48", b"record 49"]),
        (["-C", "1", "-g", "[34]5"], [b"record %d" % n for n in (34, 35, 36)] + [b"--"]
         + [b"record %d" % n for n in (44, 45, 46)]),
    ]:  # fmt: skip
        outcome = logfs("cat", *options, path)
        assert outcome.out.splitlines() == printed
        assert outcome.status == 1
        assert "offset 50" in outcome.errors[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-C", "1"], "give one of these"),
        (["-r", "-C", "1", "-F", "x"], "leave one of them out"),
        (["-A", "-1", "-F", "x"], "-1"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together(
    logfs: Call, partition: Path, options: list[str], said: str
) -> None:
    outcome = logfs("cat", *options, partition)
    assert (outcome.status, outcome.out) == (2, b"")
    assert said in " ".join(outcome.errors)
