"""``logfs verify --spark`` on one core and on two, in turn.

    python -m benchmarks.sparkjob LOG ROUNDS

LOG is a data directory. Prints the seconds of every run as JSON, by the number of cores. What is
timed is the job, in a session that has run one already: a session takes its time to start, and so
do its Python workers, once.
"""

import json
import os
import sys
import time
from functools import partial

from benchmarks.runner import alternate
from logfs.cli.verify_data import verify_with
from logfs.spark.jobs.session import session
from logfs.spark.jobs.verify import SparkVerifier

CORES = (1, 2)


def main(log: str, rounds: int) -> None:
    """Run the jobs in turn and print how long each took."""
    found = alternate([partial(_run, log, cores) for cores in CORES], rounds)
    print(json.dumps(dict(zip(map(str, CORES), found, strict=True))), flush=True)


def _run(log: str, cores: int) -> float:
    with session(f"local[{cores}]", "benchmark") as spark:
        verifier = SparkVerifier(spark, log, lambda _done, _total: None)
        verify_with(verifier.run, log, None)
        started_s = time.perf_counter()
        verified = verify_with(verifier.run, log, None)
        seconds = time.perf_counter() - started_s
        if verified.findings:
            raise RuntimeError(f"{log}: {verified.findings[0]}")
        return seconds


if __name__ == "__main__":
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    main(sys.argv[1], int(sys.argv[2]))
