"""``logfs mount`` and ``logfs umount``."""

import gc
import logging
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from logfs.cli import failures
from logfs.cli.mount_file import MountFile, read_mount_file
from logfs.cli.parameters import DIRECTORY, config_file_option, settings_option
from logfs.cli.terminal import logs
from logfs.cli.terminal.background import is_held, ready_of_held, run_held
from logfs.errors import BackupError, InvalidConfigError, NoDataDirectoryError
from logfs.machine.disks import has_logs, is_url, resolve_root
from logfs.machine.storeplace import StorePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logfs.fs.options import MountOptions
    from logfs.fs.session.supervision import Supervisor

logger = logging.getLogger(__name__)

_GC_THRESHOLD = 1_000_000
"""Until the mount is served; then ``logfs.fs.session.mount`` sets its own."""


class _MountCommand(click.Command):
    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the table of mount options, which is in the module that reads them."""
        from logfs.fs import options

        text = (options.__doc__ or "").partition("\n\n")[2]
        table, _, rest = text.partition("\n\n")
        formatter.write_paragraph()
        formatter.write("Options for -o, separated by commas:\n\n")
        for line in table.splitlines():
            formatter.write(line.removeprefix("  ") + "\n")
        formatter.write("\n")
        formatter.write_text(" ".join(rest.split()).replace("``", ""))


class MountRequest(NamedTuple):
    """What is to be mounted where.

    Attributes:
        data: The data directory, or the URL of an object store.
        point: The mount point; both without symbolic links.
        options: Everything else.
    """

    data: str
    point: str
    options: "MountOptions"


@click.command(cls=_MountCommand)
@click.argument("data", metavar="[DATA]", required=False, type=DIRECTORY)
@click.argument("mountpoint", metavar="[MOUNTPOINT]", required=False, type=DIRECTORY)
@click.option("-o", "options", metavar="OPTIONS", multiple=True, help="Mount options; see below.")
@settings_option("Set a setting of a Kafka broker: num.partitions=3, log.retention.hours=24.")
@config_file_option(
    "Read data, mountpoint, options and a table [kafka] from this TOML file; options override it."
)
@click.option("--read-only", is_flag=True, help="Write nothing; the same as -o ro.")
@click.option(
    "--background",
    is_flag=True,
    help="Return when the mount answers; if it fails, print the reason and exit with 1.",
)
@click.option(
    "--log-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Append the log to this file; default: stderr, with --background syslog.",
)
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default="auto",
    help="Log lines of text, JSON objects, or lines that start with a level for the journal; auto "
    "(default): journald where stderr is the journal (as in a systemd unit), else text.",
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS),
    help="Log messages of this level and more important ones; default: info.",
)
def mount(  # noqa: PLR0913 - one argument for each parameter
    data: str | None,
    mountpoint: str | None,
    options: tuple[str, ...],
    settings: tuple[tuple[str, str], ...],
    *,
    config_file: str | None,
    read_only: bool,
    background: bool,
    log_file: str | None,
    log_format: str,
    log_level: str | None,
) -> None:
    """Mount the data directory DATA at MOUNTPOINT and serve it.

    DATA is an existing directory that is empty or contains Kafka-format logs. MOUNTPOINT is an
    existing directory; the mount of a daemon that died there is removed first. The file of
    --config-file may name both.

    DATA can also be the URL of an object store to which logfs copies logs: s3://BUCKET/PREFIX,
    gs:// or az://, or file:///DIRECTORY for a copy of one. It is mounted with -o ro. Credentials
    come from the environment, the files of AWS's tools or the machine.

    The command stays in the foreground until Ctrl-C, SIGTERM, 'logfs umount' or the end of its
    terminal. Then it ends open files, flushes everything and stops. SIGHUP reopens the file of
    --log-file. Under systemd (Type=notify) it reports when the mount answers and, with WatchdogSec,
    that it is alive.

    With --background and under systemd the mount outlives the daemon. After a crash, a restart
    (SIGUSR2) or 'logfs reload' another daemon continues it, and programs keep their open files.

    \b
    Examples:
        logfs mount /var/lib/logfs /mnt/logs
        logfs mount /var/lib/logfs /mnt/logs --background --log-file /var/log/logfs.log
        logfs mount /var/lib/logfs /mnt/logs -o allow_other,umask=027 --config num.partitions=3
        logfs mount --config-file /etc/logfs/web.toml
        logfs mount s3://backups/logs /mnt/logs -o ro
        mount -t logfs -o allow_other /var/lib/logfs /mnt/logs     # where logfs is installed
    """  # noqa: D301 - click's mark for text it does not fill
    texts = (*options, "ro") if read_only else options
    request = make_mount_request(data, mountpoint, texts, settings, config_file)
    become(request.options.run_as)
    log = logs.LogOutput(log_file, log_format, log_level)
    if not background:
        serve(request, log=log)
        return
    arguments = ["mount", "--background", *_all_of("-o", options)]
    arguments += _all_of("--config", [f"{key}={value}" for key, value in settings])
    arguments += ["--read-only"] if read_only else []
    arguments += ["--log-format", log_format]
    arguments += ["--log-level", log_level] if log_level is not None else []
    files = (("--config-file", config_file), ("--log-file", log_file))
    for name, path in files:
        arguments += [name, os.path.realpath(path)] if path is not None else []
    if data is not None:
        arguments += ["--", request.data]
        arguments += [request.point] if mountpoint is not None else []
    serve_in_background(request, [*program("logfs"), *arguments], log)


@click.command()
@click.argument("mountpoint", metavar="[MOUNTPOINT]", required=False, type=DIRECTORY)
@config_file_option("Take the mount point from this file.")
@click.option(
    "--lazy",
    is_flag=True,
    help="Unmount also if it is in use; the daemon ends when no program uses it any more.",
)
@click.option("--dead", is_flag=True, help="Unmount only if the daemon has died; else do nothing.")
def umount(mountpoint: str | None, *, config_file: str | None, lazy: bool, dead: bool) -> None:
    """Unmount what logfs has mounted at MOUNTPOINT.

    The command returns when the daemon has written everything and closed the data directory. The
    mount of a daemon that died is removed. A mount in use remains, and the error names the
    processes that use it: end them, or use --lazy. umount(8) does not wait for the daemon and names
    no processes.

    \b
    Examples:
        logfs umount /mnt/logs
        logfs umount --lazy /mnt/logs       # programs still read; new opens find nothing
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.fs.session import unmounting

    found = MountFile() if config_file is None else read_mount_file(config_file)
    point = mountpoint or found.mountpoint
    if point is None:
        raise click.UsageError("Missing argument 'MOUNTPOINT'.")
    if dead:
        unmounting.unmount_dead(point)
    else:
        unmounting.unmount(point, lazy=lazy)


def make_mount_request(
    data: str | None,
    mountpoint: str | None,
    texts: "Sequence[str]",
    settings: "Sequence[tuple[str, str]]" = (),
    config_file: str | None = None,
    *,
    is_sloppy: bool = False,
) -> MountRequest:
    """Combine the command line and the configuration file.

    Args:
        data: The data directory; None for that of the file.
        mountpoint: The mount point; None for that of the file.
        texts: What followed each -o.
        settings: Kafka's keys and their values.
        config_file: The file; None for that of the option ``config``, if there is one.
        is_sloppy: Ignore unknown options.

    Raises:
        click.UsageError: DATA or MOUNTPOINT is given neither here nor in the file.
        LogfsError, OSError: An option is not valid; the file cannot be read.
    """
    from logfs.config import StoreConfig
    from logfs.fs.options import parse_options
    from logfs.machine import mountpoints

    given = parse_options(texts, is_sloppy=is_sloppy)
    path = config_file or given.config_file
    found = MountFile() if path is None else read_mount_file(path)
    if found.options:
        given = parse_options([*found.options, *texts], is_sloppy=is_sloppy)
    for option in given.unknown:
        failures.warn(f"mount option {option}: unknown, ignored")
    data, mountpoint = data or found.data, mountpoint or found.mountpoint
    if not data or not mountpoint:
        name = "MOUNTPOINT" if data else "DATA"
        where = "" if path is None else f" {path} has no {name.lower()} either."
        raise click.UsageError(f"Missing argument '{name}'.{where}")
    # -o and --config take precedence over [kafka].
    overrides = {**found.settings, **given.store.overrides(), **dict(settings)}
    options = replace(given, store=StoreConfig.from_properties(overrides))
    return MountRequest(resolve_root(data), mountpoints.resolve_point(mountpoint), options)


def become(user: str | None) -> None:
    """Continue as another user, with the user's groups and home; None: as before.

    Raises:
        InvalidConfigError: There is no such user, or this process may not change its user.
    """
    if user is None:
        return
    import pwd

    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except KeyError:
        raise InvalidConfigError(f"mount option setuid={user}: there is no such user") from None
    if entry.pw_uid == os.geteuid():
        return
    try:
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except PermissionError:
        raise InvalidConfigError(
            f"mount option setuid={user}: only root can become another user"
        ) from None
    os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)


def check(request: MountRequest) -> None:
    """Refuse arguments that are probably a mistake.

    Raises:
        NoDataDirectoryError: A directory with files but no logs; or the arguments are reversed.
        OSError: It cannot be read.
    """
    from logfs.library import places
    from logfs.machine import mountpoints

    data, point, _ = request
    options = request.options
    if is_url(data):
        place = StorePlace(options.endpoint, options.region)
        if not options.fresh and not has_logs(data, place):  # a journal may be all that is there
            raise NoDataDirectoryError(
                f"{data}: there are no logs of logfs in this store. Check bucket and prefix"
            )
    elif places.kind_of(data) is places.DirectoryKind.OTHER:
        raise NoDataDirectoryError(
            f"{data}: holds files but no logs; expected a data directory or an empty directory"
        )
    # What is mounted there already may be dead, and is not what the question is about.
    if mountpoints.mount_at(point) is None and places.kind_of(point) is places.DirectoryKind.DATA:
        raise NoDataDirectoryError(
            f"{point}: holds logs, which a mount would hide; "
            "expected 'logfs mount DATA MOUNTPOINT', in this order"
        )


def _all_of(name: str, values: "Sequence[str]") -> list[str]:
    return [text for value in values for text in (name, value)]


def program(module: str) -> list[str]:
    """Return how this program is started again: its own path, or a module of Python.

    The path may lead to another version by then.
    """
    path = os.path.abspath(sys.argv[0])  # noqa: PTH100 - links are kept
    is_script = os.access(path, os.X_OK) and not path.endswith(".py")
    return [path] if is_script else [sys.executable, "-m", module]


def serve_in_background(
    request: MountRequest, command: "Sequence[str]", log: logs.LogOutput
) -> None:
    """Mount and serve; return, in the process that called, once the mount answers.

    Args:
        request: What, where and how.
        command: Runs this again, from another working directory.
        log: See ``serve``; by default to syslog.
    """
    if not is_held():
        if not is_url(request.data):  # a fork must not come after a request to a store
            check(request)
        _check_data(request)
        run_held(command, log.file)
    again = list(command), dict(os.environ)
    serve(request, ready=ready_of_held(), log=log, again=again)


def serve(
    request: MountRequest,
    *,
    ready: "Callable[[], None] | None" = None,
    log: logs.LogOutput = logs.STDERR,
    again: tuple[list[str], dict[str, str]] | None = None,
) -> None:
    """Mount and serve; the status of the command says how it ended.

    Args:
        request: What, where and how.
        ready: Called once the mount answers, in the background; None in the foreground.
        log: Where to log, what and how; by default to stderr, or syslog in the background.
        again: The command and the environment of a successor; by default those of this process.
    """
    check(request)
    _check_data(request)
    again = again or ([*program("logfs"), *sys.argv[1:]], dict(os.environ))
    supervisor = _load(request, again)
    log_file = None if log.file is None else os.path.realpath(log.file)
    logs.set_level(log.level)
    if log_file is not None:
        logs.log_to_file(log_file, log.form)
    elif ready is not None:
        logs.log_to_syslog(log.form)
    else:
        logs.log_to_stderr(log.form)
    failures.exit_with(_serve(request, ready, supervisor))


def _check_data(request: MountRequest) -> None:
    # A mistyped name must not be mounted as an empty directory.
    if not is_url(request.data) and not Path(request.data).exists():
        raise NoDataDirectoryError(
            f"{request.data}: no such directory; 'mkdir {shlex.quote(request.data)}' makes an "
            "empty one"
        )


def _load(request: MountRequest, again: tuple[list[str], dict[str, str]]) -> "Supervisor":
    """Import everything; a successor then waits until its predecessor has stopped."""
    # Modules and the store stay: looking for garbage in them takes a fifth of a start.
    gc.set_threshold(_GC_THRESHOLD)
    from logfs.fs.kernel import hooks

    hooks.load()
    from logfs.fs.handover.successor import Again, is_successor, take_turn
    from logfs.fs.session.mount import preload
    from logfs.fs.session.supervision import Supervisor

    supervisor = Supervisor.from_environment(os.environ)
    supervisor.again = Again(*again)
    if is_successor(os.environ):
        supervisor.preloaded = preload(request.data, request.options)
    supervisor.predecessor = take_turn(os.environ) or supervisor.predecessor
    return supervisor


def _serve(
    request: MountRequest,
    ready: "Callable[[], None] | None",
    supervisor: "Supervisor",
) -> int:
    from logfs.fs.session.mount import run_mount

    def progress(text: str) -> None:
        logger.info("%s", text)
        if ready is not None and sys.stderr.isatty():
            failures.warn(text)

    try:
        try:
            return run_mount(*request, ready=ready, progress=progress, supervisor=supervisor)
        except BackupError as error:
            raise failures.AboutError(request.data, error) from error
    except Exception as error:
        if ready is not None:  # the terminal may be gone
            text = failures.explain(error)
            logger.exception("%s", text, exc_info=logger.isEnabledFor(logging.DEBUG))
        raise
