"""Lines of shells and crontabs that append; logrotate, which does more than that."""

import re
from pathlib import Path

import pytest

from tests.mounting import environment_with_command
from tests.programs.conftest import Logs
from tests.programs.documents import line_for
from tests.programs.running import printed, shell

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

CRON_FIELD = r"(?:\*(?:/\d+)?|\d+)"


def app(logs: Logs) -> list[str]:
    """Return the lines of ``app/0``."""
    return (logs.point / "app" / "0").read_text().splitlines()


def test_tee(logs: Logs, tmp_path: Path) -> None:
    line = line_for("tee", logs.point)
    before = len(app(logs))
    assert printed(line, tmp_path).splitlines() == app(logs)[before:] != []
    assert "Operation not permitted" in shell(line.replace(" -a ", " "), tmp_path).stderr


def test_dd(logs: Logs, tmp_path: Path) -> None:
    line = line_for("dd", logs.point)
    before = len(app(logs))
    printed(line, tmp_path)
    assert app(logs)[before:] == Path("/etc/services").read_text().splitlines()
    for part in (" oflag=append", " conv=notrunc"):
        assert "Operation not permitted" in shell(line.replace(part, ""), tmp_path).stderr


def test_cron(logs: Logs, tmp_path: Path) -> None:
    """What cron does with a line: it gives all after five fields to sh."""
    line = line_for("cron", logs.point)
    match = re.fullmatch(rf"(?:{CRON_FIELD} ){{5}}([^%]*)", line)
    assert match is not None
    command = tmp_path / "command"
    command.write_text(match[1])
    before = len(app(logs))
    assert printed(f"/bin/sh -c \"$(cat '{command}')\"", tmp_path) == ""
    assert "Filesystem" in app(logs)[before]


@pytest.mark.parametrize("directive", ["create", "copytruncate", "nocreate", "renamecopy"])
def test_logrotate_changes_nothing(logs: Logs, tmp_path: Path, directive: str) -> None:
    log = logs.point / "web" / "0"
    conf = tmp_path / "logrotate.conf"
    conf.write_text(f"{log} {{\n  rotate 3\n  {directive}\n}}\n")
    result = shell(f"logrotate --force --state {tmp_path}/state {conf}", tmp_path)
    assert "Operation not permitted" in result.stderr
    assert log.read_text().splitlines() == logs.web
    assert [path.name for path in log.parent.iterdir()] == ["0"]


def test_retention_instead_of_rotation(logs: Logs, tmp_path: Path) -> None:
    line = line_for("logrotate", logs.point)
    variables = environment_with_command(tmp_path)
    printed(f"PATH={variables['PATH']} {line}", tmp_path)
    assert "retention.ms=86400000" in printed(
        f"PATH={variables['PATH']} logfs topic describe {logs.point}/web", tmp_path
    ).replace(" ", "")
