"""systemd's units and journal write to partitions; units restart with logfs.

A real systemd, as the manager of a user, in namespaces where it believes that it may run; no
system of this machine is asked for anything.
"""

from pathlib import Path

import pytest

from tests.programs.conftest import Logs
from tests.programs.documents import block_with, line_for
from tests.programs.running import shell
from tests.programs.user_manager import START, printed_beside_systemd, unit

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

STATUS_STDOUT = 209
"""What a service ends with whose standard output cannot be set up (systemd.exec(5))."""


def test_a_service_appends(logs: Logs, tmp_path: Path) -> None:
    line = line_for("systemd unit", logs.point)
    assert "append:" in line
    script = ""
    for kind in ("append", "file", "truncate"):
        output = line.replace("append:", f"{kind}:")
        text = f"[Service]\nType=oneshot\nExecStart=/bin/echo {kind} by systemd\n{output}"
        script += unit(f"{kind}.service", text)
    script += START
    for kind in ("append", "file", "truncate"):
        script += f"systemctl --user start {kind} 2> /dev/null || true\n"
        script += f"systemctl --user show --property ExecMainStatus --value {kind}\n"
    assert printed_beside_systemd(script, tmp_path).splitlines() == [
        "0",
        str(STATUS_STDOUT),
        str(STATUS_STDOUT),
    ]
    lines = (logs.point / "app" / "0").read_text().splitlines()
    assert [line for line in lines if "by systemd" in line] == ["append by systemd"]


@pytest.mark.parametrize(
    "text", ["journalctl --follow", "RequiresMountsFor="], ids=["unit", "drop-in"]
)
def test_units_of_the_guide_are_sound(tmp_path: Path, text: str) -> None:
    block = block_with(text, Path("/mnt/logs"))
    if "ExecStart=" not in block:
        block += "[Service]\nExecStart=/bin/sleep 1000\n"
    (tmp_path / "some.service").write_text(block)
    result = shell("systemd-analyze verify --man=no ./some.service", tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_journal_is_copied(logs: Logs, tmp_path: Path) -> None:
    line = line_for("journal, systemd-cat", logs.point)
    script = f"""\
printf '[Journal]\\nStorage=volatile\\n' > /run/journald.conf
mount --bind /run/journald.conf /etc/systemd/journald.conf
/lib/systemd/systemd-journald &
until [ -S /run/systemd/journal/stdout ]; do sleep 0.05; done
{line} &
for try in $(seq 1000); do
  echo hello | systemd-cat -t greeter
  ! grep -q SYSLOG_IDENTIFIER.*greeter {logs.point}/journal/0 || break
  sleep 0.05
done
"""
    printed_beside_systemd(script, tmp_path)
    assert '"MESSAGE":"hello"' in (logs.point / "journal" / "0").read_text()
