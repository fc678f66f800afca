"""``logfs append`` on a data directory without a daemon, and through a daemon."""

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from logfs.machine.mountpoints import is_local
from logfs.types import View
from tests.cli.conftest import Call, Mounted, command, environment, fill, open_store, run

NUMBERED = b"".join(b"line %d\n" % n for n in range(200_000))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a topic ``orders`` of three partitions."""
    path = tmp_path / "data"
    fill(path, {"orders/2": b"", "orders/0": b"first\n"})
    return path


def put(directory: Path, name: str, content: bytes) -> Path:
    path = directory / name
    path.write_bytes(content)
    return path


# What becomes of lines


def test_files_one_after_the_other(logfs: Call, data: Path, tmp_path: Path) -> None:
    files = [put(tmp_path, "a", b"a1\na2"), put(tmp_path, "b", b""), put(tmp_path, "c", b"c\n\n")]
    assert logfs("append", data / "orders" / "0", *files) == (0, b"", [])
    # A line ends where its file ends.
    assert logfs("cat", data / "orders" / "0").out == b"first\na1\na2\nc\n\n"


@pytest.mark.parametrize(
    ("name", "options", "case"),
    [
        ("1", [], (b"a\tb\n", [(None, "a\tb", [])])),
        ("1.tsv", [], (b"a\tb\n\\N\t\\n", [("a", "b", []), (None, "\n", [])])),
        ("1", ["--format", "tsv"], (b"a\tb\n", [("a", "b", [])])),
        ("1.tsv", ["--format", "tsv"], (b"a\tb\n", [("a", "b", [])])),
        ("1", ["--key-delimiter", "::"], (b"a::b::c", [("a", "b::c", [])])),
        ("1", ["--key-delimiter", "\\t"], (b"a\tb\n", [("a", "b", [])])),
        (
            "1.jsonl",
            ["--header", "h=x=y", "--header", "e="],
            (
                b'{"key":"k","value":null,"headers":[["own","1"]]}',
                [("k", None, [["own", "1"], ["h", "x=y"], ["e", ""]])],
            ),
        ),
        ("1", ["--header", "host=web1"], (b"v", [(None, "v", [["host", "web1"]])])),
    ],
)
def test_lines_become_records(
    logfs: Call, data: Path, name: str, options: list[str], case: tuple[bytes, list[object]]
) -> None:
    written, rows = case
    file = put(data.parent, "in", written)
    assert logfs("append", data / "orders" / name, *options, file) == (0, b"", [])
    lines = logfs("cat", data / "orders" / "1.jsonl").out.splitlines()
    found = [json.loads(line) for line in lines]
    assert [(row["key"], row["value"], row["headers"]) for row in found] == rows


def test_stdin_and_what_was_appended_as_json(data: Path) -> None:
    outcome = run("append", data / "orders" / "0", "--json", stdin=NUMBERED[:-1])
    assert (outcome.status, outcome.errors) == (0, [])
    assert json.loads(outcome.out) == {
        "topic": "orders",
        "records": 200_000,
        "bytes": len(NUMBERED),
        "partitions": [
            {"partition": 0, "records": 200_000, "first_offset": 1, "last_offset": 200_000}
        ],
    }
    assert run("cat", data / "orders" / "0").out == b"first\n" + NUMBERED


def test_stdin_that_is_a_file_is_read_from_where_it_is(data: Path, tmp_path: Path) -> None:
    """And is read when it ends, as by any other program that shares it."""
    script = 'read first; "$@"; cat'
    with put(tmp_path, "in", b"a\nb\nc\n").open("rb") as file:
        done = subprocess.run(
            ["sh", "-c", script, "sh", *command("append", data / "orders" / "0")],
            check=True,
            capture_output=True,
            stdin=file,
            env=environment(),
        )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert run("cat", data / "orders" / "0").out == b"first\nb\nc\n"


def test_an_empty_file_appends_nothing(logfs: Call, data: Path, tmp_path: Path) -> None:
    outcome = logfs("append", data / "orders" / "0", "--json", put(tmp_path, "empty", b""))
    assert (outcome.status, outcome.errors) == (0, [])
    assert json.loads(outcome.out) == {
        "topic": "orders",
        "records": 0,
        "bytes": 0,
        "partitions": [],
    }


def test_a_line_longer_than_a_chunk(logfs: Call, data: Path, tmp_path: Path) -> None:
    line = b"x" * 9_000_000
    logfs("topic", "alter", data / "orders", "--config", "max.message.bytes=10000000")
    file = put(tmp_path, "in", b"a\n" + line + b"\nb\n" + line)
    assert logfs("append", data / "orders" / "0", file) == (0, b"", [])
    assert logfs("cat", data / "orders" / "0").out == b"first\na\n" + line + b"\nb\n" + line + b"\n"


def test_the_key_selects_the_partition(logfs: Call, data: Path, tmp_path: Path) -> None:
    keys = [b"key %d" % n for n in range(60)]
    file = put(tmp_path, "in", b"".join(key + b"\tv\n" for key in keys))
    outcome = logfs("append", data / "orders", "--format", "tsv", "--json", file)
    rows = json.loads(outcome.out)["partitions"]
    assert [row["partition"] for row in rows] == [0, 1, 2]
    assert sum(row["records"] for row in rows) == 60
    before = logfs("cat", data / "orders" / "1.tsv").out
    assert 0 < before.count(b"\n") < 60
    # The same keys find the same places, in their order.
    logfs("append", data / "orders", "--format", "tsv", file)
    assert logfs("cat", data / "orders" / "1.tsv").out == before * 2


def test_create_makes_a_missing_topic_or_partition(logfs: Call, tmp_path: Path) -> None:
    empty, file = tmp_path / "empty", put(tmp_path, "in", b"a\n")
    empty.mkdir()
    assert logfs("append", "--create", empty / "new" / "2", file) == (0, b"", [])
    assert logfs("append", "--create", empty / "other", file) == (0, b"", [])
    assert logfs("append", "--create", empty / "new" / "3", file) == (0, b"", [])
    assert json.loads(logfs("topic", "list", "--json", empty).out) == [
        {"topic": "new", "partitions": 4},
        {"topic": "other", "partitions": 1},
    ]
    assert logfs("cat", empty / "new" / "2", empty / "new" / "3", empty / "other" / "0").out == (
        b"a\na\na\n"
    )


@pytest.mark.parametrize("option", [["--durable"], ["--flush-every", "1"]])
def test_durable_options_append_every_line(
    logfs: Call, data: Path, tmp_path: Path, option: list[str]
) -> None:
    file = put(tmp_path, "in", NUMBERED)
    assert logfs("append", *option, data / "orders" / "0", file) == (0, b"", [])
    assert logfs("cat", data / "orders" / "0@offset=-1").out == b"line 199999\n"


# What is refused


@pytest.mark.parametrize(
    ("path", "options", "reason"),
    [
        ("orders/3", [], "topic orders has no partition 3; --create makes it and those below it"),
        ("nix/0", [], "no topic nix; --create makes it"),
        ("nix", [], "no topic nix; --create makes it"),
        ("", [], "expected TOPIC/PARTITION, or TOPIC, after the data directory"),
        ("orders/0/1", [], "expected TOPIC/PARTITION, or TOPIC, after the data directory"),
        (".segments/orders-0", [], "expected TOPIC/PARTITION, or TOPIC, after"),
        ("orders/00", [], "'00': no such name; expected PARTITION"),
        ("orders/0@-1h", [], "'0@-1h' cannot be written to; append to orders/0, or to 0.tsv"),
        ("orders/0.meta", [], "'0.meta' cannot be written to"),
        ("orders/0.tsv", ["--format", "jsonl"], "'0.tsv' and --format jsonl contradict"),
        ("orders/0.tsv", ["--key-delimiter", ":"], "--key-delimiter is for text"),
        ("orders/0", ["--key-delimiter", ""], "--key-delimiter is empty"),
        ("orders/0", ["--key-delimiter", "\n"], "--key-delimiter has a newline"),
        ("new/10000", ["--create"], "partition 10000: a topic can be made up to 10000 partitions"),
        ("my orders", ["--create"], "illegal topic name 'my orders'"),
    ],
)
def test_append_takes_paths_of_directories_and_mounts(
    logfs: Call, data: Path, tmp_path: Path, path: str, options: list[str], reason: str
) -> None:
    given = str(data / path)
    status, out, errors = logfs("append", *options, given, put(tmp_path, "in", b"a\n"))
    assert (status, out, len(errors)) == (1, b"", 1)
    assert errors[0].startswith(f"logfs: {given}: {reason}")
    assert logfs("cat", data / "orders" / "0").out == b"first\n"


def test_the_error_names_the_number_of_a_bad_line(logfs: Call, data: Path, tmp_path: Path) -> None:
    """By the number in its file, wherever chunks begin; what is before it is in the log."""
    lines = [b"%06d" % n + b"." * 93 for n in range(100_000)]
    lines[70_000] = b"more\tthan\tone"
    good, bad = put(tmp_path, "good", b"x\ny\n"), put(tmp_path, "bad", b"\n".join(lines))
    status, out, errors = logfs("append", data / "orders" / "0.tsv", good, bad, good)
    assert (status, out, len(errors)) == (1, b"", 1)
    assert errors[0] == (
        f"logfs: {bad}, line 70001: more than one TAB; write a TAB inside a key or value as \\t; "
        "70002 records appended (6.7MiB, offsets 1 to 70002)"
    )
    assert logfs("cat", data / "orders" / "0@offset=-1").out == lines[69_999] + b"\n"


def test_the_error_names_a_bad_line_among_lines_for_several_partitions(
    logfs: Call, data: Path, tmp_path: Path
) -> None:
    file = put(tmp_path, "in", b"a:1\nb:2\nnone\nc:3\n")
    status, _, errors = logfs("append", data / "orders", "--key-delimiter", ":", file)
    assert status == 1
    assert errors[0].startswith(f"logfs: {file}, line 3: no ':' between a key and a value; 2 rec")


def test_a_line_that_is_too_large(logfs: Call, data: Path, tmp_path: Path) -> None:
    file = put(tmp_path, "in", b"a\n" + b"x" * 2_000_000 + b"\n")
    status, _, errors = logfs("append", data / "orders" / "0", file)
    assert status == 1
    assert errors == [
        f"logfs: {file}, line 2: its record alone makes a batch of 2000074 bytes; "
        f"max.message.bytes is 1048588; 'logfs topic alter {data}/orders --config "
        "max.message.bytes=2000074' lets it in; 1 record appended (2B, offsets 1 to 1)"
    ]
    logfs("topic", "alter", data / "orders", "--config", "max.message.bytes=2000074")
    assert logfs("append", data / "orders" / "0", file).status == 0


def test_append_checks_all_files_first(logfs: Call, data: Path, tmp_path: Path) -> None:
    good = put(tmp_path, "good", b"a\n")
    for wrong, reason in (
        (tmp_path / "nix", "No such file or directory"),
        (tmp_path, "a directory; expected a file with lines"),
    ):
        status, _, errors = logfs("append", data / "orders" / "0", good, wrong)
        assert (status, errors) == (1, [f"logfs: {wrong}: {reason}"])
    assert logfs("cat", data / "orders" / "0").out == b"first\n"


def test_append_refuses_a_directory_that_another_process_owns(
    logfs: Call, data: Path, tmp_path: Path
) -> None:
    store = open_store(data)
    status, _, errors = logfs("append", data / "orders" / "0", put(tmp_path, "in", b"a\n"))
    store.close(0)
    assert (status, len(errors)) == (1, 1)
    assert "nothing was appended" in errors[0]


def test_append_refuses_a_closed_stdin(data: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" <&-', "sh", *command("append", data / "orders" / "0")],
        check=False,
        capture_output=True,
        env=environment(),
    )
    assert done.returncode == 1
    assert done.stderr == b"logfs: stdin is closed; give it something to read, or name a FILE\n"


# While it runs


def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command(*arguments), stdin=pipe, stdout=pipe, stderr=pipe, env=environment()
    )


def wait_for(data: Path, text: bytes) -> None:
    """Wait until that is in ``orders/0``."""
    log = data / "orders-0" / "00000000000000000000.log"
    for _ in range(3000):
        if text in log.read_bytes():
            return
        time.sleep(0.01)
    pytest.fail(f"{text!r} has not come")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_whole_lines(data: Path, number: int, status: int) -> None:
    with start("append", data / "orders" / "0") as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\nunfinish")
        process.stdin.flush()
        wait_for(data, b"two")
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert errors.decode().splitlines() == [
        f"logfs: {data}/orders/0: interrupted; 2 records appended (8B, offsets 1 to 2), "
        "up to line 2 of stdin"
    ]
    assert process.returncode == status
    assert run("cat", data / "orders" / "0").out == b"first\none\ntwo\n"
    assert (data / "logfs.closed").exists()


@pytest.mark.slow
def test_progress_on_a_terminal(data: Path, tmp_path: Path) -> None:
    file = put(tmp_path, "in", NUMBERED)
    ours, theirs = pty.openpty()
    done = subprocess.run(
        command("append", data / "orders" / "0", file),
        check=False,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**environment(), "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 20)
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"200,000 records" in shown
    assert b"B/s" in shown
    size = f"{len(NUMBERED) / 2**20:.1f}MiB"
    assert f"200000 records appended ({size}, offsets 1 to 200000)".encode() in shown


@pytest.mark.fuse
@pytest.mark.slow
def test_a_daemon_appends_to_its_directory(mounted: Mounted, tmp_path: Path) -> None:
    """The same through the mount point and the data directory; readers of the mount see it."""
    file = put(tmp_path, "in", NUMBERED)
    outcome = run("append", "--create", "--json", mounted.point / "orders" / "0", file)
    assert json.loads(outcome.out)["records"] == 200_000
    assert (mounted.point / "orders" / "0").read_bytes() == NUMBERED
    data = mounted.data / "orders"
    for options in (["--durable"], ["--flush-every", "1"]):
        assert run("append", data / "0.tsv", *options, stdin=b"k\tv") == (0, b"", [])
    assert (mounted.point / "orders" / "0").read_bytes() == NUMBERED + b"v\nv\n"
    assert run("append", "--create", data / "2", stdin=b"x\n").status == 0
    lines = b"".join(b"%d:v\n" % n for n in range(30))
    outcome = run("append", data, "--key-delimiter", ":", "--header", "h=x", stdin=lines)
    assert outcome == (0, b"", [])
    sizes = [(mounted.point / "orders" / f"{n}@-1m.tsv").read_bytes().count(b"\tv") for n in (1, 2)]
    assert all(sizes)
    assert run("append", data / "9", stdin=b"x\n").errors == [
        f"logfs: {data}/9: topic orders has no partition 9; --create makes it and those below it; "
        "nothing was appended"
    ]
    outcome = run("append", data / "1.jsonl", stdin=b'{"value":"1"}\n{"vlaue":1}\n')
    assert outcome.errors == [
        "logfs: stdin, line 2: unknown field 'vlaue'; "
        f"1 record appended (14B, offsets {sizes[0]} to {sizes[0]})"
    ]


@pytest.mark.fuse
@pytest.mark.slow
def test_a_file_of_the_mount_by_its_daemon(mounted: Mounted, tmp_path: Path) -> None:
    """The daemon does not wait for itself: the command reads what the mount shows."""
    file = put(tmp_path, "in", NUMBERED)
    assert run("append", "--create", mounted.data / "orders" / "1", file).status == 0
    shown = mounted.point / "orders" / "1@earliest..latest"
    assert run("append", mounted.data / "orders" / "0", shown, shown) == (0, b"", [])
    assert (mounted.point / "orders" / "0").read_bytes() == NUMBERED * 2
    with shown.open("rb") as open_there, file.open("rb") as open_here:
        assert not is_local(open_there.fileno())
        assert is_local(open_here.fileno())


def test_views_are_copied_from_one_directory_to_another(
    logfs: Call, tmp_path: Path, data: Path
) -> None:
    fill(data, {"orders/1": b"k\tv\n\\N\tw\n"}, view=View.TSV)
    copied = put(tmp_path, "copy", logfs("cat", data / "orders" / "1.jsonl").out)
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "orders" / "0.jsonl"
    assert logfs("append", "--create", other, copied) == (0, b"", [])
    assert logfs("cat", other).out == copied.read_bytes()


OLD = b'{"value":"x","timestamp":1100000000000}\n'


def test_records_that_retention_is_about_to_delete_are_warned_about(
    logfs: Call, tmp_path: Path
) -> None:
    data = tmp_path / "imported"
    data.mkdir()
    done = run("append", "--create", data / "old" / "0.jsonl", stdin=OLD)
    assert done.status == 0
    assert "its newest record is older than retention.ms=604800000" in "".join(done.errors)
    assert b"old: warning: partition 0: its newest record is older" in logfs("status", data).out
    assert logfs("topic", "alter", data / "old", "--config", "retention.ms=-1").status == 0
    assert not run("append", data / "old" / "0.jsonl", stdin=OLD).errors
    assert b"warning" not in logfs("status", data).out
    # Lines of other forms are new.
    assert not run("append", "--create", data / "new" / "0", stdin=b"x\n").errors


@pytest.mark.fuse
def test_a_daemon_warns_about_records_that_retention_will_delete(mounted: Mounted) -> None:
    done = run("append", "--create", mounted.point / "old" / "0.jsonl", stdin=OLD)
    assert done.status == 0
    assert "its newest record is older than retention.ms=604800000" in "".join(done.errors)
