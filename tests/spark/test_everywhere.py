"""The data source where Spark does not run in one process: on a cluster, and after Connect."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.jars import SMALL
from tests.mounting import environment
from tests.spark.conftest import ROOT
from tests.spark.logs import Logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def server(spark: "SparkSession") -> Iterator[str]:
    """The address of a Spark Connect server, in the Java machine that is there."""
    context = spark.sparkContext
    name = "org.apache.spark.sql.connect.service.SparkConnectService$"
    service = getattr(getattr(context._jvm, name), "MODULE$")
    service.start(context._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(*(getattr(service, f"stop$default${number}")() for number in (1, 2)))


def test_on_a_cluster(tmp_path: Path) -> None:
    """Without what it can do without: neither driver nor executors have it."""
    absent = ["pandas", "pyfuse3", "trio"]
    paths = [ROOT, Path(__file__).parent / "absent"]
    found = reads_and_writes("local-cluster[1,2,1024]", tmp_path, paths)
    assert found["driver"] == found["worker"] == absent
    assert "connect" not in found["session"]


def test_after_connect(server: str, tmp_path: Path) -> None:
    assert "connect" in reads_and_writes(server, tmp_path, [ROOT])["session"]


def reads_and_writes(where: str, directory: Path, paths: list[Path]) -> dict[str, Any]:
    """Have a program do it, and see that it was done; returns what it has found."""
    logs = Logs(directory / "data")
    logs.topic("in", 2)
    values = [b"value %d" % n for n in range(100)]
    logs.write("in", 0, *values[:60])
    logs.write("in", 1, *values[60:])
    logs.topic("out")
    logs.close()
    checkpoint = directory / "checkpoint"
    result = subprocess.run(
        [sys.executable, "-m", "tests.spark.everywhere", where, logs.path, checkpoint],
        cwd=directory,
        env=environment(
            PYTHONPATH=":".join(map(str, paths)),
            SPARK_LOCAL_IP="127.0.0.1",
            PYSPARK_PYTHON=sys.executable,
            JDK_JAVA_OPTIONS=" ".join(SMALL),
        ),
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert found["read"] == [[p, o] for p, count in ((0, 60), (1, 40)) for o in range(count)]
    assert "there is no topic nowhere" in found["refusal"]
    assert found["written"] == sorted(value.decode() for value in values * 2)
    return found
