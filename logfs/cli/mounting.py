"""``logfs mount`` and ``logfs umount``."""

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from logfs.cli import failures, logs
from logfs.cli.background import leave_terminal
from logfs.cli.parameters import settings_option
from logfs.errors import NoDataDirectoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from logfs.fs.options import MountOptions

logger = logging.getLogger(__name__)


class _MountCommand(click.Command):
    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the table of mount options, which stands in the module that reads them."""
        from logfs.fs import options

        text = (options.__doc__ or "").partition("\n\n")[2]
        table, _, rest = text.partition("\n\n")
        formatter.write_paragraph()
        formatter.write("Options for -o, separated by commas:\n\n")
        for line in table.splitlines():
            formatter.write(line.removeprefix("  ") + "\n")
        formatter.write("\n")
        formatter.write_text(" ".join(rest.split()).replace("``", ""))


@click.command(cls=_MountCommand)
@click.argument("data", metavar="DATA")
@click.argument("mountpoint", metavar="MOUNTPOINT")
@click.option("-o", "options", metavar="OPTIONS", multiple=True, help="Mount options; see below.")
@settings_option("A setting of a Kafka broker: num.partitions=3, log.retention.hours=24.")
@click.option("--read-only", is_flag=True, help="Write nothing; the same as -o ro.")
@click.option(
    "--background",
    is_flag=True,
    help="Return once the mount answers; if it fails, say why and exit with 1.",
)
@click.option(
    "--log-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Log to the end of this file, not to stderr (--background: syslog).",
)
def mount(  # noqa: PLR0913 - one argument for each parameter
    data: str,
    mountpoint: str,
    options: tuple[str, ...],
    settings: tuple[tuple[str, str], ...],
    *,
    read_only: bool,
    background: bool,
    log_file: str | None,
) -> None:
    """Mount the data directory DATA at MOUNTPOINT and serve it.

    DATA is made if only its last part is missing. It must hold Kafka-format logs, or nothing yet.
    MOUNTPOINT is an existing directory; the mount of a daemon that died there is taken away first.

    The command stays in the foreground until Ctrl-C, SIGTERM or 'logfs umount', and then stops
    cleanly: open files end, everything is flushed.

    \b
    Examples:
        logfs mount /var/lib/logfs /mnt/logs
        logfs mount /var/lib/logfs /mnt/logs --background --log-file /var/log/logfs.log
        logfs mount /var/lib/logfs /mnt/logs -o allow_other,umask=027 --config num.partitions=3
    """  # noqa: D301 - click's mark for text it does not fill
    chosen = _options(options, settings, read_only=read_only)
    data, point = os.path.realpath(data), os.path.realpath(mountpoint)
    _prepare_data(data, point, read_only=chosen.read_only)
    log_file = None if log_file is None else os.path.realpath(log_file)
    ready = leave_terminal() if background else None
    if log_file is not None:
        logs.log_to_file(log_file)
    elif background:
        logs.log_to_syslog()
    else:
        logs.log_to_stderr()
    failures.give_up(_serve(data, point, chosen, ready))


@click.command()
@click.argument("mountpoint", metavar="MOUNTPOINT")
def umount(mountpoint: str) -> None:
    """Unmount what logfs has mounted at MOUNTPOINT.

    Returns when the daemon has written everything and has closed the data directory. A mount whose
    daemon has died is taken away. A mount that is in use stays: close the files, leave the
    directories below it, and try again ('fuser -m MOUNTPOINT' shows who uses it).
    """
    from logfs.fs.mount import unmount

    unmount(mountpoint)


def _options(
    texts: tuple[str, ...], settings: tuple[tuple[str, str], ...], *, read_only: bool
) -> "MountOptions":
    from logfs.config import StoreConfig
    from logfs.fs.options import parse_options

    options = parse_options(texts)
    store = StoreConfig.from_properties(options.store.overrides() | dict(settings))
    return replace(options, store=store, read_only=options.read_only or read_only)


def _prepare_data(data: str, point: str, *, read_only: bool) -> None:
    """Make the data directory if it is missing; refuse what was probably not meant.

    Raises:
        NoDataDirectoryError: A directory with files but no logs; or the arguments are reversed.
        OSError: It cannot be made or read.
    """
    from logfs.library import places
    from logfs.machine import mountpoints

    kind = places.kind_of(data)
    if kind is places.Kind.OTHER:
        raise NoDataDirectoryError(
            f"{data}: holds files but no logs; expected a data directory or an empty directory"
        )
    # What is mounted there already may be dead, and is not what the question is about.
    if mountpoints.mount_at(point) is None and places.kind_of(point) is places.Kind.DATA:
        raise NoDataDirectoryError(
            f"{point}: holds logs, which a mount would hide; "
            "expected 'logfs mount DATA MOUNTPOINT', in this order"
        )
    if kind is places.Kind.MISSING and not read_only:
        try:
            Path(data).mkdir()
        except FileNotFoundError:
            raise NoDataDirectoryError(
                f"{data}: no such directory; it would be made if only its last part were missing"
            ) from None


def _serve(
    data: str, point: str, options: "MountOptions", ready: "Callable[[], None] | None"
) -> int:
    from logfs.fs.mount import run_mount

    def progress(text: str) -> None:
        logger.info("%s", text)
        if ready is not None and sys.stderr.isatty():
            failures.warn(text)

    try:
        return run_mount(data, point, options, ready=ready, progress=progress)
    except Exception as error:
        if ready is not None:  # the terminal may be gone
            text = failures.explain(error)
            logger.exception("%s", text, exc_info=logger.isEnabledFor(logging.DEBUG))
        raise
