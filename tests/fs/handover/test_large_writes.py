"""Large writes while each daemon is killed as soon as it serves the mount."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long import KILLS
from tests.restarts.held import HeldMount

PARTITIONS = ("0", "1", "2", "3")

# A request is read into memory of the new daemon that no request has used before.
WRITER = """
import os, sys
file, lines = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND), 0
while not os.path.exists(sys.argv[2]):
    rest = b"x" * 900_000 + b"\\n"
    while rest:
        rest = rest[os.write(file, rest):]
    lines += 1
print(lines)
"""


@pytest.mark.fuse
@pytest.mark.slow
@pytest.mark.parametrize("kills", KILLS)
def test_a_daemon_that_is_killed_while_it_reads_a_write_fails_no_write(
    tmp_path: Path, kills: int
) -> None:
    stop = tmp_path / "stop"
    with HeldMount(tmp_path) as held:
        topic = held.point / "t"
        topic.mkdir()
        for number in PARTITIONS:
            (topic / number).touch()
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(topic / number), str(stop)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in PARTITIONS
        ]
        for _ in range(kills):
            held.end_daemon(signal.SIGKILL)
        stop.touch()
        said = [writer.communicate(timeout=60) for writer in writers]
        sizes = [len((topic / number).read_bytes()) for number in PARTITIONS]

    assert [errors for _, errors in said] == [""] * len(PARTITIONS)
    assert sizes == [int(lines) * 900_001 for lines, _ in said]
