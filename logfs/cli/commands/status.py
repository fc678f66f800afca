"""``logfs status``: topics, their daemon, their growth, what is wrong."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from logfs.cli import failures
from logfs.cli.escapes import printable
from logfs.cli.terminal import tables
from logfs.cli.terminal.quantities import format_duration
from logfs.cli.terminal.tables import TableColumn, counted, format_bytes, format_time
from logfs.errors import BadSelectorError
from logfs.library.places import locate
from logfs.machine.disks import is_url
from logfs.machine.host import system_clock, user_name

if TYPE_CHECKING:
    from logfs.library.group_lags import GroupLag
    from logfs.library.places import Place
    from logfs.library.status import Status
    from logfs.services.overview import PartitionOverview, TopicOverview

_UNSEEN_MS = 86_400_000
"""After so long without its process a forward is named."""
TROUBLE = 1
UNKNOWN = 2
_LONGEST_WATCH_S = 86_400.0
_MOST_GROUPS = 20
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
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
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
                return _verdict(found)
            click.clear()
            show(found)
            time.sleep(watch)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - trouble has a status of its own
        debug = bool(getattr(click.get_current_context().obj, "debug", False))
        failures.report(error, debug=debug)
        return UNKNOWN


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
    from logfs.log.reading.address import Ago, Moment, Now, parse_point

    with suppress(BadSelectorError):
        match parse_point(text.removeprefix("@"), zone_of(place)):
            case Moment(timestamp_ms):
                return timestamp_ms
            case Ago(duration_ms):
                return system_clock().now_ms() - duration_ms
            case Now():
                return system_clock().now_ms()
    raise BadSelectorError(
        f"--since {text!r}: expected a time: a date (2026-11-20, 2026-11-20T10:00), a duration "
        "back from now (-1d, -1h30m) or epoch milliseconds"
    )


def _verdict(found: "Status") -> int:
    if found.is_full or any(row.offline or row.losses for row in found.partitions):
        return TROUBLE
    if any(row.mirror is not None and row.mirror["error"] for row in found.partitions):
        return TROUBLE
    if any(forward.get("error") for row in found.partitions for forward in row.forwards):
        return TROUBLE
    return UNKNOWN if any(_is_unknown(row) for row in found.partitions) else 0


def _is_unknown(row: "PartitionOverview") -> bool:
    """Tell whether nothing is known of the records of a partition, so that it may be damaged."""
    return row.log_end_offset is None and row.offline is None


def _is_closed(row: "PartitionOverview") -> bool:
    """Tell whether this user may not read a partition."""
    return row.segments is None and row.offline is None


def _print_json(found: "Status") -> None:
    click.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))


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
    notes = _notes(found)
    if notes:
        click.echo()
    for note in notes:
        click.echo(printable(note))


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
        unknown = sum(map(_is_unknown, parts))
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
            "-" if _is_unknown(row) else str(row.losses),
            "unknown" if _is_unknown(row) else _ok(found) if row.offline is None else "offline",
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


def _notes_of_mirror(topic: "TopicOverview") -> list[str]:
    """Return what a topic is a mirror of, its lag if that is known, and what is wrong."""
    found = [row.mirror for row in topic.partitions if row.mirror is not None]
    if not found:
        return []
    lags = [lag for facts in found if isinstance(lag := facts.get("lag_records"), int)]
    lag = f", lag {tables.counted(sum(lags), 'offset')}" if lags else ""
    source = f"topic {found[0]['source']} of the Kafka cluster {found[0]['cluster_id']}"
    why = next((str(facts["error"]) for facts in found if facts["error"]), "")
    return [
        f"{topic.topic} is a mirror of {source}{lag}",
        *([f"{topic.topic}: its mirror has a problem: {why}"] if why else []),
    ]


def _notes_of_forwards(topic: "TopicOverview") -> list[str]:
    """Return where a topic is forwarded to, the lag, and what is wrong."""
    notes, found = [], [facts for row in topic.partitions for facts in row.forwards]
    for to in dict.fromkeys(str(facts["to"]) for facts in found):
        mine = [facts for facts in found if facts["to"] == to]
        lag = sum(facts["lag_records"] for facts in mine if isinstance(facts["lag_records"], int))
        is_idle = any(facts.get("state") == "stopped" for facts in mine)
        state = ", stopped: its records are held" if is_idle and lag else ""
        notes.append(
            f"{topic.topic} is forwarded to {to}, lag {tables.counted(lag, 'offset')}{state}"
        )
        why = next((str(facts["error"]) for facts in mine if facts.get("error")), "")
        if why:
            notes.append(f"{topic.topic}: its forward has a problem: {why}")
        notes += _note_of_unseen(topic.topic, to, lag, mine)
    return notes


def _note_of_unseen(
    topic: str, to: str, lag: int, forwards: Sequence[Mapping[str, object]]
) -> list[str]:
    """Return that a forward has not run for long, if records wait for it."""
    seen = [at for facts in forwards if isinstance(at := facts.get("reported"), int)]
    if not lag or not seen or system_clock().now_ms() - max(seen) < _UNSEEN_MS:
        return []
    return [
        f"{topic}: nothing has forwarded it to {to} since {format_time(max(seen))}, and retention "
        f"keeps {tables.counted(lag, 'offset')} for that. Run 'logfs forward', or remove the files "
        "logfs.forward-* of its partitions to let go of them"
    ]


def _notes_of_quotas(topic: "TopicOverview") -> list[str]:
    """Return how much of its quotas a topic uses, and what came of it."""
    facts, notes = topic.quota, []
    if facts is None:
        return []
    if facts["bytes"] >= 0:
        used, limit = int(facts["used_bytes"]), int(facts["bytes"])
        share = f"{tables.format_bytes(used)} of {tables.format_bytes(limit)}"
        refused = int(facts["refused"])
        text = f", {tables.counted(refused, 'append')} refused" if refused else ""
        notes.append(f"{topic.topic} has a quota: {share} used{text}")
    if facts["producer_byte_rate"] > 0:
        rate, waits = int(facts["producer_byte_rate"]), int(facts["throttled"])
        waited = f", for {format_duration(facts['throttled_seconds'])} in all"
        text = f"; {tables.counted(waits, 'append')} had to wait{waited}" if waits else ""
        notes.append(f"{topic.topic} takes {tables.format_bytes(rate)} a second{text}")
    return notes


def notes_of_users(metrics: Mapping[str, Any]) -> list[str]:
    """Return what users with limits use, and what came of it."""

    def by_user(name: str) -> dict[str, float]:
        return {row["user"]: row["value"] for row in metrics.get(name, ())}

    limit, used = metrics.get("logfs_user_max_bytes"), by_user("logfs_user_used_bytes")
    refused = by_user("logfs_user_refused_total")
    waits = by_user("logfs_user_throttled_total")
    waited_s = by_user("logfs_user_throttled_seconds_total")
    notes = []
    for user, count in refused.items():
        facts = []
        if limit is not None and user in used:
            share = tables.format_bytes(int(used[user]))
            facts.append(f"{share} of {tables.format_bytes(int(limit))} used")
        if count:
            facts.append(f"{tables.counted(int(count), 'request')} refused")
        if waits[user]:
            writes = tables.counted(int(waits[user]), "write")
            facts.append(f"{writes} had to wait, for {format_duration(waited_s[user])} in all")
        if facts:
            notes.append(f"user {user_name(int(user))}: {', '.join(facts)}")
    return notes


def _notes_of_groups(found: "Status") -> list[str]:
    """Return what consumer groups have not read yet."""
    lags: dict[tuple[str, str], list[GroupLag]] = {}
    for row in found.groups:
        lags.setdefault((row.group, row.topic), []).append(row)
    notes = []
    for (group, topic), rows in lags.items():
        known = [row.lag for row in rows if row.lag is not None]
        records = sum(lag.records for lag in known)
        if records:
            age_s = max((lag.seconds for lag in known if lag.seconds is not None), default=None)
            age = "" if age_s is None else f", the oldest {format_duration(age_s)} old"
            records_text = tables.counted(records, "record")
            notes.append(f"group {group} has not read {records_text} of {topic}{age}")
    if len(notes) > _MOST_GROUPS:
        more = len(notes) - _MOST_GROUPS
        notes[_MOST_GROUPS:] = [f"and {more} more: 'logfs group list' shows all groups"]
    return notes


def _notes(found: "Status") -> list[str]:
    """Return what to know beside the numbers."""
    notes = []
    if found.is_full:
        notes.append(
            "the disk is full, so appends fail: 'logfs trim --now' and 'logfs topic delete' make "
            "room on it, and so does retention"
        )
    for row in found.partitions:
        name = f"{row.topic}/{row.partition}"
        if row.offline is not None:
            notes.append(f"{name} is offline: {row.offline}")
        if row.last_loss is not None:
            loss = row.last_loss
            when = format_time(int(str(loss["time_ms"])))
            notes.append(
                f"{name}: {tables.counted(row.losses, 'loss')}, the last at {when}: "
                f"{loss['kind']}, "
                f"{loss['bytes']} bytes: {loss['detail']}"
            )
    notes += notes_of_users(found.metrics or {})
    notes += _notes_of_groups(found)
    for topic in found.topics:
        notes += _notes_of_mirror(topic)
        notes += _notes_of_forwards(topic)
        notes += _notes_of_quotas(topic)
        closed = sum(map(_is_closed, topic.partitions))
        if closed:
            count = tables.counted(closed, "partition")
            notes.append(f"{topic.topic}: nothing is known of {count}, which you may not read")
        unread = sum(map(_is_unknown, topic.partitions)) - closed
        if unread:
            count = tables.counted(unread, "partition")
            notes.append(
                f"{topic.topic}: nothing is known of the records of {count}, which logfs has never "
                "loaded: 'logfs verify' checks them, and a mount loads them"
            )
        if topic.has_config is False:
            notes.append(
                f"{topic.topic} has no configuration of its own, as a broker leaves it: nothing is "
                "ever trimmed or compacted until 'logfs topic alter' has set its policy"
            )
        warnings = [*topic.warnings, *topic.expired]
        notes += [f"{topic.topic}: warning: {warning}" for warning in warnings]
    return notes


def describe_activity(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what to say of the metrics that are not of single topics: a word and a text each.

    Args:
        metrics: As the daemon answers ``metrics``; one of another version may lack some.
    """
    rows = [
        ("writes", _writes(metrics)),
        ("open", _open(metrics)),
        ("recovery", _recovery(metrics)),
        ("cleaner", _cleaner(metrics)),
    ]
    return [(word, text) for word, text in rows if text]


def _writes(metrics: Mapping[str, Any]) -> str:
    append = metrics.get("logfs_log_append_duration_seconds")
    flush = metrics.get("logfs_log_flush_duration_seconds")
    if not append or not flush:
        return ""
    text = f"{append['count']} appends{_times(append)}; {flush['count']} flushes{_times(flush)}"
    failed = int(metrics.get("logfs_log_failed_flushes_total", 0))
    return f"{text}; {failed} flushes failed" if failed else text


def _times(histogram: Mapping[str, Any]) -> str:
    half, most = histogram["p50_within"], histogram["p99_within"]
    if half is None:
        return ""
    last = "99 of 100 take longer" if most is None else f"99 of 100 within {_seconds(most)}"
    return f" (half within {_seconds(half)}, {last})"


def _seconds(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1_000_000:.0f} µs"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.0f} s"


def _open(metrics: Mapping[str, Any]) -> str:
    files = {row["mode"]: int(row["value"]) for row in metrics.get("logfs_open_files", [])}
    lanes = {row["where"]: int(row["value"]) for row in metrics.get("logfs_lanes", [])}
    if not files:
        return ""
    text = f"{files.get('append', 0)} files to append, {files.get('read', 0)} to read"
    slow = lanes.get("thread", 0)
    if not slow:
        return text
    return f"{text}; {counted(slow, 'partition')} served by threads, as the disk was slow"


def _recovery(metrics: Mapping[str, Any]) -> str:
    count = int(metrics.get("logfs_recoveries_total", 0))
    if not count:
        return ""
    size, seconds = (
        metrics.get(f"logfs_{name}_total", 0) for name in ("recovered_bytes", "recovery_seconds")
    )
    return f"{counted(count, 'partition')}, {format_bytes(int(size))} scanned in {seconds:.1f} s"


def _cleaner(metrics: Mapping[str, Any]) -> str:
    rounds, read, written = (
        int(metrics.get(f"logfs_log_cleaner_{name}_total", 0))
        for name in ("rounds", "bytes_read", "bytes_written")
    )
    bad = int(metrics.get("logfs_log_cleaner_uncleanable_partitions", 0))
    text = ""
    if rounds:
        text = f"{counted(rounds, 'round')}, {format_bytes(read)} became {format_bytes(written)}"
    if bad:
        text += "; " if text else ""
        text += f"{counted(bad, 'partition')} not compacted: the log says why"
    return text
