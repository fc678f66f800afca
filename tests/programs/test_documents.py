"""Every line of the README's table of programs is run by some test of this folder."""

import re
from pathlib import Path

from tests.programs.documents import GUIDE, rows

NOT_RUN = "Fluent Bit, Fluentd, Filebeat, Vector"
"""No package of Debian has them; the guide says so."""


def test_every_row_is_run() -> None:
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    run = re.findall(r'line_for\("([^"]+)"', sources)
    assert sorted(set(run)) == sorted(row.program for row in rows() if row.program != NOT_RUN)


def test_what_is_not_run_says_so() -> None:
    (row,) = [row for row in rows() if row.program == NOT_RUN]
    assert "guides/operators.md#shippers" in row.line
    text = " ".join(GUIDE.read_text().split())
    assert "They have not been run beside logfs" in text
    assert all(f"**{name}**" in text for name in NOT_RUN.split(", "))
