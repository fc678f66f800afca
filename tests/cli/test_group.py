"""Consumer groups: ``logfs tail --group``, ``logfs group``, and names with ``@group=``."""

import array
import fcntl
import json
import signal
import subprocess
import termios
from pathlib import Path
from typing import IO

import pytest

import logfs as library
from tests.cli.conftest import Call, Mounted, command, environment
from tests.mounting import opened_store, wait_until


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A topic of two partitions with five records each."""
    path = tmp_path / "data"
    path.mkdir()
    with library.open_store(path) as store:
        store.create_topic("orders", 2)
        for number in range(2):
            values = [b"%d.%d" % (number, n) for n in range(5)]
            store.partition("orders", number).append_many(values)
    return path


def append(data: Path, *values: bytes, number: int = 0) -> None:
    with library.open_store(data) as store:
        store.partition("orders", number).append_many(values)


def test_tail_continues_after_what_its_group_has_printed(logfs: Call, data: Path) -> None:
    first = logfs("tail", "--group", "mailer", "--no-prefix", data / "orders")
    assert sorted(first.out.split()) == [b"%d.%d" % (p, n) for p in range(2) for n in range(5)]
    assert logfs("tail", "--group", "mailer", data / "orders") == (0, b"", [])
    append(data, b"new", b"other")
    assert logfs("cat", data / "orders" / "0@group=mailer").out == b"new\nother\n"
    again = logfs("tail", "--group", "mailer", "--grep", "new", data / "orders")
    assert again.out == b"orders/0: new\n"
    assert logfs("tail", "--group", "mailer", data / "orders").out == b"", "others are passed over"
    other = logfs("tail", "--group", "other", "--since", "latest", data / "orders")
    assert other.out == b"", "a group without a position begins with --since"
    refused = logfs("tail", "--group", "mailer", "-n", "3", data / "orders")
    assert refused.status == 2
    assert "exclude each other" in refused.errors[0]


def test_only_flushed_records_are_committed_when_the_reader_ends(data: Path) -> None:
    append(data, *[b"x" * 1000] * 5000)
    tail = command("tail", "--group", "reader", str(data / "orders" / "0"))
    with subprocess.Popen(tail, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0.0\n"
        process.stdout.close()
        process.wait(60)
    with library.open(data / "orders" / "0") as orders:
        assert (orders.committed("reader") or 0) < 5005


@pytest.mark.fuse
@pytest.mark.slow
def test_a_follower_commits_while_it_runs(mounted: Mounted) -> None:
    path = mounted.point / "orders"
    path.mkdir()
    tail = command("tail", "-f", "--group", "follower", str(path))
    with subprocess.Popen(tail, stdout=subprocess.PIPE, env=environment()) as process:
        try:
            with (path / "0").open("ab") as file:
                file.write(b"line\n")
            assert process.stdout is not None
            assert process.stdout.readline() == b"line\n"
            wait_until(lambda: not (path / "0@group=follower").read_bytes(), "it was committed")
            assert (path / "0@earliest..group=follower").read_bytes() == b"line\n"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def large(path: Path) -> Path:
    """Return a partition of more records than a pipe holds."""
    path.mkdir()
    with library.open_store(path) as store:
        store.create_topic("large")
        store.partition("large").append_many(b"%05d %s" % (n, b"x" * 94) for n in range(3000))
    return path / "large" / "0"


def first_left(partition: Path) -> int:
    """Return the number of the first record that a group has not printed yet."""
    left = run(["tail", "--group", "reader", partition]).splitlines()
    numbers = [int(line[:5]) for line in left]
    assert numbers == list(range(numbers[0], 3000))
    return numbers[0]


def run(arguments: list[str | Path], *, script: str = '"$@"') -> bytes:
    words = ["sh", "-c", script, "sh", *command(*map(str, arguments))]
    return subprocess.run(
        words, check=True, env=environment(), stdout=subprocess.PIPE, timeout=60
    ).stdout


def test_what_was_printed_before_the_reader_ended_is_committed(tmp_path: Path) -> None:
    partition = large(tmp_path / "data")
    arguments: list[str | Path] = ["tail", "--group", "reader", partition]
    assert run(arguments, script='"$@" | head -n 1').startswith(b"00000 ")
    assert 0 < first_left(partition) < 3000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_printed_before_a_signal_is_committed(
    tmp_path: Path, number: signal.Signals
) -> None:
    partition = large(tmp_path / "data")
    with subprocess.Popen(
        command("tail", "-f", "--group", "reader", str(partition)),
        env=environment(),
        stdout=subprocess.PIPE,
    ) as tail:
        pipe = tail.stdout
        assert pipe is not None
        wait_until(lambda: pipe_bytes(pipe) > 32 << 10, "the pipe is nearly full")
        tail.send_signal(number)
        tail.wait(timeout=30)
        printed = pipe.read().count(b"\n")
    assert tail.returncode == 128 + number
    assert 0 < first_left(partition) <= printed


def pipe_bytes(pipe: IO[bytes]) -> int:
    """Return how many bytes of a pipe can be read."""
    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


def test_groups_are_listed_and_described(logfs: Call, data: Path) -> None:
    assert logfs("group", "list", data).out == b"GROUP  PARTITIONS  LAG  LAG-TIME  COMMITTED\n"
    assert json.loads(logfs("group", "list", "--json", data).out) == []
    with library.open_store(data) as store:
        store.partition("orders", 0).commit("billing", 3, metadata="step 7")
        store.partition("orders", 1).commit("billing", 5)
    [row] = json.loads(logfs("group", "list", "--json", data).out)
    assert (row["group"], row["partitions"], row["lag"]) == ("billing", 2, 2)
    assert row["lag_seconds"] > 0
    text = logfs("group", "describe", data, "billing").out.decode().splitlines()
    assert text[0].split() == [
        *("PARTITION", "POSITION", "END", "LAG", "LAG-TIME", "COMMITTED", "METADATA")
    ]
    assert text[1].split()[:4] == ["orders/0", "3", "5", "2"]
    assert text[1].endswith("step 7")
    assert text[2].split()[:5] == ["orders/1", "5", "5", "0", "0"]
    rows = json.loads(logfs("group", "describe", "--json", data, "billing").out)
    assert [row["lag"] for row in rows] == [2, 0]
    refused = logfs("group", "describe", data, "billin")
    assert refused.status == 1
    assert "no consumer group billin" in refused.errors[0]


def test_positions_are_reset_and_deleted(logfs: Call, data: Path) -> None:
    def positions() -> list[int | None]:
        with library.open_store(data) as store:
            return [store.partition("orders", n).committed("billing") for n in range(2)]

    tried = logfs("group", "reset", "--dry-run", "billing", data / "orders@offset=2")
    would = b"orders/%d: would continue at offset 2\n"
    assert tried.out == would % 0 + would % 1
    assert positions() == [None, None]
    done = logfs("group", "reset", "billing", data / "orders@offset=2")
    assert done.out == tried.out.replace(b"would continue", b"continues")
    assert positions() == [2, 2]
    logfs("group", "reset", "billing", data / "orders" / "1@latest")
    assert positions() == [2, 5]
    logfs("group", "reset", "trial", data / "orders@group=billing")
    assert b"3" in logfs("group", "list", data).out
    assert logfs("group", "delete", "billing", data / "orders" / "1").status == 0
    assert positions() == [2, None]
    assert logfs("group", "delete", "billing", data).out == b"orders/0: position 2 deleted\n"
    assert positions() == [None, None]
    for wrong in ("orders", "orders@byte=3", "orders@earliest..latest", "nix@latest"):
        assert logfs("group", "reset", "billing", data / wrong).status == 1


def test_the_help_of_reset_has_the_points_that_it_takes(logfs: Call) -> None:
    text = logfs("group", "reset", "--help").out
    assert b"@-15m" in text
    assert b"@byte=" not in text


def test_a_directory_that_another_program_owns_is_read_only(logfs: Call, data: Path) -> None:
    append_commit = logfs("group", "reset", "billing", data / "orders@offset=2")
    assert append_commit.status == 0
    with opened_store(data):
        assert b"billing" in logfs("group", "list", data).out
        tail = logfs("tail", "--group", "billing", data / "orders")
        assert (tail.status, tail.out) == (1, b"")
        assert "--since group=billing" in tail.errors[0]
        peeked = logfs("tail", "--since", "group=billing", "--no-prefix", data / "orders" / "0")
        assert peeked.out == b"0.2\n0.3\n0.4\n"
        assert logfs("group", "reset", "billing", data / "orders@latest").status == 1
