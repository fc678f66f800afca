"""``logfs salvage``."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from logfs.cli import failures
from logfs.cli.commands.backup import TOPICS, CopyProgress
from logfs.cli.parameters import dry_run_option, json_option
from logfs.cli.terminal import tables

if TYPE_CHECKING:
    from logfs.services.salvage.directory import Salvaged
    from logfs.services.salvage.report import Gone


@click.command()
@click.argument("damaged")
@click.argument("data")
@TOPICS
@dry_run_option()
@json_option("Print a JSON object.")
def salvage(
    damaged: str, data: str, *, topics: Sequence[str], is_preview: bool, as_json: bool
) -> None:
    """Copy what can be read of the damaged data directory DAMAGED into DATA.

    DAMAGED is the directory of logfs or of a Kafka broker, with damaged files or on a failing disk,
    or the URL of an object store. It is only read, and no process may use it meanwhile. DATA is a
    missing or an empty directory. The command makes a data directory of it that logfs mounts and a
    broker opens.

    A recovery cuts a log at the first batch that it cannot use. This command leaves such a batch
    out and continues with the next one, also where the disk cannot read some bytes. Batches are
    copied byte for byte, with their offsets. Byte positions start at 0. The first start checks the
    whole directory and makes its indexes.

    Each thing that is missing is a line: the file and the byte, what is wrong, the offsets and
    the times between which they were written, and the file in DATA with the damaged bytes.
    'logfs dump' shows what they look like. The exit status is 0 if everything was copied, and 1 if
    something is missing or could not be copied as it is.

    \b
    Examples:
        logfs salvage --dry-run /var/lib/kafka/data /tmp/saved
        logfs salvage /var/lib/kafka/data saved && logfs cat saved/orders/0
        logfs salvage /media/failing/logfs /var/lib/logfs --topic orders
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.backup import check_damaged, salvage_directory

    with failures.about(damaged):
        check_damaged(damaged, topics)
    with failures.about(data), CopyProgress() as progress:
        done = salvage_directory(damaged, data, topics, is_preview=is_preview, count=progress.count)
    if as_json:
        click.echo(json.dumps(_as_json(done), indent=2))
    else:
        _show(done, damaged, data, is_preview=is_preview)
    if not done.is_whole:
        failures.exit_with(failures.FAILED)


def _show(done: "Salvaged", damaged: str, data: str, *, is_preview: bool) -> None:
    for one in done.partitions:
        for gone in one.gone:
            kept = f"{data}/{one.topic_partition.directory}/{gone.kept_as}"
            where = f"; the bytes are in {kept}" if gone.kept_as else ""
            click.echo(f"gone: {damaged}/{_line_of(gone)}{where}")
        for text in one.notes:
            click.echo(f"note: {damaged}/{text}")
    for text in done.notes:
        click.echo(f"note: {damaged}/{text}")
    partitions = tables.counted(len(done.partitions), "partition")
    records = tables.counted(sum(one.records for one in done.partitions), "record")
    size = tables.format_bytes(sum(one.size_bytes for one in done.partitions))
    missing = [gone for one in done.partitions for gone in one.gone]
    what = "nothing is missing"
    if missing:
        known = [gone.next_offset - gone.first_offset for gone in missing if gone.next_offset]
        what = f"{tables.counted(sum(known), 'offset')} missing"
        if len(known) < len(missing):
            what += f", and the end of {tables.counted(len(missing) - len(known), 'partition')}"
    would = "would be " if is_preview else ""
    click.echo(f"{partitions}, {records}, {size} {would}copied; {what}")


def _line_of(gone: "Gone") -> str:
    """Return the line about something that is missing."""
    size = f"{gone.size_bytes} bytes: " if gone.size_bytes else ""
    first, following = gone.first_offset, gone.next_offset
    if following is None:
        offsets = f"what follows offset {first - 1} is missing" if first else "all is missing"
    elif following <= first:
        offsets = "no offset is missing"
    elif following == first + 1:
        offsets = f"offset {first} is missing"
    else:
        offsets = f"offsets {first} to {following - 1} are missing"
    times = []
    if gone.after_ms is not None:
        times.append(f"after {tables.format_time(gone.after_ms)}")
    if gone.before_ms is not None:
        times.append(f"before {tables.format_time(gone.before_ms)}")
    written = f", written {' and '.join(times)}" if times and offsets[0] != "n" else ""
    return f"{gone.file}: byte {gone.position}: {size}{gone.why}; {offsets}{written}"


def _as_json(done: "Salvaged") -> dict[str, Any]:
    return {
        "partitions": [
            {
                "topic": one.topic_partition.topic,
                "partition": one.topic_partition.partition,
                "segments": one.segments,
                "records": one.records,
                "size_bytes": one.size_bytes,
                "start_offset": one.start_offset,
                "end_offset": one.end_offset,
                "gone": [gone._asdict() for gone in one.gone],
                "notes": one.notes,
            }
            for one in done.partitions
        ],
        "notes": done.notes,
    }
