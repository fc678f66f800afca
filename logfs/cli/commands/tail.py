"""``logfs tail``: the last records of partitions, and those that come."""

import re
import sys
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.record_query import RecordQuery, query_options
from logfs.cli.terminal import streams
from logfs.cli.terminal.interrupts import Interrupts
from logfs.types import MAX_OFFSET

if TYPE_CHECKING:
    from logfs.types import IsolationLevel

_LINES = 10
_WITH_VALUES = (
    "-n", "--records", "--from", "-S", "--since", "-U", "--until", "-g", "--grep", "-k", "--key",
    "--header", "--field", "--format", "--view", "--isolation-level", "--group", "--",
)  # fmt: skip


class _TailCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take -5 for -n 5, as tail(1) does."""
        words: list[str] = []
        for word in args:
            is_value = bool(words) and words[-1] in _WITH_VALUES
            is_count = re.fullmatch(r"-[0-9]+", word) is not None
            words += ["-n", word[1:]] if is_count and not is_value else [word]
        return super().parse_args(ctx, words)

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the table of selectors, of which a single point is taken here."""
        from logfs.cli.record_query import MOMENT_TABLE
        from logfs.log.reading.address import SELECTOR_TABLE
        from logfs.records.templates import TEMPLATE_TABLE

        with formatter.section("FROM and TO"):
            rows = [row for row in SELECTOR_TABLE if not re.search(r"\.\.|byte=", row[0])]
            points = [(example.removeprefix("@"), what) for example, what in rows]
            formatter.write_dl([*points, *MOMENT_TABLE])
        with formatter.section("FORMAT"):
            formatter.write_dl(TEMPLATE_TABLE)


@click.command(cls=_TailCommand)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "-n",
    "--records",
    "count",
    type=click.IntRange(0, MAX_OFFSET),
    metavar="N",
    help=f"Print the last N records of each partition first; default: {_LINES}.",
)
@click.option("--from", "start", metavar="FROM", help="The same as --since.")
@click.option(
    "--group",
    metavar="NAME",
    help="Continue where the consumer group NAME was, and commit what was printed; conflicts with "
    "-n. --since says where to begin if the group has no position; default: earliest.",
)
@click.option("-f", "--follow", is_flag=True, help="Print new records as they come.")
@query_options
def tail(  # noqa: PLR0913, PLR0917 - an argument for each option
    paths: tuple[str, ...],
    count: int | None,
    start: str | None,
    view: str | None,
    level: "IsolationLevel | None",
    query: RecordQuery,
    group: str | None,
    *,
    follow: bool,
    prefix: bool | None,
) -> None:
    """Print the last records of partitions, and with -f also new ones.

    PATH is DATA (all topics that a listing shows), DATA/TOPIC, or DATA/TOPIC/PARTITION, which may
    end in .tsv or .jsonl. DATA is a data directory or a mount point. The command reads the files,
    takes no lock and changes nothing. It sees new records at once, also those of a running broker.

    Records of several partitions are merged by their timestamps; with -f new ones are printed as
    they come. Each starts with its partition, "orders/0: "; in .jsonl two more fields, topic and
    partition, name it. New partitions of a topic are followed from their first record. With DATA
    new topics are too: -f waits for the next one, also if there is none yet or all were deleted.

    With --grep, -F, --key, --header or --field only records are printed for which all of these
    options hold, and -n is the number of such records. --since prints the records from a point
    instead of the last ones, --until those before a point.

    With --group the position of a consumer group is kept, as Kafka keeps it: the next call prints
    the records after those that this one has printed. Positions are committed after the output was
    flushed, with -f each second, and when a signal or the end of the reader ends the command. After
    a crash, and after "| head", the last records may be printed again.

    \b
    Examples:
        logfs tail /var/lib/logfs/orders/0
        logfs tail -f /var/lib/logfs/orders
        logfs tail -n 0 -f /mnt/logs/orders /mnt/logs/payments
        logfs tail --since -15m --grep refused /var/lib/logfs/orders
        logfs tail --since yesterday --until today --field level=error /var/lib/logfs
        logfs tail -f --key 4711 --format '%d %t %s' /mnt/logs/orders
        logfs tail --group mailer --grep ERROR /var/lib/logfs/app | mail -E -s errors root
        logfs tail -f --view jsonl /var/lib/logfs/orders | jq .value
        logfs tail -f --isolation-level read_committed /var/lib/logfs/payments/0.tsv
    """  # noqa: D301 - click's mark for text it does not fill
    query = _checked(query, start, count, follow=follow)
    if group is not None and count is not None:
        raise click.UsageError("--group and -n exclude each other: give one of them")
    from logfs.cli.tail.printer import TailPrinter

    reports = failures.Reports()
    with TailPrinter(
        sys.stdout.buffer, reports, level, query, group=group, has_prefix=prefix
    ) as printer:
        interrupts = Interrupts()
        with nullcontext() if group is None else interrupts:
            try:
                printer.open(paths, view or "text", _LINES if count is None else count)
                printer.print_present()
                if follow:
                    printer.print_coming()
            except (KeyboardInterrupt, BrokenPipeError) as error:
                streams.abandon()
                with suppress(KeyboardInterrupt), interrupts.held():
                    printer.commit()  # what was printed before a signal or the end of the reader
                if isinstance(error, BrokenPipeError):
                    raise
                failures.exit_with(interrupts.status)
    failures.exit_with(reports.status)


def _checked(
    query: RecordQuery, start: str | None, count: int | None, *, follow: bool
) -> RecordQuery:
    """Return what is asked for, with ``--from`` as ``--since``.

    Raises:
        click.UsageError: Two options exclude each other.
    """
    if start is not None and query.since is not None:
        raise click.UsageError("--from is the same as --since: give one of them")
    query = replace(query, since=query.since or start)
    if count is not None and query.since is not None:
        raise click.UsageError("--since and -n exclude each other: give one of them")
    if follow and query.until is not None:
        raise click.UsageError("--until ends, -f does not: give one of them")
    return query
