"""The data source where Spark runs otherwise than in one process: on a cluster, behind Connect."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.jars import SMALL
from tests.mounting import environment
from tests.spark.conftest import ROOT
from tests.spark.logs import Logs

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    ("where", "absent"),
    [("local-cluster[2,1,1024]", ["pandas", "pyfuse3", "trio"]), ("connect", [])],
)
def test_it_reads_and_writes(where: str, absent: list[str], tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("in", 2)
    values = [b"value %d" % n for n in range(100)]
    logs.write("in", 0, *values[:60])
    logs.write("in", 1, *values[60:])
    logs.topic("out")
    logs.close()
    paths = [str(ROOT), *([str(Path(__file__).parent / "absent")] if absent else [])]
    result = subprocess.run(
        [sys.executable, "-m", "tests.spark.everywhere", where, logs.path, tmp_path / "checkpoint"],
        cwd=tmp_path,
        env=environment(
            PYTHONPATH=":".join(paths),
            SPARK_LOCAL_IP="127.0.0.1",
            PYSPARK_PYTHON=sys.executable,
            JDK_JAVA_OPTIONS=" ".join(SMALL),
        ),
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    if absent:
        assert found["driver"] == found["worker"] == absent
    assert found["read"] == [[p, o] for p, count in ((0, 60), (1, 40)) for o in range(count)]
    assert "there is no topic nowhere" in found["refusal"]
    assert found["written"] == sorted(value.decode() for value in values * 2)
