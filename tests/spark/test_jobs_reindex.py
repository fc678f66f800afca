"""``logfs reindex --spark`` leaves the indexes that were there, and ends at Ctrl-C."""

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Call
from tests.cli.indexed import data as data  # a fixture
from tests.cli.indexed import indexes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_indexes_are_recreated(spark: "SparkSession", logfs: Call, data: Path) -> None:
    before = indexes_of(data)
    for name in before:
        (data / name).unlink()
    done = logfs("reindex", data, "--spark")
    assert (done.status, done.errors) == (0, [])
    assert done.out.decode().endswith(f" read: {len(before)} index files rewritten\n")
    assert indexes_of(data) == before
    assert logfs("verify", data, "--spark", "-q") == (0, b"", [])


def test_ctrl_c_cancels_the_job(
    spark: "SparkSession", logfs: Call, data: Path, tmp_path: Path
) -> None:
    """Each command is killed; what it works on is whole, and continues."""
    shutil.rmtree(data / "orders-1")
    for name in ("reindex", "verify", "compact", "export"):
        more = {"compact": [data / "prices"], "export": [data, tmp_path / "out"]}
        arguments = more.get(name, [data])
        with interrupted_by_a_job(spark):
            status, out, _ = logfs(name, *arguments, "--spark")
        assert (name, status, out) == (name, 130, b"")
        assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
        assert logfs("verify", data, "-q") == (0, b"", [])
        assert logfs(name, *arguments, "--spark").status == 0


class interrupted_by_a_job:  # noqa: N801 - reads as one
    """Sends SIGINT to this process as soon as Spark runs a job."""

    def __init__(self, spark: "SparkSession") -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.is_set():
            if list(self._tracker.getActiveJobsIds()):
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.002)
