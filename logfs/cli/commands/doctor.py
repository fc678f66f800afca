"""``logfs doctor``: one file for a bug report."""

import json
from collections.abc import Iterator
from typing import TextIO

import click

from logfs.cli import failures


@click.command()
@click.argument("path", default=".")
@click.option(
    "-o",
    "--output",
    type=click.File("w", lazy=False),
    default="-",
    metavar="FILE",
    help="Write to FILE; default: the standard output.",
)
def doctor(path: str, *, output: TextIO) -> None:
    """Collect what a bug report about a data directory needs.

    PATH is a data directory or a mount point (default: the current directory). The report has the
    versions of logfs and of the packages it uses, the kernel and its settings, mounts, the state
    that 'logfs status --json' prints, the daemon and the last lines of its log, settings, and the
    names and sizes of all files. What this user may not read is named in it.

    It contains no keys, values or headers of records. Passwords in settings and URLs are replaced.
    Names of topics, files and machines are in it: read it before you send it.

    \b
    Examples:
        logfs doctor /mnt/logs > report.txt
        sudo logfs doctor /var/lib/logfs --output report.txt
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.cli.diagnosis import report, sections_of
    from logfs.library.owner import data_directory
    from logfs.library.places import locate_local
    from logfs.library.status import look

    with failures.about(path):
        place = locate_local(path)._replace(address=())
        data = data_directory(place)

        def status() -> Iterator[str]:
            yield json.dumps(look(place, 0).as_json(), indent=1, ensure_ascii=False)

        for part in report(sections_of(place, data, status)):
            click.echo(part, file=output, nl=False)
