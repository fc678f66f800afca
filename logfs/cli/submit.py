"""The file for spark-submit: ``spark-submit [OPTIONS OF SPARK] submit.py COMMAND ARGUMENTS``.

The command line of the job follows it as it would follow ``logfs``; ``--spark`` is understood.
"""

import sys
from collections.abc import Sequence

from logfs.cli import failures
from logfs.cli.main import main

JOBS = ("verify", "reindex", "compact", "export")
"""The commands that can be a Spark job."""


def submit(arguments: Sequence[str]) -> int:
    """Run a command as a Spark job and return its exit status."""
    if not arguments or arguments[0] not in JOBS:
        given = arguments[0] if arguments else "nothing"
        failures.warn(f"spark-submit: {given}: expected one of {', '.join(JOBS)}")
        return failures.USAGE
    return main([arguments[0], "--spark", *arguments[1:]])


if __name__ == "__main__":
    sys.exit(submit(sys.argv[1:]))
