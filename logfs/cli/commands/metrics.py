"""``logfs metrics``: what a running daemon counts, as Prometheus text."""

import json

import click

from logfs.cli import failures
from logfs.library.places import locate


@click.command()
@click.argument("path", metavar="PATH")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print those that are not of single topics or partitions as a JSON object.",
)
def metrics(path: str, *, as_json: bool) -> None:
    """Print the metrics of the daemon that serves PATH, a data directory or a mount point.

    The text is the one that Prometheus reads where the mount option metrics=PORT says so. This
    needs no port, but the daemon's own user or root, as everything that goes through its control
    socket; a read-only mount has none.

    \b
    Examples:
        logfs metrics /var/lib/logfs
        logfs metrics /mnt/logs --json
    For the textfile collector of node_exporter, every minute from cron or a timer:
        logfs metrics /mnt/logs > /var/lib/prometheus/node-exporter/logfs.prom.$$ &&
            mv /var/lib/prometheus/node-exporter/logfs.prom.$$ \\
                /var/lib/prometheus/node-exporter/logfs.prom
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.errors import ControlError, UnknownNameError
    from logfs.library.owner import daemon_of

    with failures.about(path):
        place = locate(path)
        if place.address:
            raise UnknownNameError("expected a data directory or a mount point, no name in it")
        daemon = daemon_of(place)
        if daemon is None:
            raise ControlError(
                "nobody serves it who can be asked: expected a mount that is not read-only"
            )
        with daemon:
            if as_json:
                click.echo(json.dumps(daemon.metrics(), indent=2))
            else:
                click.echo(daemon.prometheus().decode(), nl=False)
