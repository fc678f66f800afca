"""Python's logging writes to a partition: which handlers do, and which outlive a restart."""

import signal
import sys
from pathlib import Path

import pytest

from tests.mounting import wait_until
from tests.programs.conftest import Logs
from tests.programs.documents import line_for
from tests.programs.running import Child
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

MANY = 1_000
"""Records that take longer than a second to log, one after the other."""

LOGGER = """\
import logging.handlers, sys
handler = {handler}
logging.getLogger().addHandler(handler)
for line in sys.stdin:
    logging.warning("%s", line.strip())
    print("logged", line.strip(), flush=True)
"""


class Application(Child):
    """A program that logs what it is told."""

    def __init__(self, handler: str, directory: Path, before: str = "") -> None:
        script = f"{before}\n{LOGGER.format(handler=handler)}"
        super().__init__([sys.executable, "-c", script], directory)

    def log(self, message: str) -> None:
        """Let it log, and wait until it has done so."""
        self.tell(message)
        self.wait_until(lambda: f"logged {message}" in self.said, "it has logged")


def app(logs: Logs) -> list[str]:
    """Return the lines of ``app/0``."""
    return (logs.point / "app" / "0").read_text().splitlines()


def test_a_file_handler_appends_until_logfs_restarts(own: Logs, tmp_path: Path) -> None:
    with Application(line_for("Python logging", own.point), tmp_path) as application:
        application.log("one")
        application.log("two")
        own.mount.crash()
        application.log("three")
    assert app(own) == ["one", "two"]
    assert "not connected" in application.said


def test_a_file_handler_does_not_notice_restarts(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as held:
        (held.point / "app").mkdir()
        with Application(line_for("Python logging", held.point), tmp_path) as application:
            application.log("one")
            for message, number in (("two", signal.SIGKILL), ("three", signal.SIGUSR2)):
                held.signal_daemon(number)
                application.log(message)
        lines = (held.point / "app" / "0").read_text().splitlines()
    assert lines == ["one", "two", "three"]
    assert "Error" not in application.said


def test_a_watched_handler_raises_where_it_is_called(own: Logs, tmp_path: Path) -> None:
    line = line_for("Python logging", own.point)
    handler = line.replace("logging.FileHandler", "logging.handlers.WatchedFileHandler")
    with Application(handler, tmp_path) as application:
        application.log("one")
        own.mount.kill()
        application.tell("two")
        wait_until(lambda: "Traceback" in application.said, "it has ended")
        wait_until(lambda: "not connected" in application.said, "it has said why")
        assert "logged two" not in application.said


@pytest.mark.parametrize(
    "rotating",
    [
        'logging.handlers.RotatingFileHandler("{path}", maxBytes=20, backupCount=1)',
        'logging.handlers.TimedRotatingFileHandler("{path}", when="S", interval=1)',
    ],
    ids=["size", "time"],
)
def test_rotating_handlers_lose_records(own: Logs, tmp_path: Path, rotating: str) -> None:
    path = str(own.point / "app" / "0")
    with Application(rotating.format(path=path), tmp_path) as application:
        number = 0
        while "Operation not permitted" not in application.said:
            number += 1
            assert number < MANY
            application.log(f"record {number} of many")
        application.log("one more")
    assert app(own) == [f"record {n} of many" for n in range(1, number)]
