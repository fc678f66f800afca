"""tail follows a log through a restart of logfs, or ends with it."""

from pathlib import Path

import pytest

from tests.mounting import wait_until
from tests.programs.conftest import Logs
from tests.programs.documents import line_for
from tests.programs.running import Child

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


def append(logs: Logs, line: str) -> None:
    """Append a line to what is followed."""
    with (logs.point / "web" / "0").open("a") as file:
        file.write(f"{line}\n")


def test_tail_f_continues_and_starts_again(own: Logs, tmp_path: Path) -> None:
    line = line_for("tail", own.point)
    with Child([*line.split(), "--sleep-interval=0.1"], tmp_path) as tail:
        tail.wait_until(lambda: own.web[-1] in tail.said, "the last lines are shown")
        assert tail.said.splitlines() == own.web[-3:]
        append(own, "one")
        tail.wait_until(lambda: "one" in tail.said.splitlines(), "it follows")
        own.mount.kill()
        tail.wait_until(lambda: "inaccessible" in tail.said, "it has met the dead mount")
        own.mount.start()
        append(own, "two")
        tail.wait_until(lambda: "two" in tail.said.splitlines(), "it follows again")
        lines = [line for line in tail.said.splitlines() if not line.startswith("tail: ")]
        assert lines == [*own.web[-3:], "one", *own.web, "one", "two"]


def test_a_plain_tail_ends(own: Logs, tmp_path: Path) -> None:
    line = line_for("tail", own.point)
    with Child([*line.replace("-F", "-f").split(), "--sleep-interval=0.1"], tmp_path) as tail:
        tail.wait_until(lambda: own.web[-1] in tail.said, "the last lines are shown")
        own.mount.crash()
        wait_until(lambda: "no files remaining" in tail.said, "it has ended")
