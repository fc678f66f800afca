"""The guide to Spark tells the truth: its options are those there are, its program runs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from logfs.spark.options import OPTIONS
from tests.mounting import ROOT
from tests.spark.logs import Logs
from tests.transcripts import table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = ROOT / "logfs" / "guides" / "spark.md"


def test_the_options_are_those_there_are() -> None:
    table = table_of(GUIDE.read_text(), "option")
    assert table == [[f"`{name}`", default, meaning] for name, default, meaning in OPTIONS]


@pytest.mark.spark
def test_what_it_shows_runs(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = Logs(tmp_path / "store")
    logs.topic("orders")
    logs.write("orders", 0, *(b"order %d" % n for n in range(1502)))
    logs.close()
    (program,) = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"spark": spark, "checkpoint": str(tmp_path / "checkpoint")}
    exec(program.replace("/var/lib/logfs", str(logs.path)), names)
    names["query"].processAllAvailable()
    names["query"].stop()
    printed = capsys.readouterr().out
    assert printed.count("|order 150") == 2
    assert printed.endswith("\n0\n")  # nothing is as new as an hour
