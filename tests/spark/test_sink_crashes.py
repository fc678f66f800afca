"""kill -9 at every moment of a streaming write, and a restart: nothing is lost, nothing twice."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.dying import dying_variables
from tests.mounting import COMMAND, PATIENCE_S, Mount, environment, run, wait_until
from tests.restarts.dying import STEPS, dies_in_requests
from tests.restarts.held import HeldMount
from tests.spark.logs import Logs
from tests.spark.reading import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LINES = 600


class Job:
    """A stream that is to write each line of its input once, and dies of it.

    Attributes:
        data: The data directory that it writes to.
        written: The lines of its input.
    """

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        logs = Logs(self.data)
        logs.topic("orders", 3, max_message_bytes="600")
        logs.close()
        self.written: list[bytes] = []
        self._directory = directory
        (directory / "in").mkdir()

    def add_input(self) -> None:
        number = len(self.written) // LINES
        lines = [f"file {number} line {n}" for n in range(LINES)]
        (self._directory / "in" / f"{number}.txt").write_text("\n".join(lines) + "\n")
        self.written += [line.encode() for line in lines]

    def places(self, moment: str) -> list[str]:
        once = self._directory / f"died {moment}"
        return [str(path) for path in (once, self._in, self._directory / "checkpoint", self.data)]

    @property
    def _in(self) -> Path:
        return self._directory / "in"

    def has_died(self, moment: str) -> bool:
        return (self._directory / f"died {moment}").exists()

    def dies_in(self, spark: "SparkSession", moment: str) -> None:
        """Run it until the process that does it dies."""
        from pyspark.errors import StreamingQueryException

        from tests.spark.dying import start_query

        query = start_query(spark, moment, self.places(moment))
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()
        assert self.has_died(moment)

    def completes_in(self, spark: "SparkSession") -> None:
        """Run it until all is written."""
        from tests.spark.dying import NEVER, start_query

        start_query(spark, NEVER, self.places(NEVER)).awaitTermination()

    def dies_as_a_program(self, master: str, moment: str) -> str:
        """Run it in its own driver until that dies, and return what it has logged."""
        log = self._directory / "log"
        with log.open("wb") as output:  # a process that outlives the driver would keep a pipe open
            done = subprocess.run(
                [sys.executable, "-m", "tests.spark.dying", master, moment, *self.places(moment)],
                env=environment(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
                timeout=10 * PATIENCE_S,
            )
        logged = log.read_text()
        assert done.returncode != 0
        assert self.has_died(moment), logged
        return logged

    def read(self) -> list[bytes]:
        found = [value for (value,) in rows(self.data, ("value",))]
        return sorted(value for value in found if isinstance(value, bytes))

    def check(self) -> None:
        """See that each line is there once, and that nothing is left of any attempt."""
        assert self.read() == sorted(self.written)
        assert not list(self.data.glob("*/*.staged"))
        assert len(list(self.data.glob("*.ledger"))) == 1
        verified = run(*COMMAND, "verify", self.data)
        assert verified.returncode == 0, verified.stdout


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def mount(job: Job, tmp_path: Path) -> Iterator[Mount]:
    with Mount(job.data, tmp_path / "mnt") as mount:
        yield mount


@pytest.fixture
def followed(mount: Mount, tmp_path: Path) -> Iterator[Callable[[], list[bytes]]]:
    """What ``tail -f`` of all partitions has printed."""
    printed = tmp_path / "printed"
    files = [mount.point / "orders" / str(number) for number in range(3)]
    with printed.open("wb") as output:
        tail = subprocess.Popen(["tail", "-q", "-n", "+1", "-f", *files], stdout=output)
        try:
            yield lambda: sorted(printed.read_bytes().splitlines())
        finally:
            tail.kill()
            tail.wait(PATIENCE_S)


def test_the_staging_or_publishing_process_dies(spark: "SparkSession", job: Job) -> None:
    from tests.spark import dying

    for moment in (dying.BEFORE_STAGING, dying.WHILE_STAGING, dying.AFTER_STAGING):
        job.add_input()
        job.dies_in(spark, moment)
        assert job.read() == []
    job.dies_in(spark, dying.WHILE_PUBLISHING)
    assert 0 < len(job.read()) < LINES
    job.dies_in(spark, dying.AFTER_PUBLISHING)
    job.completes_in(spark)
    job.check()


@pytest.mark.fuse
def test_the_staging_or_publishing_process_dies_beside_a_daemon(
    spark: "SparkSession", job: Job, mount: Mount, followed: Callable[[], list[bytes]]
) -> None:
    from tests.spark import dying

    for moment in (dying.WHILE_STAGING, dying.AFTER_STAGING, dying.AFTER_PUBLISHING):
        job.add_input()
        job.dies_in(spark, moment)
    wait_until(lambda: len(followed()) == LINES, "tail -f had printed the first batch")
    job.completes_in(spark)
    wait_until(lambda: len(followed()) == len(job.written), "tail -f had printed all")
    assert followed() == sorted(job.written)
    mount.restart()
    job.check()


@pytest.mark.fuse
def test_a_daemon_dies_while_it_publishes(spark: "SparkSession", job: Job, tmp_path: Path) -> None:
    job.add_input()
    died = tmp_path / "died"
    mount = Mount(job.data, tmp_path / "mnt", variables=dying_variables(tmp_path / "path", died))
    with mount:
        job.completes_in(spark)  # the driver continues by itself, under the lock
        assert died.exists()
        assert job.read() == sorted(job.written)
        mount.crash()
        job.add_input()
        job.completes_in(spark)
        mount.stop()
        job.check()


@pytest.mark.fuse
def test_the_next_daemon_completes_what_was_half_published(
    spark: "SparkSession", job: Job, tmp_path: Path
) -> None:
    from tests.spark import dying

    job.add_input()
    job.dies_in(spark, dying.WHILE_PUBLISHING)
    assert 0 < len(job.read()) < LINES
    with Mount(job.data, tmp_path / "mnt") as mount:
        found = [(mount.point / "orders" / str(number)).read_bytes() for number in range(3)]
        assert sorted(b"".join(found).splitlines()) == sorted(job.written)
    job.completes_in(spark)
    job.check()


@pytest.mark.long
def test_a_driver_is_killed_while_it_publishes(spark: "SparkSession", job: Job) -> None:
    """The whole JVM dies. The publishing process may outlive it."""
    from tests.spark import dying

    job.add_input()
    job.dies_as_a_program("local[2]", dying.WHILE_PUBLISHING)
    job.add_input()
    job.completes_in(spark)
    job.check()


@pytest.mark.long
def test_a_driver_is_killed_after_tasks_have_failed(spark: "SparkSession", job: Job) -> None:
    from tests.spark import dying

    job.add_input()
    moment = dying.WITH_ATTEMPTS + dying.AFTER_PUBLISHING
    assert "Lost executor" in job.dies_as_a_program("local-cluster[1,2,1024]", moment)
    job.add_input()
    job.completes_in(spark)
    job.check()


@pytest.mark.fuse
def test_the_daemon_dies_at_each_step_of_publishing(spark: "SparkSession", tmp_path: Path) -> None:
    job, died = Job(tmp_path), tmp_path / "deaths"
    changes = dies_in_requests(died, STEPS)
    with HeldMount(tmp_path, data=job.data, changes=changes):
        for _ in range(2):
            job.add_input()
            job.completes_in(spark)
        assert died.stat().st_size == STEPS
        assert job.read() == sorted(job.written)
