"""``logfs append``: lines from stdin or files to a partition, or to the partitions of a topic."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from logfs.cli import failures
from logfs.cli.parameters import VIEWS, header_option, json_option
from logfs.cli.terminal import tables
from logfs.errors import RecordTooLargeError
from logfs.library.places import Place, locate_local

if TYPE_CHECKING:
    from logfs.cli.append_files import LineAppender, Summary
    from logfs.cli.append_target import AppendTarget
    from logfs.library.writer import Writer
    from logfs.records.record import Header


class _AppendCommand(click.Command):
    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the formats of times."""
        from logfs.records.linetimes import FORMAT_TABLE

        with formatter.section("FORMAT of --timestamp-format"):
            formatter.write_dl(FORMAT_TABLE)


@click.command(cls=_AppendCommand)
@click.argument("path")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option(
    "--format",
    "form",
    type=click.Choice([*VIEWS]),
    help="The form of the lines; default: the view of PATH, such as orders/0.tsv, else text.",
)
@click.option(
    "--key-delimiter",
    metavar="TEXT",
    help="Split each line at the first TEXT into a key and a value; \\t is a TAB. Nothing is "
    "escaped. For text only.",
)
@header_option("Add a header to every record; may be given several times.")
@click.option(
    "--timestamp-format",
    "time_form",
    metavar="FORMAT",
    help="Take the time of each record out of its line, in a format of the table below; default: "
    "the time of the append. A line without a time has that of the line before it. For text only.",
)
@click.option(
    "--create", is_flag=True, help="Create the topic, or the partition, if it is missing."
)
@click.option("--durable", is_flag=True, help="Return when all records are durable (fsync).")
@click.option(
    "--flush-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Make records durable (fsync) after every N or a few more, and at the end.",
)
@json_option("Print the offsets and sizes as a JSON object.")
def append(  # noqa: PLR0913, PLR0917 - options
    path: str,
    files: tuple[str, ...],
    form: str | None,
    key_delimiter: str | None,
    headers: "tuple[Header, ...]",
    time_form: str | None,
    flush_every: int | None,
    *,
    create: bool,
    durable: bool,
    as_json: bool,
) -> None:
    """Append the lines of FILEs, or of stdin, as records.

    PATH is DATA/TOPIC/PARTITION[.VIEW]; DATA is a data directory or a mount point. Each line is a
    record: a value in text, KEY TAB VALUE in .tsv, and in .jsonl what 'logfs cat' prints of that
    view. With DATA/TOPIC the key selects the partition by the hash of Kafka's producers; records
    without a key go to the partitions in turn, some megabytes each.

    If a daemon serves the directory, the daemon appends. Otherwise this command takes the lock of
    the directory while it runs. A kill after the end loses no line; a power cut can lose the last
    seconds, unless --durable is given.

    A refused line ends the command with its line number; the lines before it are in the log. The
    same applies to Ctrl-C. The last line needs no newline.

    \b
    Examples:
        logfs append /var/lib/logfs/orders/0 orders.txt
        zcat old.log.gz | logfs append /mnt/logs/web/0 --header host=web1
        logfs append /srv/old/web --timestamp-format '%d/%b/%Y:%H:%M:%S %z' access.log
        logfs append /mnt/logs/users --key-delimiter : /etc/passwd
        logfs cat /mnt/logs/orders/0@-1d.jsonl | logfs append /srv/copy/orders/0.jsonl --create
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.cli import append_files
    from logfs.cli.append_files import AT_THE_END, STDIN, check_files
    from logfs.cli.append_target import parse_target

    with failures.about(path):
        place = locate_local(path, may_begin=create)
        target = parse_target(place, form, key_delimiter, headers)
        if time_form is not None:
            target = _with_times(place, target, time_form)
    names = files or (STDIN,)
    total = check_files(names)
    flush_every = flush_every or (AT_THE_END if durable else None)
    # Not over what is typed: the lines may come from the same terminal.
    is_typed = STDIN in names and sys.stdin is not None and sys.stdin.isatty()
    options = _Options(create, flush_every, total, sys.stderr.isatty() and not is_typed)
    summary = append_files.Summary()
    try:
        _append(path, place, target, names, options, summary)
    except failures.AboutError as error:
        if isinstance(error.cause, RecordTooLargeError):
            _add_remedy(error.cause, f"{place.root}/{target.lines.topic}")
        if as_json:
            click.echo(json.dumps(_as_json(target.lines.topic, summary), indent=2))
        raise
    if as_json:
        click.echo(json.dumps(_as_json(target.lines.topic, summary), indent=2))
    elif sys.stderr.isatty():
        click.echo(f"{path}: {_so_far(summary)}", err=True)


def _with_times(place: Place, target: "AppendTarget", form: str) -> "AppendTarget":
    from logfs.cli.append_target import with_times
    from logfs.library.zones import zone_of
    from logfs.machine.host import system_clock

    return with_times(target, form, zone_of(place), system_clock().now_ms())


def _add_remedy(error: RecordTooLargeError, topic: str) -> None:
    error.args = (
        f"{error}; 'logfs topic alter {shlex.quote(topic)} --config "
        f"max.message.bytes={error.size_bytes}' lets it in",
    )


class _Options(NamedTuple):
    """How to append.

    Attributes:
        flush_every: Flush after so many records, and at the end; None: no flush.
        total: Bytes of all files together; None if unknown.
    """

    create: bool
    flush_every: int | None
    total: int | None
    is_shown: bool


def _append(
    path: str,
    place: Place,
    target: "AppendTarget",
    names: Sequence[str],
    options: _Options,
    summary: "Summary",
) -> None:
    from logfs.cli.append_files import append_files
    from logfs.cli.append_target import prepare
    from logfs.cli.terminal.interrupts import Interrupts
    from logfs.library.writer import Writer

    is_durable = options.flush_every is not None
    with Interrupts() as interrupts:
        try:
            with (
                failures.about(path),
                Writer(place, failures.progress(), is_durable=is_durable) as writer,
            ):
                writer.change_topics(partial(prepare, target=target.lines, create=options.create))
                with _progress(options.total, is_shown=options.is_shown) as report:
                    appender = _appender(writer, target)
                    append_files(names, appender, summary, interrupts, report, options.flush_every)
                if target.has_timestamps:
                    _warn(path, writer.expired(target.lines.topic, target.lines.partition))
        except failures.AboutError as error:
            # The error of a refused line names the line itself.
            error.state = _so_far(summary, up_to=error.thing == path)
            raise
        except KeyboardInterrupt:
            failures.warn(f"{path}: interrupted; {_so_far(summary, up_to=True)}")
            failures.exit_with(interrupts.status)


def _appender(writer: "Writer", target: "AppendTarget") -> "LineAppender":
    from logfs.cli.append_files import LineAppender
    from logfs.cli.timed_lines import TimedAppender

    if target.times is None:
        return LineAppender(writer, target.lines)
    return TimedAppender(writer, target.lines, target.times)


def _warn(path: str, warnings: Sequence[str]) -> None:
    for warning in warnings:
        failures.warn(f"{path}: warning: {warning}")


def _so_far(summary: "Summary", *, up_to: bool = False) -> str:
    if not summary.records:
        return "nothing was appended"
    size = tables.format_bytes(summary.bytes)
    count = "1 record" if summary.records == 1 else f"{summary.records} records"
    where = ""
    if len(summary.partitions) == 1:
        (row,) = summary.partitions.values()
        if row.base_offset is not None:
            where = f", offsets {row.base_offset} to {row.last_offset}"
    elif summary.partitions:
        where = f", in {len(summary.partitions)} partitions"
    last = f", up to {summary.last_line}" if up_to and summary.last_line else ""
    return f"{count} appended ({size}{where}){last}"


def _as_json(topic: str, summary: "Summary") -> dict[str, object]:
    rows = [
        {
            "partition": row.partition,
            "records": row.records,
            "first_offset": row.base_offset,
            "last_offset": row.last_offset,
        }
        for _, row in sorted(summary.partitions.items())
    ]
    return {
        "topic": topic,
        "records": summary.records,
        "bytes": summary.bytes,
        "partitions": rows,
    }


@contextmanager
def _progress(total: int | None, *, is_shown: bool) -> "Iterator[Callable[[Summary], None]]":
    """Yield the function that takes the summary after each step and shows it on a terminal."""
    if not is_shown:
        yield lambda _: None
        return
    from rich import progress
    from rich.console import Console

    from logfs.machine.host import system_clock

    columns = (
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TextColumn("{task.fields[rate]}/s, {task.fields[records]} records"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        clock = system_clock().monotonic_s
        started_s, task = clock(), shown.add_task("", total=total, records=0, rate="-")

        def tell(summary: "Summary") -> None:
            rate = tables.format_bytes(int(summary.bytes / (clock() - started_s)))
            records = f"{summary.records:,}"
            shown.update(task, completed=summary.bytes, rate=rate, records=records)

        yield tell
