"""``logfs cat``: records to stdout, with a mount or without."""

import sys
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.record_query import RecordQuery, context_options, query_options
from logfs.errors import LogfsError
from logfs.library.places import locate
from logfs.log.reading.address import SEGMENTS_NAME, names_topic_range

if TYPE_CHECKING:
    from logfs.types import IsolationLevel


class _CatCommand(click.Command):
    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the tables of selectors and views."""
        from logfs.cli.record_query import MOMENT_TABLE
        from logfs.log.reading.address import SELECTOR_TABLE, VIEW_TABLE
        from logfs.records.templates import TEMPLATE_TABLE

        with formatter.section("Selectors, @FROM[..TO]"):
            formatter.write_dl(SELECTOR_TABLE)
        with formatter.section("Views"):
            formatter.write_dl([(suffix or "(none)", meaning) for suffix, meaning in VIEW_TABLE])
        with formatter.section("FROM and TO of --since and --until, also"):
            formatter.write_dl(MOMENT_TABLE)
        with formatter.section("FORMAT"):
            formatter.write_dl(TEMPLATE_TABLE)


@click.command(cls=_CatCommand)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@query_options
@context_options
def cat(
    paths: tuple[str, ...],
    level: "IsolationLevel | None",
    view: str | None,
    query: RecordQuery,
    *,
    prefix: bool | None,
) -> None:
    """Print the records that each PATH names, one PATH after the other.

    PATH is DATA/TOPIC/PARTITION[@FROM[..TO]][.VIEW]. DATA is a data directory or a mount point, so
    PATH is the path that programs read in a mount. If a daemon serves the directory, the daemon
    reads, unless its mount shows another isolation level than --isolation-level. Otherwise this
    command reads the files, takes no lock and changes nothing. Data that recovery would remove
    after a crash is not printed.

    PATH may also be DATA/TOPIC@FROM[..TO][.VIEW], the records of all partitions merged by their
    timestamps, up to what is there now.

    PATH may also be DATA/TOPIC, or DATA for all topics that a listing shows. Then, and with any of
    the options but --isolation-level, the records of all PATHs are merged by their timestamps, and
    the files are read also beside a daemon. Records of several partitions start with their
    partition, "orders/0: "; in .jsonl two more fields, topic and partition, name it. With --grep,
    -F, --key, --header or --field only records are printed for which all of these options hold.

    A range that cannot contain a record, such as one that ends before it starts, is no error: a
    line on stderr says so. After an error the command continues with the next PATH, and the exit
    status is 1. The data before the error is printed.

    \b
    Examples:
        logfs cat /var/lib/logfs/orders/0
        logfs cat /var/lib/logfs/orders/0@-1h.jsonl
        logfs cat /var/lib/logfs/orders@-1h.jsonl
        logfs cat --grep refused /var/lib/logfs/orders/0@2026-11-20..2026-11-21
        logfs cat --since today -c -F refused /var/lib/logfs/orders
        logfs cat -C 2 -F refused /var/lib/logfs/orders/0
        logfs cat --since yesterday --field level=error --view jsonl /var/lib/logfs
        logfs cat /var/lib/logfs/orders/0@offset=-10.tsv
        logfs cat --isolation-level read_committed /var/lib/logfs/payments/0
        logfs cat /var/lib/logfs/.segments/orders-0/00000000000000000000.log | xxd | less
    """  # noqa: D301 - click's mark for text it does not fill
    out, reports = sys.stdout.buffer, failures.Reports()
    if query.is_given or view or prefix is not None or any(map(_is_merged, paths)):
        from logfs.cli.tail.printer import TailPrinter

        with TailPrinter(out, reports, level, query, has_prefix=prefix) as printer:
            printer.open(paths, view or "text", takes_addresses=True)
            if query.is_count:
                printer.print_counts()
            else:
                printer.print_present()
    else:
        from logfs.cli.address_output import copy

        for path in paths:
            with reports.about(path):
                note = copy(locate(path), out, level)
                if note is not None:
                    out.flush()
                    failures.warn(f"{path}: {note}")
        out.flush()
    failures.exit_with(reports.status)


def _is_merged(path: str) -> bool:
    """Return whether a PATH names a topic, or everything; of an error the copy tells.

    Raises:
        AboutError: A store does not answer. It is not waited for twice.
    """
    try:
        address = locate(path).address
    except (LogfsError, OSError) as error:
        if isinstance(error, OSError) and "://" in path:
            raise failures.AboutError(path, error) from error
        return False
    if len(address) == 1:
        return address[0] != SEGMENTS_NAME and not names_topic_range(address[0])
    return not address
