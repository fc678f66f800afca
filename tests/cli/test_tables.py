"""Tables, for people and for awk."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

from logfs.cli.terminal import tables
from logfs.cli.terminal.tables import TableColumn
from tests.cli.conftest import command, environment, fill


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.0KiB"),
        (1536, "1.5KiB"),
        (2**20, "1.0MiB"),
        (2**60, "1024.0PiB"),
        (2**30 - 1, "1.0GiB"),
    ],
)
def test_sizes_are_printed_in_units(size: int, text: str) -> None:
    assert tables.format_bytes(size) == text


def test_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [TableColumn("NAME"), TableColumn("COUNT", is_number=True), TableColumn("STATE")]
    tables.show_table(columns, [["a", "7", "ok"], ["longer", "1234567", "[red]"]])
    assert capsys.readouterr().out == (
        "NAME      COUNT  STATE\na             7  ok\nlonger  1234567  [red]\n"
    )


def on_terminal(width: int, last: bytes, *arguments: str | Path) -> bytes:
    """Call ``logfs`` on a terminal of some width; returns what it shows up to some text."""
    terminal, inside = pty.openpty()
    environ = {**environment(), "COLUMNS": str(width), "TERM": "dumb"}
    done = subprocess.run(command(*arguments), check=False, stdout=inside, env=environ)
    os.close(inside)
    shown = b""
    while last not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    assert done.returncode == 0
    return shown


@pytest.mark.slow
def test_a_terminal_gets_a_table(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"orders/1": b""})
    shown = on_terminal(80, b"orders", "topic", "list", tmp_path / "data")
    assert b"PARTITIONS" in shown
    assert "─".encode() in shown


@pytest.mark.slow
def test_a_narrow_terminal_does_not_truncate_values(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"orders/1": b"", "a-topic-with-a-long-name/0": b"x\n"})
    for width in (60, 200):
        shown = on_terminal(width, b"orders ", "status", tmp_path / "data")
        assert ("─".encode() in shown) == (width == 200)
        assert b"a-topic-with-a-long-name" in shown
        assert b"PARTITIONS" in shown
        assert "…".encode() not in shown
