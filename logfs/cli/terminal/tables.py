"""Tables: lines and colours on a terminal, plain columns anywhere else."""

import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import click

from logfs.cli.escapes import printable

_GAP = "  "
_LAST_COLUMN = 20
"""So much of the last column has to fit into a line."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class TableColumn(NamedTuple):
    """The head of a column."""

    title: str
    is_number: bool = False


def show_table(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout. No cell is empty, so that awk can count columns.

    On a terminal the last column is wrapped if need be. One that is too narrow for the others gets
    plain columns: a line that continues in the next one is whole, a number that is cut is none.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    lines = [[column.title for column in columns], *rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    needed = sum(widths[:-1]) + len(_GAP) * len(widths) + min(widths[-1], _LAST_COLUMN)
    if sys.stdout.isatty() and needed <= shutil.get_terminal_size().columns:
        _show_rich(columns, rows)
        return
    for line in lines:
        cells = (
            text.rjust(width) if column.is_number else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        )
        click.echo(_GAP.join(cells).rstrip())


def format_bytes(size: int) -> str:
    """Write a number of bytes for people, as ``1.5 MiB``; exact below 1 KiB."""
    value, unit = float(size), _UNITS[0]
    for unit in _UNITS:
        if round(value, 1) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{size}B" if unit == _UNITS[0] else f"{value:.1f}{unit}"


def counted(count: int, noun: str) -> str:
    """Write a number with its noun: ``1 record``, ``2 records``, ``2 losses``."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def format_time(timestamp_ms: int, precision: str = "seconds") -> str:
    """Write a time as a selector takes it: local, with its offset from UTC."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
        return moment.isoformat(timespec=precision)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # far outside the calendar


def _show_rich(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns, start=1):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        table.add_column(column.title, justify=justify, no_wrap=number < len(columns))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # not str: that could hold markup
    width, height = shutil.get_terminal_size()
    Console(width=width, height=height).print(table)
