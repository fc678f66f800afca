"""``logfs top``: which programs append to and read which topics, live."""

import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import click

from logfs.cli import failures
from logfs.cli.parameters import json_option
from logfs.cli.terminal import tables
from logfs.cli.terminal.interrupts import Interrupts
from logfs.cli.terminal.live_screen import LiveScreen
from logfs.cli.terminal.tables import TableColumn
from logfs.errors import LogfsError
from logfs.machine.host import user_name

_TOPICS = ("TOPIC", "APPENDS/S", "RECORDS/S", "IN/S", "OUT/S")
_PROGRAMS = ("PROGRAM", "PID", "USER", "TOPIC", "DOES", "REQUESTS/S", "BYTES/S")
_TEXTS = frozenset({"TOPIC", "PROGRAM", "USER", "DOES"})
_LONGEST_S = 60.0
_OTHER_LINES = 14
"""Lines of a screen that are no rows: heads, gaps, notes."""
_OTHER_PLAIN_LINES = 5
"""The same of plain tables, without notes."""
_LEAST_ROWS = 3
_RETRY_S = 1.0

Row = Mapping[str, Any]
Sums = dict[tuple[object, ...], list[int]]


@click.command()
@click.argument("path", default=".")
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(0.1, _LONGEST_S),
    default=1.0,
    show_default=True,
    help="Count for SECONDS, then show the rates of this time.",
)
@click.option("--once", is_flag=True, help="Show the rates of one interval, and end.")
@click.option("-p", "--partitions", "every", is_flag=True, help="Show partitions, not topics.")
@json_option("Print the numbers as JSON, and end.")
def top(path: str, *, interval: float, once: bool, every: bool, as_json: bool) -> None:
    """Show which programs append to and read which topics, and how fast.

    PATH is a data directory or a mount point (default: the current directory). On a terminal the
    view is refreshed every interval until q or Ctrl-C, also when a daemon ends and another one
    starts; otherwise it is printed once. The daemon looks only while this command asks. The command
    uses the control socket, so it must run as the daemon's user or root; a read-only mount has
    none.

    \b
        APPENDS/S, RECORDS/S, IN/S
                    appends, their records, and bytes of batches; of all programs together
        OUT/S       bytes that the daemon gave to readers, as text
        REQUESTS/S  writes, reads and fsyncs of the program; of 'logfs append', the library and
                    Spark their requests to the daemon
        BYTES/S     bytes that it wrote or got

    Not seen: what the kernel reads from its cache or passes through (fixed names such as
    0@earliest..latest, sealed files), mapped files, and programs that read the data directory
    without the mount. A PID of 0 is a process that the daemon does not see, as in a container.

    \b
    Examples:
        logfs top /mnt/logs
        logfs top /mnt/logs --once --interval 10 --partitions
        logfs top /mnt/logs --json | jq '.programs[] | select(.operation == "append")'
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.owner import daemon_at

    milliseconds = round(interval * 1000)
    if not (once or as_json) and sys.stdout.isatty():
        with Interrupts() as interrupts:
            try:
                _watch(path, milliseconds, every=every)
            except KeyboardInterrupt:
                failures.exit_with(interrupts.status)
        return
    with failures.about(path), daemon_at(path) as daemon:
        found = daemon.activity(milliseconds)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _show(found, every=every, most=None)


def _watch(path: str, milliseconds: int, *, every: bool) -> None:
    """Show each interval until q is pressed. A daemon that ends is waited for."""
    from logfs.library.owner import daemon_at

    with failures.about(path):
        daemon_at(path).close()
    is_over = False
    with LiveScreen() as screen:
        while not is_over:
            try:
                with daemon_at(path) as daemon:
                    while not is_over:
                        _draw(screen, daemon.activity(milliseconds), every=every)
                        is_over = screen.has_key("q")
            except (LogfsError, OSError) as error:
                text = f"waiting for a daemon: {failures.explain(error)}"
                screen.draw(partial(click.echo, textwrap.fill(text, screen.columns)))
                is_over = screen.has_key("q", _RETRY_S)


def _draw(screen: LiveScreen, found: Row, *, every: bool) -> None:
    """Draw the tables, plain ones if that leaves more room for their rows."""
    is_plain = screen.lines < _OTHER_LINES + 2 * _LEAST_ROWS
    rows = (screen.lines - (_OTHER_PLAIN_LINES if is_plain else _OTHER_LINES)) // 2
    screen.draw(partial(_show, found, every=every, most=max(rows, 1)), is_plain=is_plain)


def _show(found: Row, *, every: bool, most: int | None) -> None:
    seconds = max(found["seconds"], 0.001)
    topics = _sums(
        ((_place(row, every=every),), ("appends", "records", "bytes_in", "bytes_out"), row)
        for row in found["topics"]
    )
    programs = _sums(
        (_program(row, every=every), ("requests", "bytes"), row) for row in found["programs"]
    )
    _show_sums(_TOPICS, topics, seconds, most, bytes_from=2)
    click.echo()
    _show_sums(_PROGRAMS, programs, seconds, most, bytes_from=1)
    if not found["sees_programs"]:
        click.echo(
            "\nPrograms that use the mount are not seen: this logfs was built without hooks."
        )
    if found["missed"]:
        click.echo(f"\n{found['missed']} requests are missing: too many programs and open files.")


def _place(row: Row, *, every: bool) -> str:
    return f"{row['topic']}/{row['partition']}" if every else row["topic"]


def _program(row: Row, *, every: bool) -> tuple[object, ...]:
    name, place = row["program"] or "-", _place(row, every=every)
    return name, row["pid"], user_name(row["uid"]), place, row["operation"]


def _sums(rows: Iterable[tuple[tuple[object, ...], Sequence[str], Row]]) -> Sums:
    """Add up rows with the same names."""
    found: Sums = {}
    for names, fields, row in rows:
        sums = found.setdefault(names, [0] * len(fields))
        for number, field in enumerate(fields):
            sums[number] += row[field]
    return found


def _show_sums(
    titles: Sequence[str], sums: Sums, seconds: float, most: int | None, bytes_from: int
) -> None:
    """Print a table of rates, the largest first.

    Args:
        titles: The titles of the columns.
        sums: The names of a row, and its sums.
        seconds: The time in which they were counted.
        most: How many rows; None: all.
        bytes_from: The first of the sums that is a number of bytes.
    """
    largest = sorted(sums.items(), key=lambda item: (-sum(item[1][bytes_from:]), -item[1][0]))
    rows = []
    for names, counts in largest[:most]:
        rates = [f"{count / seconds:.1f}" for count in counts[:bytes_from]]
        sizes = [tables.format_bytes(round(count / seconds)) for count in counts[bytes_from:]]
        rows.append([*map(str, names), *rates, *sizes])
    tables.show_table([TableColumn(title, title not in _TEXTS) for title in titles], rows)
    if len(largest) > len(rows):
        click.echo(f"and {len(largest) - len(rows)} more")
