"""Writes that the native thread of a mount applies, beside those of Python: through the kernel."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from logfs.client import Daemon
from tests.fs.mounting import Mounted
from tests.log.support import batches_in
from tests.mounting import logfs
from tests.processes import PATIENCE_S, wait_until

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

APPEND = os.O_WRONLY | os.O_APPEND
WRITER = """
import os, random, sys
path, name, stop = sys.argv[1:]
chance = random.Random(name)
file = os.open(path, os.O_WRONLY | os.O_APPEND)
count, rest = 0, b""
while rest or not os.path.exists(stop):
    while len(rest) < 2000 and not os.path.exists(stop):
        rest += b"%s-%d-%s\\n" % (name.encode(), count, b"x" * chance.choice([0, 9, 200, 70000]))
        count += 1
    if not rest:
        break
    size = chance.randint(1, len(rest)) if chance.random() < 0.5 else len(rest)
    try:
        rest = rest[os.write(file, rest[:size]) :]
        if chance.random() < 0.03:
            os.fsync(file)
        if chance.random() < 0.03:
            os.close(os.dup(file))
    except OSError:
        break
print(count - rest.count(b"\\n"), len(rest), flush=True)
"""


@pytest.fixture
def native(tmp_path: Path) -> Iterator[Mounted]:
    """A mount with the thread."""
    mounted = Mounted(tmp_path, "num.partitions=2")
    mounted.start()
    (mounted.point / "t").mkdir()
    yield mounted
    mounted.clear()
    mounted.check()


def native_writes(mounted: Mounted, what: str = "writes") -> int:
    """How many writes the thread has applied, or how many fsyncs were answered natively."""
    with Daemon.connect(str(mounted.data)) or pytest.fail("no daemon") as daemon:
        text = daemon.prometheus().decode()
    found = re.search(rf"^logfs_native_{what}_total (\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def wait_for_native_writes(mounted: Mounted, more: int) -> None:
    """Wait until the thread has applied so many more writes."""
    wanted = native_writes(mounted) + more
    wait_until(lambda: native_writes(mounted) >= wanted, "the thread applies writes")


def start_writer(path: Path, name: str, stop: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, path, name, stop], stdout=subprocess.PIPE, text=True
    )


def pieces() -> Iterator[tuple[int, bytes]]:
    """Yield writes, each with the number of its open file."""
    chance = Random(5)
    left = {0: b"", 1: b"", 2: b""}
    for number in range(800):
        file = chance.randrange(3)
        value = b"%d " % number + chance.choice([b"", b"\xc3\xa4", b'"', b"\\\\", b"y" * 300]) * 3
        left[file] += (b"key\t" if file == 2 and number % 2 else b"") + value + b"\n"
        if chance.random() < 0.01:
            left[file] += b"line\n" * 30_000
        cut = chance.randint(1, len(left[file]))
        yield file, left[file][:cut]
        left[file] = left[file][cut:]
    for file, rest in left.items():
        yield file, rest


def make(mounted: Mounted) -> tuple[object, ...]:
    """Make the writes; returns text, records without their times, and the shape of the batches."""
    topic = mounted.point / "t"
    files = [os.open(topic / name, APPEND) for name in ("0", "0", "0.tsv")]
    for number, data in pieces():
        done = 0
        while done < len(data):
            done += os.write(files[number], data[done:])
    for file in files:
        os.close(file)
    rows = [json.loads(line) for line in (topic / "0.jsonl").read_bytes().splitlines()]
    records = [[row["offset"], row["key"], row["value"], row["headers"]] for row in rows]
    log = mounted.point / ".segments" / "t-0" / f"{0:020}.log"
    batches = [
        (batch.base_offset, batch.record_count, batch.size_bytes, batch.attributes)
        for _, batch in batches_in(log.read_bytes())
    ]
    return (topic / "0").read_bytes(), records, batches


def test_a_log_is_the_same_with_and_without_the_thread(native: Mounted, tmp_path: Path) -> None:
    other = Mounted(tmp_path / "other", "no_native", "num.partitions=2")
    other.start()
    (other.point / "t").mkdir()
    made = make(native)
    assert native_writes(native) > 500
    assert make(other) == made
    for mounted in (native, other):
        mounted.stop()
        assert b"no damage" in logfs("verify", mounted.data)


def test_lines_of_many_writers_are_there_once_and_in_order(native: Mounted, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    names = [f"{number}" for number in range(6)]
    paths = [native.point / "t" / ("0", "0", "1", "0.tsv", "1.tsv", "1")[int(n)] for n in names]
    writers = [start_writer(*row, stop) for row in zip(paths, names, strict=True)]
    wait_for_native_writes(native, 100)
    for number in range(20):  # changes that only Python makes
        os.setxattr(native.point / "t", "user.logfs.retention.ms", str(10**9 + number).encode())
        os.stat(native.point / "t/0")
    stop.touch()
    counts = [int(writer.communicate(timeout=PATIENCE_S)[0].split()[0]) for writer in writers]
    text = (native.point / "t/0").read_bytes() + (native.point / "t/1").read_bytes()
    found = [line.split(b"-")[:2] for line in text.splitlines()]
    for name, count in zip(names, counts, strict=True):
        assert [int(n) for of, n in found if of == name.encode()] == list(range(count))


def test_a_reader_that_waits_gets_each_line_at_once(native: Mounted) -> None:
    file = os.open(native.point / "t/0", APPEND)
    for number in range(20):
        os.write(file, b"early %d\n" % number)
    reader = os.open(native.point / "t/0@latest.follow", os.O_RDONLY)
    for number in range(200):
        timer = threading.Timer(0.001 * (number % 3), os.write, (file, b"line %d\n" % number))
        timer.start()
        assert os.read(reader, 4096) == b"line %d\n" % number
        timer.join()
    assert native_writes(native) > 50
    os.close(reader)
    os.close(file)


def test_a_line_that_is_ended_by_close_is_before_later_lines(native: Mounted) -> None:
    path = native.point / "t/0"
    others = os.open(path, APPEND)
    tsv = os.open(native.point / "t/0.tsv", APPEND)
    for number in range(100):
        os.write(others, b"other %d\n" % number)
        file = os.open(path, APPEND)
        for _ in range(3):
            os.write(file, b"whole\n")
        os.write(file, b"begun %d" % number)
        os.close(file)
        os.write(tsv, b"after %d\n" % number)
    lines = path.read_bytes().splitlines()
    for number in range(100):
        assert lines.index(b"begun %d" % number) < lines.index(b"after %d" % number)


def test_a_mount_can_be_taken_away_while_the_thread_writes(native: Mounted, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    names = ["one", "two", "three"]
    writers = [start_writer(native.point / "t/0", name, stop) for name in names]
    wait_for_native_writes(native, 100)
    subprocess.run(["umount", "-l", native.point], check=True)
    stop.touch()
    output = [writer.communicate(timeout=PATIENCE_S)[0].split() for writer in writers]
    assert native.wait() == 0
    lines = [line.split(b"-")[:2] for line in logfs("cat", native.data / "t/0").splitlines()]
    for name, (count, _) in zip(names, output, strict=True):
        numbers = [int(n) for of, n in lines if of == name.encode()]
        assert numbers[: int(count)] == list(range(int(count)))


def test_a_kill_loses_no_line_that_was_written(native: Mounted, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    for number in range(3):
        names = [f"{number}{writer}" for writer in ("one", "two", "three")]
        writers = [start_writer(native.point / "t/0", name, stop) for name in names]
        wait_for_native_writes(native, 100)
        native.end(signal.SIGKILL)
        output = [writer.communicate(timeout=PATIENCE_S)[0].split() for writer in writers]
        native.start()
        text = (native.point / "t/0").read_bytes()
        for name, (count, _) in zip(names, output, strict=True):
            numbers = re.findall(rb"^%s-(\d+)-" % name.encode(), text, re.MULTILINE)
            assert [int(n) for n in numbers[: int(count)]] == list(range(int(count)))


def test_lines_that_are_synced_one_by_one_are_durable(native: Mounted) -> None:
    def write(number: int) -> None:
        file = os.open(native.point / "t" / str(number % 2), APPEND)
        for line in range(100):
            os.write(file, b"%d %d\n" % (number, line))
            os.fsync(file)
        os.close(file)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert native_writes(native, "fsyncs") > 300
    assert native_writes(native) > 300
    for partition in range(2):
        meta = json.loads((native.point / "t" / f"{partition}.meta").read_bytes())
        assert meta["durable"]["recovery_point"] == meta["log_end_offset"] == 300
        assert 0 < meta["latency"]["flush"]["count"] <= 300


def test_files_that_are_opened_for_one_line_are_served_from_the_first_write(
    native: Mounted,
) -> None:
    path = native.point / "t/0"
    path.open("ab").close()
    for number in range(300):
        with path.open("ab", buffering=0) as file:
            file.write(b"line %d\n" % number if number % 10 else b"line %d" % number)
        if number % 50 == 0:
            assert path.read_bytes().count(b"\n") == number + 1
    assert path.read_bytes() == b"".join(b"line %d\n" % number for number in range(300))
    assert native_writes(native) > 100
    with Daemon.connect(str(native.data)) or pytest.fail("no daemon") as daemon:
        text = daemon.prometheus().decode()
    found = re.search(r'^logfs_requests_total{operation="flush"} (\d+)', text, re.MULTILINE)
    assert found is not None
    assert int(found[1]) > 300


def test_stat_shows_each_append_and_each_change(native: Mounted) -> None:
    topic = native.point / "t"
    path, views = topic / "0", (topic / "0", topic / "0.tsv", topic / "0.jsonl")
    os.setxattr(topic, "user.logfs.max.message.bytes", b"1000000")
    os.setxattr(topic, "user.logfs.segment.bytes", b"1048576")
    with path.open("ab", buffering=0) as file:
        for number in range(600):
            before_ns = time.time_ns() // 10**6 * 10**6
            file.write(b"line %d\n" % number * (1 + number % 3 * 400))
            for view in views:
                found = view.stat()
                assert before_ns <= found.st_mtime_ns == found.st_ctime_ns == found.st_atime_ns
                if number % 40 == 0:
                    assert found.st_size == len(view.read_bytes())
                    assert found.st_blocks == (found.st_size + 511) // 512
            if number % 100 == 50:
                path.chmod(0o640 + number % 7)
                os.chown(path, number, 7)
            if number >= 50:
                found, last = path.stat(), number - (number - 50) % 100
                assert found.st_mode == stat.S_IFREG | (0o640 + last % 7)
                assert (found.st_uid, found.st_gid, found.st_nlink) == (last, 7, 1)
    assert native_writes(native, "stats") > 1000
    assert len(list((native.point / ".segments" / "t-0").glob("*.log"))) > 1


def test_with_the_option_no_native_there_is_no_thread(mounted: Mounted) -> None:
    mounted.stop()
    mounted.options = ("no_native",)
    mounted.start()
    (mounted.point / "t").mkdir()
    with (mounted.point / "t/0").open("ab", buffering=0) as file:
        for _ in range(10):
            file.write(b"line\n")
    assert native_writes(mounted) == 0
