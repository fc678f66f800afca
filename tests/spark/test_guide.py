"""The guide and the session for Spark tell the truth: the options, the programs, the output."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logfs.spark.options import OPTIONS
from logfs.spark.schema import WRITTEN
from logfs.spark.target import SINK_OPTIONS
from tests.guides import GUIDES, run_guide
from tests.kafka.jars import SMALL
from tests.mounting import ROOT
from tests.spark.logs import Logs
from tests.transcripts import table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = ROOT / "logfs" / "guides" / "spark.md"


def test_the_options_are_those_there_are() -> None:
    for heading, options in {"option": OPTIONS, "sink option": SINK_OPTIONS}.items():
        table = table_of(GUIDE.read_text(), heading)
        assert table == [[f"`{name}`", default, meaning] for name, default, meaning in options]


def test_the_columns_are_those_that_can_be_written() -> None:
    table = table_of(GUIDE.read_text(), "column")
    assert table == [
        [f"`{name}`", " or ".join(f"`{kind}`" for kind in kinds), text]
        for name, kinds, text in WRITTEN
    ]


@pytest.mark.spark
def test_what_it_shows_runs(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = Logs(tmp_path / "store")
    for topic in ("orders", "loud", "copies", "events"):
        logs.topic(topic)
    logs.write("orders", 0, *(b"order %d" % n for n in range(1502)))
    levels = (b"info", b"error", b"error")
    logs.write(
        "events", 0, *(b'{"id": %d, "level": "%b"}' % (n, one) for n, one in enumerate(levels))
    )
    logs.close()
    blocks = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    program = "".join(blocks)
    names: dict[str, Any] = {"spark": spark, "checkpoint": str(tmp_path / "checkpoint")}
    exec(program.replace("/var/lib/logfs", str(logs.path)), names)
    for query in (names["query"], names["copied"]):
        query.processAllAvailable()
        query.stop()
    printed = capsys.readouterr().out
    assert printed.count("|order 150") == 2
    assert printed.endswith("\n0\n")  # nothing is as new as an hour
    loud = names["spark"].read.format("logfs").load(f"{logs.path}/loud")
    assert sorted(bytes(row.value) for row in loud.collect()) == sorted(
        b"ORDER %d" % n for n in range(1502)
    )


@pytest.mark.spark
def test_the_session_of_a_spark_user_prints_what_it_shows(tmp_path: Path) -> None:
    variables = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "JDK_JAVA_OPTIONS": " ".join(SMALL),
    }
    run_guide(GUIDES["spark-session"], tmp_path, variables)
