"""``logfs verify --spark`` says what ``logfs verify`` says, and ends as it does."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import Call, Outcome
from tests.spark.logs import Logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def data(tmp_path: Path) -> Path:
    logs = Logs(tmp_path / "store")
    logs.topic("orders", 2)
    logs.topic("other")
    for partition in (0, 1):
        for _ in range(4):
            logs.write("orders", partition, *(b"order %d" % n for n in range(1000)))
            logs.log("orders", partition).roll(logs.now_ms)
    logs.write("other", 0, b"one")
    logs.close()
    return logs.path


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def without_time(outcome: Outcome) -> tuple[int, list[str], list[str]]:
    lines = [line.partition(" in ")[0] for line in outcome.out.decode().splitlines()]
    return outcome.status, lines, outcome.errors


def test_it_says_what_the_local_command_says(
    spark: "SparkSession", data: Path, logfs: Call
) -> None:
    assert len(list(data.glob("orders-0/*.log"))) > 2
    whole = logfs("verify", data, "--spark")
    assert whole.status == 0
    assert without_time(whole) == without_time(logfs("verify", data))
    flip(sorted(data.glob("orders-1/*.log"))[1], 70)
    min(data.glob("orders-0/*.index")).write_bytes(bytes(7) + b"9")
    damaged = logfs("verify", data, "--spark", "--json")
    assert damaged.status == 1
    assert json.loads(damaged.out) == json.loads(logfs("verify", data, "--json").out)
    assert json.loads(damaged.out)[0]["damages"] == 2
    some = logfs("verify", data / "orders" / "0", data / "other", "--spark", "-q")
    assert (some.status, len(some.out.splitlines())) == (1, 1)


def test_a_machine_without_the_directory_is_told(
    spark: "SparkSession", logfs: Call, data: Path, tmp_path: Path
) -> None:
    """As if what was listed here were not there where Spark runs."""
    from logfs.errors import SparkJobError
    from logfs.services.verifying.segments import SegmentTask
    from logfs.spark.jobs.verify import SparkVerifier

    (tmp_path / "empty" / "orders-0").mkdir(parents=True)
    task = SegmentTask("orders-0", 0, frozenset())
    verifier = SparkVerifier(spark, str(tmp_path / "empty"), lambda *_: None)
    (report,) = verifier.run([task])
    assert report.is_gone

    class Elsewhere(str):
        """A path of the driver's that is another one for everybody else."""

        __slots__ = ()

        def __reduce__(self) -> tuple[type[str], tuple[str]]:
            return str, ("/nonexistent",)

    verifier = SparkVerifier(spark, Elsewhere(data), lambda *_: None)
    with pytest.raises(SparkJobError, match="is not there where Spark runs"):
        verifier.run([task])


def test_what_is_wrong_is_a_line(spark: "SparkSession", data: Path, logfs: Call) -> None:
    missing = logfs("verify", data / "gone", "--spark")
    assert (missing.status, missing.out) == (2, b"")
    assert missing.errors == [f"logfs: {data}/gone: no topic gone"]
    both = logfs("verify", data, "--spark", "--jobs", "2")
    assert both.status == 2
    assert "the Spark master sets the parallelism" in both.errors[0]
