"""Tables: lines and colours on a terminal, plain columns anywhere else."""

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import click

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Column(NamedTuple):
    """The head of a column."""

    title: str
    is_number: bool = False


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout. No cell is empty, so that awk can count columns."""
    if sys.stdout.isatty():
        _show_rich(columns, rows)
        return
    lines = [[column.title for column in columns], *rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        cells = (
            text.rjust(width) if column.is_number else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def format_bytes(size: int) -> str:
    """Write a number of bytes for people, as ``1.5 MiB``; exact below 1 KiB."""
    value, unit = float(size), _UNITS[0]
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{size}B" if unit == _UNITS[0] else f"{value:.1f}{unit}"


def format_time(timestamp_ms: int) -> str:
    """Write a time as a selector takes it, in the local time zone."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # far outside the calendar


def _show_rich(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.title, justify="right" if column.is_number else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # not str: that could hold markup
    Console().print(table)
