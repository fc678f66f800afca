"""``logfs explain``: the meaning of an address, or what is wrong with it."""

from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.escapes import printable
from logfs.cli.terminal import tables
from logfs.errors import BadSelectorError
from logfs.library.places import locate
from logfs.log.reading.address import VIEW_TABLE, Suffix

if TYPE_CHECKING:
    from logfs.library.explaining import ExplainedPoint, Meaning

_COLUMNS = (
    tables.TableColumn("PARTITION", is_number=True),
    *(tables.TableColumn(name) for name in ("", "POINT", "TIME")),
    tables.TableColumn("OFFSET", is_number=True),
    tables.TableColumn("TIMESTAMP"),
)


@click.command()
@click.argument("path")
def explain(path: str) -> None:
    """Print what an address means now: its first and its last offset, and their times.

    PATH is a name below a data directory or a mount point, such as DATA/orders/0@-15m. Programs see
    only an errno of a wrong name (EINVAL, ENOENT). This command marks the wrong part, and says what
    is expected.

    TIME is the time that a point means. OFFSET is the offset of the first record at or after the
    point, and TIMESTAMP is the time of that record. "-" is none: the point is no time, or it is the
    end of the log. FROM is inclusive, TO is exclusive.

    \b
    Examples:
        logfs explain /mnt/logs/orders/0@yesterday..today
        logfs explain /var/lib/logfs/orders/0@offset=-100.jsonl
        logfs explain /var/lib/logfs/orders@-15m
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.explaining import explain as look_up

    with failures.about(path):
        try:
            meanings = look_up(locate(path))
        except BadSelectorError as error:
            _mark(path, error.part)
            raise
    _show(meanings)


def _mark(path: str, part: str) -> None:
    """Print the path with the wrong part underlined, if it can be found."""
    start = path.rfind(part, path.rfind("/") + 1)
    if part and start >= 0 and printable(path) == path:
        click.echo(f"{path}\n{' ' * start}{'^' * len(part)}", err=True)


def _show(meanings: "list[Meaning]") -> None:
    first = meanings[0]
    view = next(text for suffix, text in VIEW_TABLE if suffix == first.view)
    click.echo(f"{first.view or 'text'}: {view}")
    if first.view is Suffix.META or first.view.is_in:
        return
    grows = any(meaning.grows for meaning in meanings)
    until = ", until a record reaches TO" if first.stop else ""
    click.echo(f"grows: later records are added{until}" if grows else "fixed: it never changes")
    rows = []
    for meaning in meanings:
        rows.append(_row(str(meaning.partition), "FROM", meaning.start))
        if meaning.stop is not None:
            rows.append(_row("", "TO", meaning.stop))
    tables.show_table(_COLUMNS, rows)


def _row(partition: str, name: str, point: "ExplainedPoint") -> list[str]:
    time, timestamp = (
        "-" if ms is None else tables.format_time(ms, "milliseconds")
        for ms in (point.time_ms, point.timestamp)
    )
    return [partition, name, point.point, time, str(point.offset), timestamp]
