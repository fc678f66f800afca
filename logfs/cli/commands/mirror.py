"""``logfs mirror``: topics of a Kafka cluster as local topics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.parameters import DIRECTORY, cluster_options, config_file_option

if TYPE_CHECKING:
    from logfs.cli.mirror_jobs import MirrorJob


@click.command()
@click.argument("data", required=False, type=DIRECTORY)
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--from", "brokers", metavar="kafka://HOST:PORT,...", help="Brokers of the cluster.")
@click.option(
    "--start",
    default="earliest",
    metavar="earliest|latest|@FROM",
    show_default=True,
    help="Where a new mirror begins; FROM is a moment as in an address, such as -7d.",
)
@click.option(
    "--keep",
    default="source",
    metavar="source|SPAN|forever",
    show_default=True,
    help="Which records stay: those that the source keeps, those of a span such as 30d, or all.",
)
@click.option("--prefix", default="", metavar="TEXT", help="Begins the local name of each topic.")
@click.option(
    "--until",
    type=click.Choice(["now"]),
    help="End when everything is here that is at the source now.",
)
@click.option(
    "--on-recreate",
    type=click.Choice(["stop", "replace", "keep"]),
    default="stop",
    show_default=True,
    help="What to do when a topic was deleted at the source and made again.",
)
@click.option("--rack", metavar="RACK", help="client.rack: fetch from replicas in this rack.")
@cluster_options
@config_file_option("Mirror what the [[mirror]] tables of a file such as /etc/logfs/NAME.toml say.")
@click.option(
    "--promote",
    is_flag=True,
    help="End the mirror DATA/TOPIC: it becomes an ordinary topic, which takes appends.",
)
def mirror(
    data: str | None,
    topics: Sequence[str],
    *,
    config_file: str | None,
    promote: bool,
    **given: str | Sequence[str] | None,
) -> None:
    """Keep topics of a Kafka cluster as local topics, up to date and byte for byte.

    DATA is a data directory or a mount point. TOPIC is a name, or a regular expression between
    slashes; new topics that match are added. Batches are copied as they are, with their offsets,
    leader epochs, producers, transactions and timestamps. So everything that reads local topics
    reads those of the cluster, at the same offsets. A mirror takes no other appends.

    It runs until SIGTERM, and continues where it was at the next start; no other position is kept.
    It follows leaders, new partitions, and logs that the source truncates. What the source had
    deleted before it was fetched, and what was cut here because the source has lost it, is a loss:
    'logfs status' and .meta show it.

    With a daemon that serves DATA, records are visible as soon as they arrive. Without one, this
    command owns the directory, and 'logfs mount -o ro' may show it meanwhile.

    The exit status is 0; 1 after a loss, or if the cluster refused something; 75 if no broker
    answers.

    \b
    Examples:
        logfs mirror /var/lib/logfs orders --from kafka://b1:9092,b2:9092
        logfs mirror /mnt/logs '/web-.*/' --from kafka://b1 --start @-7d --keep 30d
        logfs mirror /srv/copy orders --from kafka://b1 --until now
        logfs mirror --promote /var/lib/logfs/orders
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.cli import mirror_jobs

    if promote:
        if data is None or topics or given["brokers"]:
            raise click.UsageError("--promote takes one path, DATA/TOPIC, and nothing else")
        with failures.about(data):
            mirror_jobs.promote(data)
    elif config_file is not None:
        if data is not None or given["brokers"]:
            raise click.UsageError("--config-file says what to mirror; leave DATA and --from out")
        with failures.about(config_file):
            found, jobs = mirror_jobs.read_jobs(config_file)
        failures.exit_with(mirror_jobs.run(found, jobs))
    elif data is None or not topics or not given["brokers"]:
        raise click.UsageError("expected DATA, at least one TOPIC, and --from kafka://HOST:PORT")
    else:
        failures.exit_with(mirror_jobs.run(data, [_job(topics, **given)]))  # type: ignore[arg-type]


def _job(  # noqa: PLR0913 - the options of the command
    topics: Sequence[str],
    *,
    brokers: str,
    start: str,
    keep: str,
    prefix: str,
    until: str | None,
    on_recreate: str,
    rack: str | None,
    options: Sequence[str],
    command_config: str | None,
) -> "MirrorJob":
    """Return what the options ask for."""
    from logfs.cli import mirror_jobs
    from logfs.cli.cluster_clients import properties_of

    with failures.about(command_config or brokers):
        return mirror_jobs.MirrorJob(
            topics=tuple(topics),
            brokers=brokers,
            properties=properties_of(command_config, options, rack),
            start=start,
            keep=keep,
            prefix=prefix,
            until_now=until is not None,
            on_recreate=on_recreate,
        )
