"""Where the log goes."""

import json
import logging
import os
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from logfs.cli.terminal import logformat, logs
from logfs.errors import CorruptRecordError
from logfs.log.losses import Loss, log_loss
from logfs.types import TopicPartition

LOGGER = logging.getLogger("elsewhere")  # what logfs itself logs would fail the test


pytestmark = pytest.mark.usefixtures("logging_as_before")


def forget_handlers() -> None:
    """Be as alone as a process is; pytest listens too."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)


def test_commands_show_warnings_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    forget_handlers()
    logs.show_warnings()
    logs.show_warnings()
    LOGGER.info("not shown")
    LOGGER.warning("two\nlines of %s", "it")
    assert capsys.readouterr().err == "logfs: warning: two lines of it\n"


def test_a_daemons_log_replaces_the_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_handlers()
    logs.show_warnings()
    logs.log_to_file(str(tmp_path / "log"))
    LOGGER.warning("first")
    assert (tmp_path / "log").read_text().endswith(" WARNING first\n")
    assert capsys.readouterr().err == ""


def test_a_moved_log_file_is_reopened(tmp_path: Path) -> None:
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


def test_without_syslog_the_log_goes_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "SYSLOG", tmp_path / "socket")
    logs.log_to_syslog()
    LOGGER.warning("first")
    assert capsys.readouterr().err == (
        f"logfs: there is no syslog here ({tmp_path}/socket): "
        "without --log-file nothing is logged\n"
    )


def log_like(form: str, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    """Log in a format what a daemon logs, and return the lines."""
    forget_handlers()
    logs.log_to_stderr(form)
    loss = Loss(7, "cut", "orders-0/0.log", 120, 60, 3, "60 bytes\nare gone")
    log_loss(TopicPartition("orders", 0), loss)
    error = CorruptRecordError("a batch does not decode", 5, "orders-0/0.log", 61)
    LOGGER.error("%s: %s", "read", error)
    LOGGER.warning("a file called %s", "x\ny\x1b[31m\udcff")
    try:
        int("of a bug")
    except ValueError:
        LOGGER.exception("a bug in logfs")
    yield from capsys.readouterr().err.splitlines()


@pytest.mark.expect_log("loss: cut")
def test_text_is_one_line_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    lines = list(log_like("text", capsys))
    assert all(datetime.fromisoformat(line[:29]).tzinfo for line in lines[1:3])
    assert [line.split(" ", 2)[2] for line in lines[1:3]] == [
        "ERROR read: a batch does not decode",
        r"WARNING a file called x\ny\x1b[31m\udcff",
    ]
    assert "WARNING orders/0: 60 bytes\\nare gone [loss: cut, " in lines[0]
    assert len(lines) == 4
    assert " ERROR a bug in logfs | Traceback (most recent call last): | " in lines[3]
    assert lines[3].endswith("'of a bug'")


@pytest.mark.expect_log("loss: cut")
def test_the_journal_gets_levels(capsys: pytest.CaptureFixture[str]) -> None:
    lines = list(log_like("journald", capsys))
    assert [line[:3] for line in lines] == ["<4>", "<3>", "<4>", "<3>"]
    assert lines[1] == "<3>read: a batch does not decode"


@pytest.mark.expect_log("loss: cut")
def test_json_has_the_fields_of_its_subject(capsys: pytest.CaptureFixture[str]) -> None:
    loss, corrupt, file, bug = map(json.loads, log_like("json", capsys))
    assert loss["time"].endswith("Z")
    about = ("level", "topic", "partition", "event", "kind", "file", "position", "bytes", "offset")
    assert [loss[key] for key in about] == [
        "warning", "orders", 0, "loss", "cut", "orders-0/0.log", 120, 60, 3
    ]  # fmt: skip
    assert (corrupt["position"], corrupt["bytes"]) == (5, 61)
    assert corrupt["error"] == "CorruptRecordError"
    assert (corrupt["topic"], corrupt["partition"]) == ("orders", 0)  # the file says so
    assert file["message"] == "a file called x\ny\x1b[31m\udcff"
    assert bug["exception"].endswith("'of a bug'")


def test_the_journal_is_recognised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream:
        found = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        assert logs.leads_to_journal(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino + 1}")
        assert not logs.leads_to_journal(stream.fileno())
        monkeypatch.delenv("JOURNAL_STREAM")
        assert not logs.leads_to_journal(stream.fileno())


def test_repeated_warnings_of_one_place_are_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_handlers()
    logs.log_to_stderr("journald")

    def complain(partition: int) -> None:
        LOGGER.warning("%s: too slow", TopicPartition("orders", partition))

    for _ in range(100):
        complain(0)
    complain(1)  # about something else
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["<4>orders/0: too slow"] * logformat.MOST_ALIKE + ["<4>orders/1: too slow"]
    monkeypatch.setattr(logformat, "WINDOW_S", 0.0)
    complain(0)
    assert capsys.readouterr().err == (
        "<4>orders/0: too slow (90 more like this were left out since)\n"
    )


def _raise(kind: type[Exception]) -> None:
    raise kind


def test_repeated_tracebacks_of_one_line_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    forget_handlers()
    logs.log_to_stderr("text")

    def fail(kind: type[Exception], count: int) -> None:
        for _ in range(count):
            try:
                _raise(kind)
            except kind:
                LOGGER.exception("failed")

    fail(ValueError, 100)
    fail(KeyError, 1)  # another one, of the same line
    said = capsys.readouterr().err
    assert said.count("ValueError") == logformat.MOST_ALIKE
    assert said.count("KeyError") == 1


@pytest.mark.expect_log("loss: cut")
def test_losses_are_never_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    forget_handlers()
    logs.log_to_stderr("journald")
    for number in range(100):
        log_loss(TopicPartition("orders", 0), Loss(7, "cut", "0.log", number, 60, 3, "gone"))
    assert len(capsys.readouterr().err.splitlines()) == 100


def test_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    forget_handlers()
    logs.set_level("error")
    logs.log_to_stderr("text")
    logging.getLogger("logfs.elsewhere").info("not shown")
    assert capsys.readouterr().err == ""
    assert logging.getLogger("logfs").level == logging.ERROR
