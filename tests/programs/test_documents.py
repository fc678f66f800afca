"""Every line of the table of programs is run by some test of this folder."""

import re
from pathlib import Path

from logfs.cli.mount_file import read_mount_file
from tests.programs.documents import GUIDE, block_with, rows

NOT_RUN = "Fluent Bit, Fluentd, Filebeat, Vector"
"""No package of Debian has them; the guide says so."""


def test_every_row_is_run() -> None:
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    run = re.findall(r'line_for\("([^"]+)"', sources)
    assert sorted(set(run)) == sorted(row.program for row in rows() if row.program != NOT_RUN)


def test_what_is_not_run_says_so() -> None:
    (row,) = [row for row in rows() if row.program == NOT_RUN]
    assert "(operators.md#shippers)" in row.line
    text = " ".join(GUIDE.read_text().split())
    assert "were not run with logfs" in text
    assert all(f"**{name}**" in text for name in NOT_RUN.split(", "))


def test_the_configuration_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "logs.toml"
    path.write_text(block_with("mountpoint = ", Path("/mnt/logs")))
    mount = read_mount_file(str(path))
    assert (mount.data, mount.mountpoint) == ("/var/lib/logfs", "/mnt/logs")
    assert mount.options == ("allow_other",)
    assert mount.settings == {"log.retention.hours": "168"}
