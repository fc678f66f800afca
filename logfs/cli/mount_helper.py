"""``mount.logfs`` and ``mount.fuse.logfs``, which mount(8), fstab and systemd call.

What a helper gets and answers is mount(8)'s: ``SOURCE TARGET [-sfnv] [-o OPTIONS]``, and the exit
statuses of its table. It is root at boot, with next to nothing in the environment, and has to
return when the mount answers, not before.

Source: mount(8), "EXTERNAL HELPERS" and "EXIT STATUS"; libmount's exec_helper.
"""

import contextlib
import os
import pwd
import sys
from collections.abc import Sequence

import click

from logfs import __version__
from logfs.cli import failures
from logfs.cli.main import CommandState
from logfs.cli.terminal import logs

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WRONG_USE = 1
_INTERRUPTED = 8
_FAILED = 32


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.argument("source", metavar="DATA")
@click.argument("target", metavar="MOUNTPOINT")
@click.option("-o", "options", metavar="OPTIONS", multiple=True, help="See logfs-mount(1).")
@click.option("-s", "is_sloppy", is_flag=True, help="Ignore unknown options.")
@click.option("-f", "is_fake", is_flag=True, help="Check everything, but do not mount.")
@click.option("-v", "is_verbose", is_flag=True, help="Print what is done.")
@click.option("-r", "is_read_only", is_flag=True, help="The same as -o ro.")
@click.option("-n", "is_unnoted", is_flag=True, help="No effect: the kernel keeps /etc/mtab.")
@click.option("-w", "is_writable", is_flag=True, help="No effect: it is the default.")
@click.option("-t", "kind", metavar="TYPE", help="No effect: there is one type only.")
def mount(  # noqa: PLR0913 - one argument for each parameter
    source: str,
    target: str,
    options: tuple[str, ...],
    *,
    is_sloppy: bool,
    is_fake: bool,
    is_verbose: bool,
    is_read_only: bool,
    is_unnoted: bool,
    is_writable: bool,
    kind: str | None,
) -> None:
    """Mount the data directory DATA at MOUNTPOINT, on behalf of mount.

    'mount -t logfs' and lines of /etc/fstab run this program. It returns when the mount answers;
    the daemon logs to syslog. The option config=FILE reads more options from FILE.

    \b
    Examples:
        mount -t logfs -o allow_other /var/lib/logfs /mnt/logs
        mount -t fuse.logfs -o ro,config=/etc/logfs/web.toml /var/lib/logfs /mnt/logs

    \b
    In /etc/fstab:
        /var/lib/logfs /mnt/logs logfs allow_other,umask=027,nofail 0 0
        /var/lib/logfs /mnt/logs logfs noauto,x-systemd.automount,setuid=logfs,allow_other 0 0
    """  # noqa: D301 - click's mark for text it does not fill
    del is_unnoted, is_writable, kind
    from logfs.cli.commands.mount import (
        become,
        check,
        make_mount_request,
        program,
        serve_in_background,
    )

    texts = (*options, "ro") if is_read_only else options
    request = make_mount_request(source, target, texts, is_sloppy=is_sloppy)
    become(request.options.run_as)
    if is_fake:
        check(request)
    if is_verbose:
        would = "would be" if is_fake else "is to be"
        failures.warn(f"{request.data} {would} mounted at {request.point}")
    if not is_fake:
        again = [*program("logfs.cli.mount_helper"), request.data, request.point]
        again += ["-s"] if is_sloppy else []
        again += [text for words in texts for text in ("-o", words)]
        serve_in_background(request, again, logs.STDERR)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the helper and return its exit status, one of mount(8)'s.

    Args:
        arguments: Those after the name of the program; None for those of the process.
    """
    os.environ.setdefault("PATH", _PATH)
    with contextlib.suppress(KeyError):  # credentials of stores are below it
        os.environ.setdefault("HOME", pwd.getpwuid(os.geteuid()).pw_dir)
    logs.show_warnings()
    try:
        status = mount.main(
            arguments, prog_name="mount.logfs", standalone_mode=False, obj=CommandState()
        )
    except click.UsageError as error:
        error.show()
        return _WRONG_USE
    except click.Abort:  # Ctrl-C, says click
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - this is where every error ends
        failures.report(error)
        return _FAILED
    return _FAILED if status else 0


if __name__ == "__main__":
    sys.exit(main())
