"""One Spark session for the whole run: to start one takes longer than most of what is tested."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import logfs as logfs
from tests.kafka.jars import SMALL
from tests.spark.connector import jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a ``spark`` test where Java is missing; it is not skipped, see tests/conftest.py."""
    if item.get_closest_marker("spark") is not None and shutil.which("java") is None:
        pytest.fail("this test starts Spark, and there is no java: run make test", pytrace=False)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session on two cores; it knows Spark's own Kafka source, if it is there."""
    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # What the JVM starts with; its workers inherit it, other tests do not. A host name that
        # does not resolve would end it.
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("TZ", "UTC")
        patch.setenv("JDK_JAVA_OPTIONS", " ".join(SMALL))  # a third less processor time
        from pyspark.sql import SparkSession

        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.connect.grpc.binding.port", "0")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={directory}")
            .config("spark.jars", jars.connector() if jars.jars_directory().is_dir() else "")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
