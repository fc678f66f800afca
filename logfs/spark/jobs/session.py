"""The Spark session of a job: the one that runs already, that of spark-submit, or a new one.

A new one on this machine needs no network and keeps quiet: what the JVM has to say goes to a file
of which the last lines are told if it does not start.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from logfs.errors import SparkJobError
from logfs.machine.packages import how_to_add

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERYTHING_HERE = "local[*]"
"""The default master: all cores of this machine."""

_CHOSEN_BY = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "MASTER")
"""Environment variables that may choose a master."""
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_HERE = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}
_MOST_TOLD = 300


@contextmanager
def session(master: str | None, name: str, *, is_loud: bool = False) -> Iterator["SparkSession"]:
    """Give a Spark session; one that was made for this is stopped in the end.

    Args:
        master: As spark-submit takes it, or ``sc://HOST`` for Spark Connect; None for that of the
            environment, which is every core of this machine if it says nothing.
        is_loud: The output of the JVM goes to stderr.

    Raises:
        SparkJobError: PySpark or Java is missing, or Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkJobError(
            f"--spark takes PySpark, which is not there ({error}): {how_to_add('spark')}"
        ) from error
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    if master is None and not any(os.environ.get(variable) for variable in _CHOSEN_BY):
        master = None if _SUBMITTED in os.environ else EVERYTHING_HERE
    made = _start(SparkSession.builder.appName(name), master, is_loud=is_loud)
    try:
        yield made
    finally:
        made.stop()


def _start(builder: "SparkSession.Builder", master: str | None, *, is_loud: bool) -> "SparkSession":
    if master is not None and master.startswith("sc://"):
        builder = builder.remote(master)
    elif master is not None:
        builder = builder.master(master)
    # Workers of this machine run what runs here, not what python3 happens to be.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if master is not None and master.startswith("local"):
        # A host name that does not resolve would end the JVM.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        for key, value in _HERE.items():
            builder = builder.config(key, value)
    with tempfile.TemporaryFile() as told:
        try:
            with _stderr_to(None if is_loud else told):
                return builder.getOrCreate()
        except Exception as error:
            told.seek(0)
            lines = told.read().decode(errors="replace").split("\n")
            why = next((line for line in lines if "rror" in line or "xception" in line), str(error))
            raise SparkJobError(
                f"Spark does not start: {' '.join(why.split())[:_MOST_TOLD]}; is there a Java 17 "
                "or newer, and does the master answer?"
            ) from error


@contextmanager
def _stderr_to(file: IO[bytes] | None) -> Iterator[None]:
    """Let what is started meanwhile have a file for its stderr."""
    if file is None:
        yield
        return
    before = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
