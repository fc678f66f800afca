"""Build the site: ``python -m docs [--only-read] [DIRECTORY]``."""

import sys
from pathlib import Path

import click

from docs.links import broken_links
from docs.staging import ROOT, stage


@click.command()
@click.option("--only-read", is_flag=True, help="Check the documents, and write no pages.")
@click.argument("directory", default=ROOT / "build/docs", type=click.Path(path_type=Path))
def main(*, only_read: bool, directory: Path) -> None:
    """Build the site below DIRECTORY, default: build/docs, and check its links."""
    from sphinx.cmd.build import build_main

    work = directory.resolve()
    source, site = work / "source", work / "site"
    stage(source)
    builder = ("-b", "dummy") if only_read else ("-b", "html", "-j", "auto")
    settings = ("-D", f"html_extra_path={source / 'extra'}", "-c", str(ROOT / "docs"))
    places = ("-d", str(work / "doctrees"), str(source), str(site))
    if status := build_main([*builder, "-q", "-W", "--keep-going", *settings, *places]):
        sys.exit(status)
    if only_read:
        return
    wrong = broken_links(site)
    for line in wrong:
        click.echo(line, err=True)
    if wrong:
        sys.exit(1)
    click.echo(site / "index.html")


if __name__ == "__main__":
    main()
