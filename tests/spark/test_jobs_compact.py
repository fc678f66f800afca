"""``logfs compact --spark`` leaves what compaction on one machine leaves, byte for byte."""

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logfs.records.record import Record
from tests.cli.conftest import Call, command, environment
from tests.dying import dying_variables
from tests.kafka.jars import SMALL
from tests.mounting import Mount
from tests.spark.logs import START_MS, Logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEYS = 700


def test_it_leaves_what_the_local_command_leaves(
    spark: "SparkSession", tmp_path: Path, logfs: Call
) -> None:
    ours, theirs = tmp_path / "store", tmp_path / "theirs"
    fill(ours)
    shutil.copytree(ours, theirs)
    done = logfs("compact", ours / "prices", "--spark", "--json")
    assert (done.status, done.errors) == (0, [])
    first, second = json.loads(done.out)
    assert (first["rounds"], first["read_records"], first["written_records"]) == (1, 5000, KEYS)
    assert (second["rounds"], second["written_records"]) == (1, 1)
    assert logfs("compact", theirs / "prices").status == 0
    assert logs_of(ours) == logs_of(theirs)
    # What is clean has keys that come again: another round knows of both.
    for data in (ours, theirs):
        more(data)
    assert logfs("compact", ours / "prices" / "0", "--spark", "--roll").status == 0
    assert logfs("compact", theirs / "prices" / "0", "--roll").status == 0
    assert logs_of(ours) == logs_of(theirs)
    assert logfs("verify", ours, "-q") == (0, b"", [])
    again = logfs("compact", ours / "prices" / "0", "--spark")
    assert (again.status, b"records became" in again.out) == (0, True)


def test_a_damaged_batch_is_a_line_and_nothing_changes(
    spark: "SparkSession", tmp_path: Path, logfs: Call
) -> None:
    data = tmp_path / "store"
    fill(data)
    (log, *_) = sorted(data.glob("prices-0/*.log"))
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    before = logs_of(data)
    done = logfs("compact", data / "prices" / "0", "--spark")
    assert (done.status, done.out) == (1, b"")
    (line,) = done.errors
    assert line.startswith(f"logfs: {data}/prices/0: prices-0/{log.name} at byte 0: batch at")
    assert logs_of(data) == before


@pytest.mark.fuse
def test_beside_a_daemon_it_says_what_to_do(tmp_path: Path, logfs: Call) -> None:
    mount = Mount(tmp_path / "data", tmp_path / "mnt")
    mount.start()
    try:
        (mount.point / "prices").mkdir()
        done = logfs("compact", mount.data / "prices", "--spark")
    finally:
        mount.stop()
    assert done.status == 1
    assert "a daemon owns the directory, and --spark needs to: unmount it" in done.errors[0]


def fill(path: Path) -> None:
    logs = Logs(path)
    logs.topic("prices", 2, cleanup_policy="compact")
    for n in range(10):
        records = [
            Record(0, START_MS + i, b"key %d" % (i * 31 % KEYS), b"value %d" % i)
            for i in range(500 * n, 500 * (n + 1))
        ]
        logs.append("prices", 0, records)
        logs.log("prices").roll(logs.now_ms)
    logs.append("prices", 1, [Record(0, START_MS, b"one", b"%d" % n) for n in range(3)])
    logs.log("prices", 1).roll(logs.now_ms)
    logs.close()


def more(path: Path) -> None:
    logs = Logs(path)
    logs.append("prices", 0, [Record(0, START_MS, b"key %d" % n, b"new") for n in range(0, 90, 2)])
    logs.close()


def logs_of(data: Path) -> dict[str, bytes]:
    files = [*data.glob("*/*.log"), *data.glob("*/*.index"), *data.glob("*/*.timeindex")]
    return {str(file.relative_to(data)): file.read_bytes() for file in files}


@pytest.mark.slow
def test_a_job_that_is_killed_continues_with_the_next_one(
    spark: "SparkSession", logfs: Call, tmp_path: Path
) -> None:
    """Killed as soon as the driver has begun to write."""
    ours, theirs = tmp_path / "store", tmp_path / "theirs"
    fill(ours)
    shutil.copytree(ours, theirs)
    died = tmp_path / "died"
    dying = dying_variables(tmp_path / "path", died, suffix=".log.cleaned", at=1)
    done = subprocess.run(
        command("compact", ours / "prices" / "0", "--master", "local[1]"),
        env={**environment(), **dying, "JDK_JAVA_OPTIONS": " ".join(SMALL)},
        check=False,
    )
    assert (done.returncode, died.exists()) == (-signal.SIGKILL, True)
    assert list(ours.glob("prices-0/*.cleaned"))
    assert logfs("cat", ours / "prices" / "0.jsonl").status == 0
    assert logfs("compact", ours / "prices" / "0", "--spark").status == 0
    assert logfs("compact", theirs / "prices" / "0").status == 0
    assert logfs("cat", ours / "prices" / "0.jsonl") == logfs("cat", theirs / "prices" / "0.jsonl")
    assert logfs("verify", ours, "-q") == (0, b"", [])
