"""Tables of positions and their lags: of consumer groups, and of checkpoints of Spark."""

import json
from collections.abc import Sequence

import click

from logfs.cli.terminal import tables
from logfs.cli.terminal.quantities import format_duration
from logfs.cli.terminal.tables import TableColumn
from logfs.library.group_lags import GroupLag


def show_positions(lags: Sequence[GroupLag], *, as_json: bool) -> None:
    """Print positions, as a table or as a JSON array."""
    if as_json:
        click.echo(json.dumps([row.as_json() for row in lags], indent=2, ensure_ascii=False))
        return
    columns = [
        TableColumn("PARTITION"),
        *(TableColumn(title, is_number=True) for title in ("POSITION", "END", "LAG")),
        *(TableColumn("LAG-TIME"), TableColumn("COMMITTED"), TableColumn("METADATA")),
    ]
    rows = [
        [
            f"{row.topic}/{row.partition}",
            str(row.position.offset),
            format_lag(None if row.lag is None else row.lag.end_offset),
            format_lag(None if row.lag is None else row.lag.records),
            format_age(None if row.lag is None else row.lag.seconds),
            format_commit(row.position.committed_ms),
            row.position.metadata or "-",
        ]
        for row in lags
    ]
    tables.show_table(columns, rows)


def format_lag(number: int | None) -> str:
    """Write a number; "-" if it is unknown."""
    return "-" if number is None else str(number)


def format_age(seconds: float | None) -> str:
    """Write the age of a record; 0 without one, "-" if it is unknown."""
    return "-" if seconds is None else "0" if not seconds else format_duration(seconds)


def format_commit(timestamp_ms: int | None) -> str:
    """Write the time of a commit; "-" if it is unknown."""
    return "-" if timestamp_ms is None or timestamp_ms < 0 else tables.format_time(timestamp_ms)
