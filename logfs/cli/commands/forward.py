"""``logfs forward``: local topics to a Kafka cluster, exactly once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from logfs.cli import failures
from logfs.cli.parameters import cluster_options, config_file_option

if TYPE_CHECKING:
    from logfs.cli.forward_jobs import ForwardJob

_CODECS = ("producer", "none", "gzip", "snappy", "lz4", "zstd")


@click.command()
@click.argument("path", required=False, metavar="[DATA/TOPIC[/PARTITION]]")
@click.option("--to", metavar="kafka://HOST:PORT,...[/TOPIC]", help="Brokers, and the topic there.")
@click.option(
    "--partitions",
    type=click.Choice(["same", "key"]),
    default="same",
    show_default=True,
    help="Each partition to the one with its number, or each record by its key.",
)
@click.option(
    "--timestamps",
    type=click.Choice(["keep", "now"]),
    default="keep",
    show_default=True,
    help="Which timestamps records have there: their own, or when they are sent.",
)
@click.option(
    "--compression-type",
    type=click.Choice(_CODECS),
    default="producer",
    show_default=True,
    help="Codec of the batches; producer: the one that they have here.",
)
@click.option(
    "--hold",
    metavar="SIZE|all|none",
    default="all",
    show_default=True,
    help="How much retention keeps until it is forwarded.",
)
@click.option("--from-start", "start", flag_value="start", help="Begin with the first record.")
@click.option("--from-end", "start", flag_value="end", help="Begin with what is appended next.")
@click.option(
    "--resume-at",
    metavar="OFFSET|noted",
    help="Continue there, as another producer; noted: where the note says it was.",
)
@click.option(
    "--until",
    type=click.Choice(["now"]),
    help="End when everything that is here now is acknowledged.",
)
@click.option(
    "--skip-too-large",
    is_flag=True,
    help="Leave out records that the cluster does not take for their size; each is a loss.",
)
@cluster_options
@config_file_option(
    "Forward what the [[forward]] tables of a file such as /etc/logfs/NAME.toml say."
)
def forward(path: str | None, *, config_file: str | None, **given: object) -> None:
    """Send what is appended to a topic to a Kafka cluster, exactly once.

    Keys, headers, timestamps, nulls and the order in each partition stay. Every consumer gets each
    record once, over crashes and restarts of this command, of brokers and of the machine: the
    cluster is asked how far it has got. Only committed records are sent, and whole lines.

    It runs until SIGTERM, and continues where it was at the next start. A file in the partition
    directory says where that is. Retention and 'logfs trim' keep the records that were not
    acknowledged yet, so the log is a durable buffer while the cluster is away. --hold limits that.

    What the cluster refuses ends the partition with the offset and what to do. It works beside
    everything that writes the directory: a daemon, programs, or nothing.

    The exit status is 0; 1 after a loss or a refusal; 75 if no broker answers.

    \b
    Examples:
        logfs forward /var/lib/logfs/web --to kafka://b1:9092,b2:9092
        logfs forward /mnt/logs/web/0 --to kafka://b1/site-web --hold 50GB
        logfs forward /srv/copy/orders --to kafka://b1 --partitions key --until now
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.cli import forward_jobs

    if config_file is not None:
        if path is not None or given["to"]:
            raise click.UsageError("--config-file says what to forward; leave PATH and --to out")
        with failures.about(config_file):
            jobs = forward_jobs.read_jobs(config_file)
    elif path is None or not given["to"]:
        raise click.UsageError("expected DATA/TOPIC, and --to kafka://HOST:PORT")
    elif given["start"] and given["resume_at"]:
        raise click.UsageError(
            "--resume-at says where to begin; leave --from-start, --from-end out"
        )
    else:
        jobs = [_job(path, **given)]  # type: ignore[arg-type] # click has checked them
    failures.exit_with(forward_jobs.run(jobs))


def _job(
    path: str,
    *,
    to: str,
    options: Sequence[str],
    command_config: str | None,
    until: str | None,
    **texts: str,
) -> "ForwardJob":
    from logfs.cli.cluster_clients import properties_of
    from logfs.cli.forward_jobs import ForwardJob

    with failures.about(command_config or to):
        properties = properties_of(command_config, options)
    return ForwardJob(path, to, properties, until_now=until is not None, **texts)  # type: ignore[arg-type]
