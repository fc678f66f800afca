"""Where the log goes."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.cli import logs

LOGGER = logging.getLogger("elsewhere")  # what logfs itself logs would fail the test


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("logfs")
    handlers, level, own_level = list(root.handlers), root.level, own.level
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    own.setLevel(own_level)


def forget_handlers() -> None:
    """Be as alone as a process is; pytest listens too."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)


def test_commands_show_warnings_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    forget_handlers()
    logs.show_warnings()
    logs.show_warnings()
    LOGGER.info("nobody asked")
    LOGGER.warning("two\nlines of %s", "it")
    assert capsys.readouterr().err == "logfs: warning: two lines of it\n"


def test_a_log_of_its_own_takes_the_place_of_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_handlers()
    logs.show_warnings()
    logs.log_to_file(str(tmp_path / "log"))
    LOGGER.warning("first")
    assert (tmp_path / "log").read_text().endswith(" WARNING first\n")
    assert capsys.readouterr().err == ""


def test_a_log_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    logs.log_to_file(str(tmp_path / "log"))
    LOGGER.warning("first")
    (tmp_path / "log").rename(tmp_path / "log.1")
    LOGGER.warning("second")
    assert (tmp_path / "log").read_text().endswith(" WARNING second\n")


def test_syslog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SYSLOG", tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "socket"))
        logs.log_to_syslog()
        LOGGER.warning("first")
        message = receiver.recv(1000)
    assert message.startswith(b"<28>logfs[")  # facility daemon, severity warning
    assert message.rstrip(b"\0").endswith(b"]: first")


def test_no_syslog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "SYSLOG", tmp_path / "socket")
    logs.log_to_syslog()
    LOGGER.warning("first")
    assert capsys.readouterr().err == (
        f"logfs: there is no syslog here ({tmp_path}/socket): "
        "without --log-file nothing is logged\n"
    )
