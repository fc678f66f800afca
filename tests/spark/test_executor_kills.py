"""``kill -9`` of the executors of real Spark, each in a separate JVM, and of Python workers."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.mounting import PATIENCE_S, environment
from tests.spark.copied import check_copied
from tests.spark.logs import Logs

pytestmark = [pytest.mark.spark, pytest.mark.long]

RECORDS = 12_000
KILLS = 20
DRIVERS = 10
EXECUTOR, WORKER = b"CoarseGrainedExecutorBackend", b"pyspark"


def descendants(pid: int) -> Iterator[tuple[int, bytes]]:
    """Yield the processes below one, with their command lines."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread or process has just ended
            for child in map(int, children.read_text().split()):
                yield child, Path(f"/proc/{child}/cmdline").read_bytes()
                yield from descendants(child)


def below_executors(program: int) -> dict[str, list[int]]:
    """Return the executors of a program, and their Python workers."""
    found = [pid for pid, command in descendants(program) if EXECUTOR in command]
    workers = [pid for one in found for pid, command in descendants(one) if WORKER in command]
    return {"executor": found, "Python worker": workers}


def test_each_record_is_copied_once_though_executors_are_killed(
    tmp_path: Path, counts: Counter[str]
) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("in", 3)
    logs.topic("out", 3)
    for partition in range(3):
        numbers = range(partition, RECORDS, 3)
        logs.write("in", partition, *(b"%d some text" % number for number in numbers))
    logs.close()
    command = [sys.executable, "-m", "tests.spark.copying", "local-cluster[2,1,600]"]
    variables = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    chance, killed = Random(5), Counter[str]()
    for _ in range(DRIVERS):
        with (tmp_path / "log").open("ab") as log:
            program = subprocess.Popen(
                [*command, str(logs.path), str(tmp_path / "checkpoint")],
                env=environment(**variables),
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            while program.poll() is None:
                time.sleep(chance.uniform(0.2, 2))
                there = below_executors(program.pid)
                if all(there.values()) and killed.total() < KILLS:  # a task has been running
                    kind = chance.choice(sorted(there))
                    with suppress(ProcessLookupError):
                        os.kill(chance.choice(there[kind]), signal.SIGKILL)
                    killed[kind] += 1
        finally:
            if program.poll() is None:
                program.kill()
                program.wait(PATIENCE_S)
        if program.returncode == 0:
            break
        counts["executors: drivers that gave up"] += 1
    else:
        pytest.fail((tmp_path / "log").read_text())
    counts.update({f"executors: {kind} killed": count for kind, count in killed.items()})
    assert killed["executor"]
    assert killed["Python worker"]
    check_copied(logs.path, range(RECORDS))
