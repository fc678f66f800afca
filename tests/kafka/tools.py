"""Kafka's command-line tools, each a separate Java class.

``Found.problems`` is what kafka-dump-log complains about, which its exit status does not tell: a
bad checksum is ``isvalid: false``, a torn tail a line on stdout, a wrong index lines on stderr.

Source: Kafka DumpLogSegments, StorageTool.
"""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.kafka import jars
from tests.mounting import PATIENCE_S

DUMP_LOG = (
    "kafka.tools.DumpLogSegments"
    if jars.version_info() < (4, 3)
    else "org.apache.kafka.tools.DumpLogSegments"
)
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
STORAGE = "kafka.tools.StorageTool"

_COMPLAINTS = re.compile(
    r"isvalid: false|invalid bytes|mismatch|Exception|out of order|Non-consecutive|"
    r"doesn't match|not found|[Cc]orrupt|Error|error"
)
_FALSE_ALARM = re.compile(
    r"^Non-consecutive offsets in .*\n  -1 is followed by [0-9]+\n", re.MULTILINE
)
"""Kafka 4.4 says this of each segment but the first with ``--deep-iteration``, its own too."""


@dataclass(frozen=True)
class Result:
    """What a tool printed."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Dump(Result):
    """What kafka-dump-log printed of some files."""

    @property
    def problems(self) -> list[str]:
        """Everything it says that it does not say of sound files; [] if they are sound.

        Payloads must not be printed: they could hold anything.
        """
        lines = [line for line in self.stdout.splitlines() if _COMPLAINTS.search(line)]
        lines += _FALSE_ALARM.sub("", self.stderr).splitlines()
        return lines if self.status == 0 else [f"status {self.status}", *lines]


def run(main: str, *arguments: str | Path, heap: str = "256m") -> Result:
    """Run a Java class, which may fail."""
    command = jars.command(main, arguments, heap=heap)
    got = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=PATIENCE_S,
    )
    return Result(got.returncode, got.stdout, got.stderr)


def dump_log(files: Iterable[Path], *options: str) -> Dump:
    """Run kafka-dump-log on files, all in one Java machine."""
    names = ",".join(str(file) for file in files)
    got = run(DUMP_LOG, *options, "--files", names)
    return Dump(got.status, got.stdout, got.stderr)


def describe_producers(bootstrap: str, topic: str, partition: int = 0) -> dict[str, list[str]]:
    """Return what a broker knows of the producers of a partition: the columns by producer id.

    They are epoch, coordinator epoch, last sequence, last timestamp and the first offset of the
    open transaction, ``None`` if there is none.
    """
    got = run(
        TRANSACTIONS,
        *("--bootstrap-server", bootstrap, "describe-producers"),
        *("--topic", topic, "--partition", str(partition)),
    )
    assert got.status == 0, got
    # The table comes after what the client logs.
    table = got.stdout[got.stdout.index("\nProducerId") :].splitlines()[2:]
    return {fields[0]: fields[1:] for fields in (line.split() for line in table) if fields}
