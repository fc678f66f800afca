"""``logfs metrics``: the metrics of a running daemon, as Prometheus text."""

import json

import click

from logfs.cli import failures


@click.command()
@click.argument("path", metavar="PATH")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object of the metrics that do not belong to single topics.",
)
def metrics(path: str, *, as_json: bool) -> None:
    """Print the metrics of the daemon that serves PATH, a data directory or a mount point.

    The text is that of the mount option metrics=ADDRESS for Prometheus. This command needs no
    address, but must run as the daemon's user or root, since it uses the control socket. A
    read-only mount has none.

    \b
    Examples:
        logfs metrics /var/lib/logfs
        logfs metrics /mnt/logs --json
    For the textfile collector of node_exporter, every minute from cron or a timer:
        logfs metrics /mnt/logs > /var/lib/prometheus/node-exporter/logfs.prom.$$ &&
            mv /var/lib/prometheus/node-exporter/logfs.prom.$$ \\
                /var/lib/prometheus/node-exporter/logfs.prom
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.owner import daemon_at

    with failures.about(path), daemon_at(path) as daemon:
        if as_json:
            click.echo(json.dumps(daemon.metrics(), indent=2))
        else:
            click.echo(daemon.prometheus().decode(), nl=False)
