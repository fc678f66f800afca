"""``python -m benchmarks [--peers] [ROW ...]``: run the questions and print the table."""

import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import click

from benchmarks.questions import PEER_QUESTIONS, QUESTIONS, Question
from benchmarks.report import describe_machine, print_table, write_json, write_plot
from benchmarks.results import Row
from benchmarks.runner import ROOT, Bench, say


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument(
    "names", metavar="[ROW]...", nargs=-1, type=click.Choice([*QUESTIONS, *PEER_QUESTIONS])
)
@click.option(
    "--peers",
    "is_beside_peers",
    is_flag=True,
    help="Measure beside a Kafka broker, its tools and kcat.",
)
@click.option("--quick", is_flag=True, help="Less data and fewer runs, about a minute.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every run there.")
@click.option("--plots", type=click.Path(path_type=Path), help="Draw into this directory.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the data goes, up to 6 GB, for as long as it takes; default: TMPDIR, if it is on "
    "the file system of the checkout.",
)
def main(
    names: Sequence[str],
    is_beside_peers: bool,
    quick: bool,
    json_file: Path | None,
    plots: Path | None,
    directory: Path | None,
) -> None:
    """Measure the budgets and print one table; ROW is one of its first column, default all.

    The exit status tells whether it could be measured, not whether the budgets are met.
    """
    signal.signal(signal.SIGTERM, _end)
    questions = PEER_QUESTIONS if is_beside_peers else QUESTIONS
    for name in names:
        if name not in questions:
            raise click.BadParameter(f"expected one of {', '.join(questions)}, not {name!r}")
    started_s = time.perf_counter()
    parent = directory or _default_directory()
    machine = describe_machine(parent)
    rows: list[Row] = []
    try:
        with tempfile.TemporaryDirectory(prefix="logfs-bench-", dir=parent) as root:
            for name in dict.fromkeys(names or questions):
                rows += _ask(questions[name], name, Path(root, name), quick=quick)
    finally:
        if rows:
            print_table(rows, machine, quick=quick)
        if json_file is not None:
            write_json(json_file, rows, machine, quick=quick)
    if plots is not None:
        plot = write_plot(plots, rows)
        say("no plot: matplotlib is not installed" if plot is None else f"plot: {plot}")
    say(f"took {time.perf_counter() - started_s:.0f} s")


def _ask(question: Question, name: str, directory: Path, *, quick: bool) -> list[Row]:
    started_s = time.perf_counter()
    directory.mkdir()
    with tempfile.TemporaryDirectory(dir=directory) as place, ExitStack() as cleanup:
        rows = list(question(Bench(Path(place), cleanup, quick)))
    say(f"{name}: {time.perf_counter() - started_s:.0f} s")
    return rows


def _default_directory() -> Path:
    """Return a directory on the file system of the checkout: /tmp may be memory."""
    parent = Path(tempfile.gettempdir())
    if parent.stat().st_dev == ROOT.stat().st_dev:
        return parent
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    return build


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
