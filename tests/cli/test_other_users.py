"""Commands and the library for users with access to the mount, but not to the data directory."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.log.groups.coding import OFFSETS_PARTITIONS
from tests.cli.conftest import Mounted, Outcome, command, environment, run, take_away
from tests.mounting import kill_with_holder, wait_until

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users"),
]

NOBODY = 65534
MOST_ATTRIBUTES = 40 * OFFSETS_PARTITIONS
"""A look at all groups asks for some attributes of each partition, not of each for each."""
SMALL = ["--config", "internal.segment.bytes=20000", "--config", "max.message.bytes=10000"]


def as_nobody(*words: str | Path, stdin: bytes = b"") -> Outcome:
    """Run a command line as another user."""
    done = subprocess.run(
        [str(word) for word in words],
        check=False,
        capture_output=True,
        input=stdin,
        env=environment() | {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        timeout=60,
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode().splitlines())


def logfs_as_nobody(*arguments: str | Path, stdin: bytes = b"") -> Outcome:
    """Call ``logfs`` as another user."""
    return as_nobody(*command(*arguments), stdin=stdin)


def python_as_nobody(program: str, *arguments: str | Path) -> Outcome:
    """Run a program that uses the library as another user."""
    return as_nobody(sys.executable, "-c", program, *arguments)


def write(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


@pytest.fixture
def shared() -> Iterator[Mounted]:
    """Mount a directory for everybody: a topic that all may use, and a private one."""
    if as_nobody(sys.executable, "-c", "import logfs.cli.main").status:
        pytest.skip("the source cannot be read by other users")
    root = Path(tempfile.mkdtemp(prefix="logfs-shared-"))
    root.chmod(0o755)
    found = Mounted(root / "data", root / "mnt")
    found.data.mkdir(mode=0o700)
    found.point.mkdir()
    mount = ["mount", str(found.data), str(found.point), "--background", "-o", "allow_other"]
    assert run(*mount, "--log-file", root / "log") == (0, b"", [])
    try:
        run("topic", "create", found.point / "open", "--partitions", "2", *SMALL)
        run("topic", "create", found.point / "private")
        for topic, mode in (("open", 0o777), ("private", 0o700)):
            (found.point / topic).chmod(mode)
            for partition in (found.point / topic).iterdir():
                partition.chmod(mode & 0o666)
        write(found.point / "private" / "0", b"secret\n")
        yield found
    finally:
        take_away(found)
        shutil.rmtree(root)


def test_reading_commands_print_what_root_sees(shared: Mounted) -> None:
    topic = shared.point / "open"
    write(topic / "0", b"".join(b"%d\n" % n for n in range(10_000)))
    write(topic / "1.tsv", b"k\tv\n")
    calls: list[list[str | Path]] = [
        ["tail", topic],
        ["tail", "--from", "offset=-3", "--view", "jsonl", topic / "0"],
        ["tail", "-n", "100000", topic / "0"],
        ["offsets", topic],
        ["offsets", topic / "0", "--time", "-1h", "--as-kafka"],
        ["cat", topic / "0@offset=9990.jsonl"],
        ["cat", "--grep", "99", "--since", "-1h", topic],
        ["topic", "describe", topic],
        ["topic", "list", shared.point],
    ]
    for arguments in calls:
        assert logfs_as_nobody(*arguments) == run(*arguments), arguments


def test_a_program_reads_a_topic_as_a_table(shared: Mounted) -> None:
    topic = shared.point / "open"
    write(topic / "0", b"".join(b"%d\n" % n for n in range(100)))
    write(topic / "1.tsv", b"k\tv\n")
    run("trim", f"{topic / '0'}@offset=37")
    program = """
import sys, logfs
found = logfs.scan(sys.argv[1], columns=["key", "value"], text=True).read_arrow().read_all()
print(found.num_rows, found.to_pylist()[0], found.to_pylist()[-1])
with logfs.open(f"{sys.argv[1]}/0") as log:
    print(log.read_arrow(98, columns=["offset"]).read_all().column("offset").to_pylist())
"""
    assert python_as_nobody(program, topic).out.decode().splitlines() == [
        "64 {'key': None, 'value': '37'} {'key': 'k', 'value': 'v'}",
        "[98, 99]",
    ]


def test_what_was_trimmed_is_not_shown(shared: Mounted) -> None:
    partition = shared.point / "open" / "0"
    write(partition, b"".join(b"%d\n" % n for n in range(100)))
    run("trim", f"{partition}@offset=37")
    assert logfs_as_nobody("tail", "-n", "1000", partition).out.startswith(b"37\n")
    found = json.loads(logfs_as_nobody("offsets", "--json", partition).out)
    assert found[0]["offset"] == 37


def test_a_follower_sees_every_record_over_rolls_and_compaction(shared: Mounted) -> None:
    topic = shared.point / "compacted"
    run("topic", "create", topic, *SMALL, "--config", "cleanup.policy=compact")
    program = """
import sys, logfs
with logfs.open(sys.argv[1]) as log:
    print("ready", flush=True)
    for record in log.follow("earliest", timeout=50):
        print(record.value.decode(), flush=True)
        if record.value == b"end": break
"""
    reader = subprocess.Popen(
        [sys.executable, "-c", program, str(topic / "0")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        text=True,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    written = []
    for turn in range(20):
        values = [f"{turn}-{key}" for key in range(100)]
        lines = "".join(f"{key}\t{value}\n" for key, value in enumerate(values))
        write(topic / "0.tsv", lines.encode())
        for value in values:  # compaction must not overtake the reader
            assert reader.stdout.readline() == f"{value}\n"
        written += values
        if turn % 5 == 4:
            assert run("compact", topic, "--roll").status == 0
    write(topic / "0.tsv", b"x\tend\n")
    out, errors = reader.communicate(timeout=60)
    assert (out, errors) == ("end\n", "")


def test_lines_are_appended_as_the_modes_allow(shared: Mounted) -> None:
    topic = shared.point / "open"
    assert logfs_as_nobody("append", topic / "0", stdin=b"a\nb") == (0, b"", [])
    assert logfs_as_nobody("append", topic / "0.tsv", "--durable", stdin=b"k\tv\n").status == 0
    keyed = [f"key{n}:value{n}" for n in range(50)]
    done = logfs_as_nobody(
        *("append", "--json", "--key-delimiter", ":", "--header", "host=web", topic),
        stdin="\n".join(keyed).encode(),
    )
    told = json.loads(done.out)
    assert (done.status, done.errors, told["records"]) == (0, [], 50)
    assert {row["first_offset"] for row in told["partitions"]} == {None}
    assert (topic / "0").read_bytes().splitlines()[:3] == [b"a", b"b", b"v"]
    lines = [line for n in "01" for line in (topic / f"{n}.jsonl").read_bytes().splitlines()]
    found = [json.loads(line) for line in lines[3:]]
    assert sorted(f"{row['key']}:{row['value']}" for row in found) == sorted(keyed)
    assert {json.dumps(row["headers"]) for row in found} == {'[["host", "web"]]'}
    by_root = shared.point / "same"
    run("topic", "create", by_root, "--partitions", "2")
    run("append", by_root, "--key-delimiter", ":", stdin="\n".join(keyed).encode())
    assert (by_root / "1").read_bytes() == (topic / "1").read_bytes()


def test_a_line_that_is_refused_is_named_and_those_before_it_are_there(shared: Mounted) -> None:
    topic = shared.point / "open"
    done = logfs_as_nobody("append", topic / "0", stdin=b"good\n" + b"x" * 20_000 + b"\nlost\n")
    assert done.status == 1
    assert "stdin, line 2: " in done.errors[0]
    assert done.errors[0].endswith("1 record appended (5B)")
    assert (topic / "0").read_bytes() == b"good\n"


def test_what_a_mode_denies_is_its_errno_with_the_path_as_it_was_typed(shared: Mounted) -> None:
    path = f"{shared.point}/../mnt/private/0"
    for arguments in (["append", path], ["tail", path], ["cat", path]):
        done = logfs_as_nobody(*arguments, stdin=b"x\n")
        assert (done.status, done.out, len(done.errors)) == (1, b"", 1)
        assert done.errors[0].startswith(f"logfs: {path}: "), done.errors
        assert "Permission denied" in done.errors[0]
    everything = logfs_as_nobody("tail", shared.point)
    assert (everything.status, b"secret" in everything.out) == (1, False)
    assert "private" in everything.errors[0]


def test_a_program_appends_reads_and_follows(shared: Mounted) -> None:
    program = """
import sys, logfs
with logfs.open(sys.argv[1]) as log:
    print(log.append(b"one", key=b"k", headers=[("h", b"1")], timestamp=1_790_000_000_000))
    print(log.append_many([b"two"] * 3 + [b"\\xff\\n"], durable=True))
    print([tuple(record) for record in log.read()][:1])
    print([record.value for record in log.follow("offset=2", timeout=0)])
    print(log.start_offset, log.end_offset, log.offset_at("byte=4"))
    try:
        log.producer(1).append_many([b"x"])
    except PermissionError as error:
        print(error.filename)
with logfs.open_store(sys.argv[2]) as store:
    print(store.topics())
    try:
        store.create_topic("mine")
    except PermissionError:
        print("denied")
"""
    done = python_as_nobody(program, shared.point / "open" / "0", shared.point)
    assert done.errors == [], "\n".join(done.errors)
    assert done.out.decode().splitlines() == [
        "0",
        "range(1, 5)",
        "[(0, 1790000000000, b'k', b'one', ((b'h', b'1'),))]",
        "[b'two', b'two', b'\\xff\\n']",
        "0 5 1",
        f"{shared.data}/logfs.socket",
        "{'open': 2, 'private': 1}",
        "denied",
    ]


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_status_says_that_it_does_not_know(shared: Mounted, mode: int) -> None:
    """A directory may be denied, or may be listed although its files may not be read."""
    shared.data.chmod(mode)
    for path in shared.data.iterdir():
        path.chmod(0o750 if path.is_dir() else 0o640)
    for number in ("0", "1"):
        (shared.point / "open" / number).chmod(0o644)
    status, out, errors = logfs_as_nobody("status", "--json", shared.point)
    assert (status, errors) == (2, [])
    topics = {row["topic"]: row for row in json.loads(out)["topics"]}
    assert (topics["open"]["has_config"], topics["private"]["has_config"]) == (True, None)
    assert topics["private"]["partitions"][0]["log_end_offset"] is None
    text = logfs_as_nobody("status", shared.point).out.decode()
    assert "never trimmed" not in text
    assert "private: nothing is known of 1 partition, which you may not read" in text
    assert logfs_as_nobody("status", shared.point / "open").status == 0


def test_a_program_appends_after_the_daemon_was_killed(shared: Mounted) -> None:
    write(shared.point / "open" / "0", b"a\n")
    pid = shared.pid
    kill_with_holder(pid)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the daemon is gone")
    mount = ["mount", str(shared.data), str(shared.point), "--background", "-o", "allow_other"]
    assert run(*mount, "--log-file", shared.data.parent / "log").status == 0
    program = """
import sys, logfs
with logfs.open(sys.argv[1]) as log:
    print(log.append(b"b"), log.append(b"c"), log.end_offset)
"""
    done = python_as_nobody(program, shared.point / "open" / "0")
    assert done == (0, b"1 2 3\n", [])


ROWS = """
import glob, sys
import pyarrow.parquet as pq
for file in sorted(glob.glob(sys.argv[1] + "/**/*.parquet", recursive=True)):
    table = pq.read_table(file, partitioning=None)
    for row in zip(*(table.column(name).to_pylist() for name in ("partition", "offset", "value"))):
        print(*row)
"""


@pytest.mark.spark
def test_records_are_exported_as_the_modes_allow(shared: Mounted) -> None:
    topic, lake = shared.point / "open", shared.data.parent / "lake"
    lake.mkdir()
    lake.chmod(0o777)
    write(topic / "0", b"".join(b"%d\n" % n for n in range(5000)))
    write(topic / "1", b"other\n")
    status, out, errors = logfs_as_nobody("export", topic, lake)
    assert (status, errors) == (0, [])
    assert out.decode().startswith(f"{lake}: 5001 records in 2 files")
    write(topic / "1", b"new\n")
    status, out, errors = logfs_as_nobody("export", shared.point, lake)  # and the private topic
    assert (status, errors) == (1, ["logfs: private: this user may not read it"])
    assert out.decode().startswith(f"{lake}: 1 record in 1 file")
    rows = python_as_nobody(ROWS, lake).out.decode().splitlines()
    due = [f"0 {n} b'{n}'" for n in range(5000)] + ["1 0 b'other'", "1 1 b'new'"]
    assert sorted(rows) == sorted(due)
    done = logfs_as_nobody("export", shared.point / "private", lake / "more")
    assert (done.status, done.errors) == (1, ["logfs: private: this user may not read it"])
    assert b"nothing new" in done.out


READER = """
import pickle, sys
from datetime import UTC
from logfs.spark.batch import LogfsReader
from logfs.spark.options import parse_options
from logfs.arrow.columns import PLAIN
given = {"path": sys.argv[1], "subscribe": sys.argv[2], "startingOffsets": "earliest"}
reader = LogfsReader(parse_options(given, UTC, is_stream=False), PLAIN)
tasks = reader.partitions()
worker = pickle.loads(pickle.dumps((reader, tasks)))
values = [v for task in worker[1] for batch in worker[0].read(task) for v in batch[1].to_pylist()]
print(len(values), values[0], values[-1])
"""


@pytest.mark.spark
def test_a_table_of_spark_is_read_as_the_modes_allow(shared: Mounted) -> None:
    topic = shared.point / "open"
    write(topic / "0", b"".join(b"%d\n" % n for n in range(5000)))
    done = python_as_nobody(READER, shared.point, "open")
    assert done == (0, b"5000 b'0' b'4999'\n", []), "\n".join(done.errors)
    done = python_as_nobody(READER, shared.point, "private")
    assert (done.status, done.out) == (1, b"")
    assert done.errors[-1].startswith("PermissionError"), "\n".join(done.errors)


def attributes_asked(shared: Mounted) -> int:
    """Return how many extended attributes programs have asked the daemon for."""
    found = re.search(
        rb'requests_total{operation="getxattr"} (\d+)', run("metrics", shared.point).out
    )
    assert found is not None
    return int(found[1])


def test_positions_of_groups_are_read_and_committed_as_the_modes_allow(shared: Mounted) -> None:
    topic, offsets = shared.point / "open", shared.point / "__consumer_offsets"
    write(topic / "0", b"one\ntwo\nthree\n")
    assert run("group", "reset", "billing", f"{topic}/0@offset=1").status == 0
    offsets.chmod(0o700)
    for arguments in (
        ["group", "list", shared.point],
        ["group", "reset", "billing", f"{topic}/0@earliest"],
        ["group", "delete", "billing", shared.point],
        ["tail", "--group", "billing", topic / "0"],
    ):
        done = logfs_as_nobody(*arguments)
        assert (done.status, done.out) == (1, b""), arguments
        assert len(done.errors) == 1, done.errors
        assert "__consumer_offsets" in done.errors[0], done.errors
        assert "Permission denied" in done.errors[0], done.errors
    offsets.chmod(0o755)
    asked = attributes_asked(shared)
    described = logfs_as_nobody("group", "describe", shared.point, "billing", "--json")
    assert (described.status, described.errors) == (0, [])
    [position] = json.loads(described.out)
    assert (position["position"], position["end"], position["lag"]) == (1, 3, 2)
    assert attributes_asked(shared) - asked < MOST_ATTRIBUTES
    refused = logfs_as_nobody("group", "reset", "billing", f"{topic}/0@earliest")
    assert refused.status == 1
    assert "Permission denied" in refused.errors[0]
    for partition in offsets.iterdir():
        partition.chmod(0o666)
    assert logfs_as_nobody("group", "reset", "billing", f"{topic}/0@latest").status == 0
    assert logfs_as_nobody("tail", "--group", "billing", topic / "0") == (0, b"", [])
    write(topic / "0", b"four\n")
    assert logfs_as_nobody("tail", "--group", "billing", topic / "0") == (0, b"four\n", [])
    assert logfs_as_nobody("group", "delete", "billing", shared.point).status == 0
    assert b"billing" not in run("group", "list", shared.point).out
