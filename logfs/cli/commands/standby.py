"""``logfs standby``."""

import click

from logfs.cli import failures
from logfs.cli.commands.mount import mount
from logfs.cli.parameters import DIRECTORY, store_options, store_settings


@click.command()
@click.argument("url")
@click.argument("data", type=DIRECTORY)
@click.argument("mountpoint", type=DIRECTORY)
@store_options
@click.option("-o", "options", metavar="OPTIONS", multiple=True, help="Options of 'logfs mount'.")
@click.option("--background", is_flag=True, help="Return when the mount answers.")
@click.option(
    "--log-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Append the log to this file; default: stderr, with --background syslog.",
)
@click.pass_context
def standby(  # noqa: PLR0913 - one argument for each parameter
    context: click.Context,
    url: str,
    data: str,
    mountpoint: str,
    *,
    endpoint: str | None,
    region: str | None,
    settings: tuple[tuple[str, str], ...],
    options: tuple[str, ...],
    background: bool,
    log_file: str | None,
) -> None:
    """Keep DATA ready to continue the logs of the store URL, and serve it at MOUNTPOINT.

    DATA is a missing or an empty directory, or one that was a standby of this store before. It
    follows the journal of the store, so the owner needs freshness.ms. The mount is read-only, and
    shows a record about half a second after it was sent. Segments stay in the store until a
    program reads them.

    'logfs promote URL DATA' makes it the owner, after the machine that wrote the store was lost.
    With --background or under systemd the mount stays: programs keep their open files, and may then
    write. 'logfs mount DATA MOUNTPOINT' continues a standby as well, and serves it as the owner
    after its promotion: it is the command for a unit.

    \b
    Examples:
        logfs standby s3://backups/logs /var/lib/logfs /mnt/logs --background
        logfs promote s3://backups/logs /var/lib/logfs
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.library.promote import make_standby

    with failures.about(url):
        make_standby(url, data, store_settings(endpoint, region, settings))
    context.invoke(
        mount,
        data=data,
        mountpoint=mountpoint,
        options=options,
        settings=(),
        config_file=None,
        read_only=False,
        background=background,
        log_file=log_file,
        log_format="auto",
        log_level=None,
    )
