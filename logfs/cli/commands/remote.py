"""``logfs remote``: the object store of a data directory."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from logfs.cli import failures
from logfs.cli.parameters import json_option, store_options, store_settings
from logfs.cli.terminal import tables
from logfs.errors import UnknownNameError, moment_of
from logfs.library.places import locate, locate_local
from logfs.machine.disks import bucket_disk, is_url
from logfs.machine.storeplace import StorePlace

if TYPE_CHECKING:
    from logfs.library.diverged import Diverged


@click.group()
def remote() -> None:
    """Copy logs to an object store, check it, and get logs back from it.

    A topic with remote.storage.enable=true copies its sealed segments to the store of its data
    directory (s3://, gs:// or az://). local.retention.ms and local.retention.bytes say which of
    them stay on the disk as well; retention.ms and retention.bytes apply to the whole log. All
    names, positions and bytes stay as they are.

    Every command that reads logs also takes the URL of a store in the place of a data directory:
    'logfs cat s3://BUCKET/PREFIX/orders/0@-1d', 'logfs mount s3://BUCKET/PREFIX DIR -o ro'.

    Credentials come from the environment (AWS_ACCESS_KEY_ID and so on), from the files of AWS's
    tools, or from the machine. They are never stored.
    """


@remote.command()
@click.argument("data")
@click.argument("url")
@store_options
@click.option(
    "--shared", "is_shared", is_flag=True, help="Other data directories write other topics there."
)
def init(
    data: str,
    url: str,
    *,
    endpoint: str | None,
    region: str | None,
    is_shared: bool,
    settings: tuple[tuple[str, str], ...],
) -> None:
    """Name the store URL as that of the data directory DATA.

    First objects are stored, changed and removed there: a store that ignores conditional requests
    is refused, because two writers could destroy each other's data. So is a store in which another
    data directory writes topics, as its records and those of DATA could hide each other. Then the
    file logfs.remote is written, without any secrets. A daemon reads it when it starts, so restart
    it.

    \b
    Examples:
        logfs remote init /var/lib/logfs s3://backups/logs
        logfs remote init /var/lib/logfs s3://logs/web --endpoint http://127.0.0.1:9000
        logfs topic alter /var/lib/logfs/orders --config remote.storage.enable=true
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.remote import init_store

    chosen = store_settings(endpoint, region, settings)
    with failures.about(data):
        config = init_store(data, url, chosen, is_shared=is_shared)
    click.echo(f"{config.url} is the store of {data}; restart the daemon, if one is running")


@remote.command()
@click.argument("path")
@json_option("Print a JSON array, an object a partition.")
def status(path: str, *, as_json: bool) -> None:
    """Show what is in the store, of a data directory, a topic, a partition or a whole store.

    For the URL of a store PATH the lines are those of its heads: the offsets in it, its segments
    and their bytes, the time of the newest record in it, and the machine and the data directory
    that write it. For a data directory or a mount they say how much is still to be copied, since
    when records are on this machine alone, and why it failed. The last line names the topics that
    are in no store.
    """
    from logfs.library.remote import store_at, tiering_of, topics_not_stored
    from logfs.services.tiering.stores import check_heads, rows_of

    others: list[str] = []
    with failures.about(path):
        if is_url(path):
            store = store_at(path)
            check_heads(store, bucket_disk(store.url), path)
            found = list(rows_of(store))
            rows = [row._asdict() for row in found]
            lines = [
                [
                    f"{r.topic}/{r.partition}", r.start_offset, r.end_offset, r.segments,
                    tables.format_bytes(r.size_bytes), _moment(r.latest_ms),
                    f"{r.host}/{r.directory_id[:8]}" if r.host else "", r.error or "",
                ]
                for r in found
            ]  # fmt: skip
            names = ["PARTITION", "START", "END", "SEGMENTS", "SIZE", "UNTIL", "WRITER", "ERROR"]
        else:
            tiered = tiering_of(locate(path))
            others = topics_not_stored(locate(path), tiered)
            rows = [{**one._asdict(), **facts} for one, facts in tiered.items()]
            lines = [
                [
                    str(one), facts.get("segments", "-"),
                    tables.format_bytes(facts["bytes"]) if "bytes" in facts else "-",
                    *_to_copy(facts), _moment(facts.get("missing_since")), facts["error"] or "",
                ]
                for one, facts in tiered.items()
            ]  # fmt: skip
            names = [
                "PARTITION", "SEGMENTS", "SIZE", "TO COPY", "BYTES", "MISSING SINCE", "ERROR"
            ]  # fmt: skip
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    columns = [tables.TableColumn(name, is_number=name in _NUMBERS) for name in names]
    tables.show_table(columns, [[str(cell) for cell in line] for line in lines])
    if others:
        click.echo(f"not in the store: {', '.join(others)}")


def _to_copy(facts: dict[str, Any]) -> tuple[object, str]:
    """Return what is still to be copied, by ``.meta``; a mount of a store does not know it."""
    lag = facts.get("lag")
    return ("-", "-") if lag is None else (lag["segments"], tables.format_bytes(lag["bytes"]))


def _moment(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None else moment_of(timestamp_ms)


_NUMBERS = frozenset({"START", "END", "SEGMENTS", "SIZE", "TO COPY", "BYTES"})


@remote.command()
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
def gc(path: str, *, dry_run: bool) -> None:
    """Remove what interrupted copies have left in a store: objects that nothing names.

    PATH is the URL of a store, or a data directory. Objects of the last 24 hours are left alone: a
    copy that is under way may still name them. Nothing that logfs did not make is removed.
    """
    from logfs.library.remote import store_at
    from logfs.machine.host import system_clock
    from logfs.services.tiering.stores import orphans_of

    count = size = 0
    with failures.about(path):
        store = store_at(path)
        for stat in orphans_of(store, system_clock().now_ms()):
            count, size = count + 1, size + stat.size
            if dry_run:
                click.echo(f"{store.url}/{stat.key}")
            else:
                store.delete(stat.key)
    verb = "would be removed" if dry_run else "removed"
    click.echo(f"{count} objects, {tables.format_bytes(size)} {verb}")


@remote.command("take-over")
@click.argument("path")
def take_over(path: str) -> None:
    """Let the data directory PATH write its partitions in the store, instead of another one.

    PATH is a data directory, a topic or a partition in it; no daemon may serve it. The other
    directory is fenced: it copies and deletes nothing any more, and says so. Use this when that one
    is gone, as after 'logfs remote fetch'. It is refused where the store has records that this
    directory does not have.
    """
    from logfs.library import remote as library

    with failures.about(path):
        done = library.take_over(locate_local(path))
    click.echo(f"{tables.counted(len(done), 'partition')} taken over")


@remote.command()
@click.argument("path")
@click.option("--out", metavar="DIR", help="Write these records to files in DIR.")
@json_option("Print a JSON object.")
def diverged(path: str, *, out: str | None, as_json: bool) -> None:
    """Show the records that the data directory PATH has and its store does not.

    They were appended there after the last round that the other machine got, which continues the
    logs since 'logfs promote'. Each line is an address that 'logfs cat' and 'logfs dump' take. With
    --out each partition gets a file TOPIC-PARTITION.jsonl in DIR, which is missing or empty:
    append it to TOPIC/PARTITION.jsonl on the other machine. Nothing is changed. The exit status is
    0 also if there are such records.

    \b
    Examples:
        logfs remote diverged /var/lib/logfs
        logfs remote diverged /var/lib/logfs --out /tmp/lost
        cat /tmp/lost/orders-0.jsonl >> /mnt/logs/orders/0.jsonl
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.diverged import find_diverged

    with failures.about(path):
        found = find_diverged(path, out)
    if as_json:
        click.echo(json.dumps({**found._asdict(), "partitions": _as_rows(found)}, indent=2))
    else:
        _show_diverged(found)
    if found.problems:
        failures.exit_with(failures.FAILED)


@remote.command()
@click.argument("data")
@click.option(
    "--out", metavar="DIR", help="Keep its own records there; default: DATA.diverged-TIME."
)
def rejoin(data: str, *, out: str | None) -> None:
    """Make the data directory DATA a good copy of its store again, which another one owns.

    The records that DATA alone has are written to files in DIR first, see 'logfs remote diverged'.
    Then each log is what the store has of it. Local files of segments that were copied from here
    stay, so nothing is copied but records that are in no segment. No daemon may serve DATA. An
    interrupted call is completed by the same command. To make DATA the owner: 'logfs promote'.

    \b
    Examples:
        logfs remote rejoin /var/lib/logfs
        logfs promote s3://backups/logs /var/lib/logfs
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.diverged import rejoin as rejoin_store

    with failures.about(data):
        done = rejoin_store(data, out, say=lambda text: click.echo(text, err=True))
    if done.diverged is not None:
        _show_diverged(done.diverged)
    for one in done.only_here:
        click.echo(f"{one}: the store does not have it; it is as it was")
    for text in done.problems:
        click.echo(f"problem: {text}")
    click.echo(f"{tables.counted(len(done.partitions), 'partition')} as in the store")
    if done.problems:
        failures.exit_with(failures.FAILED)


def _show_diverged(found: "Diverged") -> None:
    columns = [
        tables.TableColumn("ADDRESS"),
        tables.TableColumn("OFFSETS", is_number=True),
        *(tables.TableColumn(name) for name in ("FIRST", "LAST", "")),
    ]
    rows = [
        [
            f"{found.data}/{one.topic_partition}@offset={one.first_offset}",
            str(one.end_offset - one.first_offset),
            _moment(one.first_ms), _moment(one.last_ms),
            "the store has no such partition" if one.is_unknown else "",
        ]
        for one in found.partitions
    ]  # fmt: skip
    if rows:
        tables.show_table(columns, rows)
    else:
        click.echo(f"{found.data}: it has no records that its store does not have")
    if found.host:
        click.echo(f"the logs continue on {found.host} since {moment_of(found.since_ms)}")
    for text in found.problems:
        click.echo(f"problem: {text}")


def _as_rows(found: "Diverged") -> list[dict[str, object]]:
    return [
        {
            **one.topic_partition._asdict(),
            **one._asdict(),
            "topic_partition": str(one.topic_partition),
        }
        for one in found.partitions
    ]


@remote.command()
@click.argument("url")
@click.argument("data")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic.")
def fetch(url: str, data: str, *, topics: Sequence[str]) -> None:
    """Make the data directory DATA of the logs in the store URL.

    DATA is missing or empty. Offsets, positions and settings are those of the store. It ends with
    the last segment that was copied. An interrupted fetch is completed by the same command. To copy
    to the same store from there: 'logfs remote init', then 'logfs remote take-over'.

    \b
    Examples:
        logfs remote fetch s3://backups/logs /var/lib/logfs
        logfs remote fetch s3://backups/logs /tmp/look --topic orders
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.cli.commands.backup import CopyProgress
    from logfs.library.backup import fetch_store

    with failures.about(url):
        place = locate(url)
        if not place.is_remote or place.address:
            raise UnknownNameError("expected the URL of a store, as s3://BUCKET/PREFIX")
    with failures.about(data), CopyProgress() as progress:
        done = fetch_store(place.root, data, topics, say=progress.say, count=progress.count)
    copied = tables.format_bytes(progress.copied)
    click.echo(f"{tables.counted(len(done), 'partition')} fetched; {copied} copied")


@remote.command()
@click.argument("path")
@click.option("--all", "reads_all", is_flag=True, help="Also read every object and check it.")
def verify(path: str, *, reads_all: bool) -> None:
    """Check that a store has what its heads name.

    PATH is the URL of a store, or a data directory. Heads, tables and the sizes of all objects are
    checked, with a request for a thousand objects. With --all every object is read: its checksums,
    batches, indexes and positions, as 'logfs verify' does.
    """
    from logfs.library.remote import server_of, store_at
    from logfs.services.tiering.stores import check_heads, problems_of

    with failures.about(path):
        store = store_at(path)
        check_heads(store, bucket_disk(store.url), path)
        problems = [f"{store.url}/{one.key}: {one.detail}" for one in problems_of(store)]
        if reads_all:
            problems += _read_all(store.url, server_of(path))
    for line in problems:
        click.echo(f"damage: {line}")
    click.echo(f"{store.url}: {len(problems)} damages")
    if problems:
        failures.exit_with(failures.FAILED)


def _read_all(url: str, place: StorePlace | None) -> list[str]:
    from logfs.cli.verify_data import verify_data

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            sizes = " of ".join(map(tables.format_bytes, (done, total)))
            click.echo(f"\r\x1b[K{sizes} read", nl=False, err=True)

    return [str(finding) for finding in verify_data(url, None, 0, show, place).damages]
