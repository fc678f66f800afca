"""``logfs cat``: records to stdout, with a mount or without."""

import sys
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.parameters import isolation_option
from logfs.library.places import locate

if TYPE_CHECKING:
    from logfs.types import IsolationLevel


class _CatCommand(click.Command):
    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the tables of selectors and views."""
        from logfs.log.reading.address import SELECTOR_TABLE, VIEW_TABLE

        with formatter.section("Selectors, @FROM[..TO]"):
            formatter.write_dl(SELECTOR_TABLE)
        with formatter.section("Views"):
            formatter.write_dl([(suffix or "(none)", meaning) for suffix, meaning in VIEW_TABLE])


@click.command(cls=_CatCommand)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@isolation_option("What to print; default: what the daemon's mount shows, else all records.")
@click.pass_obj
def cat(session: object, paths: tuple[str, ...], level: "IsolationLevel | None") -> None:
    """Print the records that each PATH names, one PATH after the other.

    PATH is DATA/TOPIC/PARTITION[@FROM[..TO]][.VIEW]. DATA is a data directory or a mount point, so
    PATH is the path that programs read in a mount. If a daemon serves the directory, the daemon
    reads, unless its mount shows another isolation level than --isolation-level. Otherwise this
    command reads the files, takes no lock and changes nothing. Data that recovery would remove
    after a crash is not printed.

    A range that cannot contain a record, such as one that ends before it starts, is no error: a
    line on stderr says so. After an error the command continues with the next PATH, and the exit
    status is 1. The data before the error is printed.

    \b
    Examples:
        logfs cat /var/lib/logfs/orders/0
        logfs cat /var/lib/logfs/orders/0@-1h.jsonl
        logfs cat /var/lib/logfs/orders/0@2026-11-20..2026-11-21 | grep refused
        logfs cat /var/lib/logfs/orders/0@offset=-10.tsv
        logfs cat --isolation-level read_committed /var/lib/logfs/payments/0
        logfs cat /var/lib/logfs/.segments/orders-0/00000000000000000000.log | xxd | less
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.cli.address_output import copy

    out = sys.stdout.buffer
    is_debug = bool(getattr(session, "debug", False))
    status = 0
    for path in paths:
        try:
            with failures.about(path):
                note = copy(locate(path), out, level)
            if note is not None:
                out.flush()
                failures.warn(f"{path}: {note}")
        except failures.AboutError as error:
            out.flush()
            status = failures.report(error, debug=is_debug)
    out.flush()
    failures.exit_with(status)
