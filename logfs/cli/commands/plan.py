"""``logfs plan``: how much disk a topic takes, or when one is full."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from logfs.cli import failures
from logfs.cli.parameters import json_option, settings_option
from logfs.cli.terminal import quantities as of
from logfs.cli.terminal import tables
from logfs.cli.terminal.quantities import format_duration, format_number
from logfs.library.places import locate_local

if TYPE_CHECKING:
    from logfs.cli.disk_forecast import Forecast, Needs

_NUMBERS = ("RECORDS/S", "BYTES/S", "RECORD", "NOW", "AT MOST")
_ZERO_TO_ONE = click.FloatRange(0, 1, min_open=True)


@click.command()
@click.argument("path", required=False)
@click.option(
    "--rate",
    type=of.rate,
    metavar="RATE",
    help="Records (5000/s) or bytes of values (10MB/s) for each second.",
)
@click.option(
    "--record", type=of.size, metavar="SIZE", default="100", help="Length of a value; default: 100."
)
@click.option("--key", type=of.size, metavar="SIZE", help="Length of a key; default: no key.")
@click.option(
    "--batch",
    type=of.count,
    metavar="N",
    default="1",
    help="Records of one write(2) or of one request of a producer; default: 1.",
)
@click.option(
    "--compression",
    type=_ZERO_TO_ONE,
    metavar="SHARE",
    default=1.0,
    help="Compressed size divided by plain size; default: 1.",
)
@click.option(
    "--packed",
    type=_ZERO_TO_ONE,
    metavar="SHARE",
    default=0.15,
    help="Size of a packed segment divided by its size before, with "
    "logfs.sealed.compression.type; default: 0.15, as for single lines of a web log.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    default=1,
    help="Partitions of the topic; default: 1.",
)
@click.option(
    "--keys", type=of.count, metavar="N", help="Different keys, for cleanup.policy=compact."
)
@click.option(
    "--disk", type=of.size, metavar="SIZE", help="Print also how long a disk of this size lasts."
)
@click.option(
    "--tail",
    type=of.duration,
    metavar="TIME",
    default="10m",
    help="The longest lag of a reader; default: 10m.",
)
@settings_option(
    "Set a setting of the topic, such as retention.ms=86400000; may be given several times."
)
@json_option("Print a JSON object, sizes in bytes.")
def plan(  # noqa: PLR0913, PLR0917 - one for each option
    path: str | None,
    rate: tuple[float, bool] | None,
    record: float,
    key: float | None,
    batch: float,
    compression: float,
    packed: float,
    partitions: int,
    keys: float | None,
    disk: float | None,
    tail: float,
    settings: Sequence[tuple[str, str]],
    *,
    as_json: bool,
) -> None:
    """Estimate the disk usage of a topic, or when the disk of the directory PATH will be full.

    Without PATH the estimate is made from --rate and the size of records. It includes all overhead:
    61 bytes for the header of a batch, a few bytes for each record, and the entries of the offset,
    time and text indexes. It also includes expired records, because retention deletes whole
    segments at its next run and removes their files after file.delete.delay.ms. Add a tenth for
    bursts and other files.

    The recovery time is measured on this machine, with the data in the page cache. From a cold disk
    recovery takes as long as reading the bytes.

    With PATH, a data directory or a mount point, the command prints its topics, their growth (from
    the first retained record until now), their largest size under their retention, and when the
    disk will be full. It reads only the headers of batches.

    \b
    Examples:
        logfs plan --rate 5000/s --record 300 --batch 50
        logfs plan --rate 20MB/s --record 1KiB --batch 500 --compression 0.3 --partitions 12
        logfs plan --rate 200 --config retention.ms=2592000000 --disk 500GB
        logfs plan --rate 1000 --key 16 --keys 5M --config cleanup.policy=compact
        logfs plan /var/lib/logfs
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.cli import disk_forecast

    if (path is None) == (rate is None):
        raise click.UsageError("expected either --rate, or the PATH of a data directory")
    if path is not None:
        return _forecast(path, as_json=as_json)
    if rate is None or rate[0] <= 0:
        raise click.UsageError("--rate: expected more than nothing")
    needs = disk_forecast.needs(
        rate,
        disk_forecast.Records(
            int(record), None if key is None else int(key), int(batch), compression, packed
        ),
        partitions,
        None if keys is None else int(keys),
        dict(settings),
    )
    if as_json:
        click.echo(json.dumps(needs.as_json(disk, tail), indent=2))
    else:
        _show_needs(needs, disk, tail)
    return None


def _forecast(path: str, *, as_json: bool) -> None:
    from logfs.cli import disk_forecast

    with failures.about(path):
        forecast = disk_forecast.forecast(locate_local(path))
    if as_json:
        click.echo(json.dumps(forecast.as_json(), indent=2))
    else:
        _show_forecast(forecast)


def _show_needs(needs: "Needs", disk: float | None, tail_s: float) -> None:
    size = tables.format_bytes
    for title, rows in needs.sections(disk, tail_s):
        click.echo(f"{title}:")
        width = max(len(name) for name, _, _ in rows)
        for name, value, remark in rows:
            text = value if isinstance(value, str) else size(value)
            click.echo(f"  {name.ljust(width)}  {text.rjust(10)}  {remark}".rstrip())
        click.echo()
    for warning in needs.warnings():
        failures.warn(f"warning: {warning}")


def _show_forecast(forecast: "Forecast") -> None:
    columns = [
        tables.TableColumn("TOPIC"),
        *(
            tables.TableColumn(n, is_number=True)
            for n in ("RECORDS/S", "BYTES/S", "RECORD", "NOW", "AT MOST")
        ),
        tables.TableColumn("SINCE"),
    ]
    tables.show_table(columns, [_forecast_row(row) for row in forecast.rows])
    click.echo()
    free = tables.format_bytes(forecast.free_bytes)
    if forecast.full_in_s is None:
        click.echo(f"free: {free}; at these rates the disk is never full")
    else:
        when = format_duration(forecast.full_in_s)
        click.echo(f"free: {free}; at these rates the disk is full in {when}")


def _forecast_row(row: dict[str, Any]) -> list[str]:
    size = tables.format_bytes
    most = row["most_bytes"]
    record = row["bytes"] / row["records"] if row["records"] else 0
    return [
        row["topic"],
        format_number(row["records_per_s"]),
        size(int(row["bytes_per_s"])),
        size(int(record)),
        size(row["bytes"]),
        "no limit" if most is None else size(int(most)),
        format_duration(row["seconds"]) if row["records"] else "-",
    ]
