"""The file for spark-submit, without Spark: what it takes and what it refuses."""

import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Call, environment


def test_it_is_a_file_that_takes_a_command_line(logfs: Call) -> None:
    status, out, errors = logfs("spark-job")
    assert (status, errors) == (0, [])
    path = Path(out.decode().rstrip("\n"))
    assert path.suffix == ".py"
    assert submit(path, "cat", "x") == (
        2,
        "logfs: spark-submit: cat: expected one of verify, reindex, compact, export",
    )
    assert submit(path) == (
        2,
        "logfs: spark-submit: nothing: expected one of verify, reindex, compact, export",
    )
    status, line = submit(path, "verify", "--jobs", "2", "/var/lib/logfs")
    assert (status, "the Spark master sets the parallelism" in line) == (2, True)


def submit(path: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, path, *arguments],
        check=False, capture_output=True, text=True, env=environment(),
    )  # fmt: skip
    return done.returncode, done.stderr.rstrip("\n")
