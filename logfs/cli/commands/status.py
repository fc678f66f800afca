"""``logfs status``: topics, their daemon, their growth, what is wrong."""

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.daemon_activity import describe_activity
from logfs.cli.escapes import printable
from logfs.cli.parameters import json_option
from logfs.cli.status_notes import Verdict, is_unknown, notes_of, verdict_of
from logfs.cli.terminal import tables
from logfs.cli.terminal.tables import TableColumn, format_bytes, format_time
from logfs.errors import BadSelectorError
from logfs.library.places import locate
from logfs.machine.disks import is_url
from logfs.machine.host import system_clock

if TYPE_CHECKING:
    from logfs.library.places import Place
    from logfs.library.status import Status
    from logfs.services.overview import PartitionOverview

_LONGEST_WATCH_S = 86_400.0
_NUMBERS = ("SIZE", "KEPT", "SHOWN", "RECORDS/S", "BYTES/S")


def _as_number(
    _context: click.Context, _option: click.Parameter, seconds: float | None
) -> float | None:
    if seconds is not None and math.isnan(seconds):
        raise click.BadParameter("nan: expected a number of seconds")
    return seconds


@click.command()
@click.argument("path", default=".")
@click.option("-p", "--partitions", "every", is_flag=True, help="Print a line for each partition.")
@click.option(
    "--since",
    metavar="TIME",
    help="Leave out losses before TIME, which is a point of a path, such as -1d.",
)
@click.option(
    "--watch",
    metavar="SECONDS",
    type=click.FloatRange(0.1, _LONGEST_WATCH_S),
    callback=_as_number,
    help="Repeat every SECONDS.",
)
@json_option("Print a JSON object, with notes and verdict.")
def status(path: str, *, every: bool, since: str | None, watch: float | None, as_json: bool) -> int:
    """Show the topics of a data directory and the daemon that serves it.

    PATH is a data directory or a mount point (default: the current directory), or a topic or a
    partition in one. If a daemon serves the directory, the daemon answers. Otherwise nothing is
    locked or changed, and only the end of a log that was not stopped cleanly is scanned.

    \b
        SIZE       bytes of the .log files
        KEPT       length of the values that are kept, a newline after each
        SHOWN      size of the file in a mount: positions never go back, so it only grows
        RECORDS/S, BYTES/S
                   appended in the last five minutes, by the records' timestamps
        START, END the first offset that is kept, and that of the next record
        OLDEST, NEWEST
                   timestamps of the first record that is kept, and the largest one
        LOSSES     noticed in the life of the log; 'logfs cat PATH.meta' has each

    "-" is unknown. The state is unknown if a broker made the partition and logfs has never loaded
    it: only names and sizes are read then, and 'logfs verify' reads the rest. Lines below the table
    name offline partitions, losses, topics without a configuration (retention never trims these),
    the lag of consumer groups, and settings that are probably a mistake.

    The exit status is 0 if all is well, 1 if a partition is offline, there are losses or the disk
    is full (less than 1 MiB or no inode is free), 2 if the state of a partition is not known.

    \b
    Examples:
        logfs status /var/lib/logfs
        logfs status /mnt/logs/orders --partitions
        logfs status /var/lib/logfs --watch 5
        logfs status /var/lib/logfs --since -1d || mail -s 'logfs: losses' root
        logfs status /var/lib/logfs --json | jq '.topics[] | select(.has_config | not) | .topic'
    """  # noqa: D301 - click's mark for text it does not fill
    try:
        every = every or _names_partition(path)
        show: Callable[[Status], None] = _print_json if as_json else lambda s: _show(s, every=every)
        while True:
            found = _look(path, since)
            if watch is None:
                show(found)
                return verdict_of(notes_of(found))
            click.clear()
            show(found)
            time.sleep(watch)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - trouble has its own status
        debug = bool(getattr(click.get_current_context().obj, "debug", False))
        failures.report(error, debug=debug)
        return Verdict.UNKNOWN


def _names_partition(path: str) -> bool:
    with failures.about(path):
        return len(locate(path).address) > 1


def _look(path: str, since: str | None) -> "Status":
    from logfs.library.status import look

    with failures.about(path):
        place = locate(path)
        return look(place, 0 if since is None else _moment(since, place))


def _moment(text: str, place: "Place") -> int:
    from logfs.library.zones import zone_of
    from logfs.log.reading.address import Time, parse_point

    with suppress(BadSelectorError):
        point = parse_point(text.removeprefix("@"), zone_of(place))
        if isinstance(point, Time):
            return point.at(system_clock().now_ms())
    raise BadSelectorError(
        f"--since {text!r}: expected a time: a date (2026-11-20, 2026-11-20T10:00), a duration "
        "back from now (-1d, -1h30m), today, yesterday or epoch milliseconds"
    )


def _print_json(found: "Status") -> None:
    notes = notes_of(found)
    content = found.as_json() | {
        "verdict": verdict_of(notes).name.lower(),
        "notes": [note.as_json() for note in notes],
    }
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))


def _show(found: "Status", *, every: bool) -> None:
    full = ": the disk is full" if found.is_full else ""
    room = "read-only" if is_url(found.data) else f"{format_bytes(found.free_bytes)} free{full}"
    click.echo(f"data    {found.data} ({room})")
    click.echo(f"daemon  {_daemon(found)}")
    if found.daemon is not None and "sealed_files" in found.daemon:
        click.echo(f"        sealed files: {found.daemon['sealed_files']}")
    if found.daemon is not None and "kept_by" in found.daemon:
        keeper = found.daemon["kept_by"] or "nothing, open files end with the daemon"
        click.echo(f"        mount kept by: {keeper}")
    for word, text in describe_activity(found.metrics or {}):
        click.echo(f"        {word}: {text}")
    click.echo()
    if found.topics:
        (_show_partitions if every else _show_topics)(found)
    else:
        click.echo("no topics")
    notes = notes_of(found)
    if notes:
        click.echo()
    for note in notes:
        click.echo(printable(note.text))


def _daemon(found: "Status") -> str:
    facts = found.daemon
    if facts is None:
        if found.is_foreign:
            return "none of logfs's: a broker, a job or another command has the directory"
        if found.is_clean:
            return "none; stopped cleanly"
        return "none; it was not stopped cleanly: the next start recovers it"
    words = [f"process {facts['pid']}"]
    if "started_ms" in facts:
        words.append(f"since {format_time(facts['started_ms'])}")
    words.append(f"at {facts['mountpoint']}")
    if found.is_read_only:
        words.append("(read-only)")
    if facts.get("options"):
        words.append(f"-o {','.join(facts['options'])}")
    if "version" in facts:
        words.append(f"(logfs {facts['version']})")
    if facts.get("was_clean") is False:
        words.append("- the stop before was not clean, and was recovered from")
    return " ".join(words)


def _show_topics(found: "Status") -> None:
    columns = [
        TableColumn("TOPIC"),
        TableColumn("PARTITIONS", is_number=True),
        TableColumn("RECORDS", is_number=True),
        *(TableColumn(name, is_number=True) for name in _NUMBERS),
        *(TableColumn("OLDEST"), TableColumn("NEWEST")),
        TableColumn("LOSSES", is_number=True),
        TableColumn("STATE"),
    ]
    rows = []
    for topic in found.topics:
        parts = topic.partitions
        offline = sum(row.offline is not None for row in parts)
        unknown = sum(map(is_unknown, parts))
        state = f"{offline} offline" if offline else "unknown" if unknown else _ok(found)
        if topic.has_config is False:
            state += ", never trimmed"
        rows.append(
            [
                topic.topic,
                str(topic.partition_count),
                _number(_sum([_offsets(row) for row in parts]), "{:d}"),
                *_sizes(parts),
                _time(min(_known([row.oldest_timestamp for row in parts]), default=None)),
                _time(max(_known([row.newest_timestamp for row in parts]), default=None)),
                "-" if unknown == len(parts) else str(sum(row.losses for row in parts)),
                state,
            ]
        )
    tables.show_table(columns, rows)


def _show_partitions(found: "Status") -> None:
    columns = [
        TableColumn("PARTITION"),
        *(TableColumn(name, is_number=True) for name in ("START", "END", "SEGMENTS", *_NUMBERS)),
        *(TableColumn("OLDEST"), TableColumn("NEWEST")),
        TableColumn("LOSSES", is_number=True),
        TableColumn("STATE"),
    ]
    rows = [
        [
            f"{row.topic}/{row.partition}",
            *(
                _number(number, "{:d}")
                for number in (row.log_start_offset, row.log_end_offset, row.segments)
            ),
            *_sizes([row]),
            _time(row.oldest_timestamp),
            _time(row.newest_timestamp),
            "-" if is_unknown(row) else str(row.losses),
            "unknown" if is_unknown(row) else _ok(found) if row.offline is None else "offline",
        ]
        for row in found.partitions
    ]
    tables.show_table(columns, rows)


def _ok(found: "Status") -> str:
    """Return the state of what is online."""
    return "disk full" if found.is_full else "ok"


def _sizes(rows: "Sequence[PartitionOverview]") -> list[str]:
    sizes = (
        _sum([row.size_bytes for row in rows]),
        _sum([row.kept_bytes for row in rows]),
        _sum([row.shown_bytes for row in rows]),
    )
    records = _sum([row.records_per_second for row in rows])
    rate = _sum([row.bytes_per_second for row in rows])
    return [
        *("-" if size is None else format_bytes(int(size)) for size in sizes),
        _number(records, "{:.1f}"),
        "-" if rate is None else format_bytes(int(rate)),
    ]


def _offsets(row: "PartitionOverview") -> int | None:
    if row.log_end_offset is None or row.log_start_offset is None:
        return None
    return row.log_end_offset - row.log_start_offset


def _known(values: "Sequence[int | None]") -> list[int]:
    return [value for value in values if value is not None]


def _sum(values: "Sequence[int | float | None]") -> int | float | None:
    """Add up; None if one is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _number(value: int | float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _time(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None else format_time(timestamp_ms)
