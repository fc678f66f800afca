"""``python -m benchmarks [--peers] [ROW ...]``: run the questions and print the table."""

import compileall
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType

import click

from benchmarks.questions import PEER_QUESTIONS, QUESTIONS, Question
from benchmarks.report import describe_machine, print_table
from benchmarks.results import Row
from benchmarks.runner import ROOT, Bench, say
from benchmarks.runs import RUNS, Run, path_of, write_run


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
@click.option(
    "--quick", "size", flag_value="quick", help="Less data and fewer runs, about a minute."
)
@click.option(
    "--tiny", "size", flag_value="tiny", help="As little as possible: can everything be measured?"
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every run there.")
@click.option(
    "--record",
    "is_recorded",
    is_flag=True,
    help="Keep the run in benchmarks/runs, and show it in the README: plot, date and machine.",
)
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
    size: str | None,
    json_file: Path | None,
    is_recorded: bool,
    directory: Path | None,
) -> None:
    """Measure the budgets and print one table; ROW is one of its first column, default all.

    The exit status tells whether it could be measured, not whether the budgets are met. A question
    that fails is named, and the others are asked all the same.
    """
    signal.signal(signal.SIGTERM, _end)
    questions = PEER_QUESTIONS if is_beside_peers else QUESTIONS
    for name in names:
        if name not in questions:
            raise click.BadParameter(f"expected one of {', '.join(questions)}, not {name!r}")
    if is_recorded and (names or size == "tiny"):
        raise click.UsageError("--record keeps whole runs: leave ROW out, and --tiny")
    # Installations have bytecode. Here PYTHONDONTWRITEBYTECODE may keep Python from writing it.
    compileall.compile_dir(str(ROOT / "logfs"), quiet=1)
    wanted = {name: questions[name] for name in dict.fromkeys(names or questions)}
    sized = partial(Bench, quick=size is not None, tiny=size == "tiny")
    run = _measure(wanted, directory or _default_directory(), is_beside_peers, sized)
    if json_file is not None:
        write_run(json_file, run)
    if is_recorded:
        _record(run)
    for name, text in run.failed.items():
        say(f"{name} could not be measured: {text}")
    say(f"took {sum(run.seconds.values()):.0f} s")
    sys.exit(1 if run.failed else 0)


def _measure(
    questions: Mapping[str, Question],
    parent: Path,
    is_beside_peers: bool,
    sized: Callable[[Path, ExitStack], Bench],
) -> Run:
    machine, quick = describe_machine(parent), sized(parent, ExitStack()).quick
    date = time.strftime("%Y-%m-%d", time.gmtime())
    rows: list[Row] = []
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="logfs-bench-", dir=parent) as root:
            for name, question in questions.items():
                started_s = time.perf_counter()
                try:
                    rows += _ask(question, Path(root, name), sized)
                except Exception as error:  # noqa: BLE001 - minutes of others would be lost
                    traceback.print_exc()
                    failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
                seconds[name] = round(time.perf_counter() - started_s, 1)
                say(f"{name}: {seconds[name]:.0f} s")
    finally:
        if rows:
            print_table(rows, machine, quick=quick)
    return Run(
        date=date,
        machine=machine,
        is_beside_peers=is_beside_peers,
        is_quick=quick,
        rows=rows,
        seconds=seconds,
        failed=failed,
    )


def _record(run: Run) -> None:
    from benchmarks.publish import publish  # it needs matplotlib, which other runs do not

    RUNS.mkdir(exist_ok=True)
    write_run(path_of(run), run)
    publish()
    say(f"kept in {path_of(run)}; commit it with the plots, RESULTS.md and the README")


def _ask(
    question: Question, directory: Path, sized: Callable[[Path, ExitStack], Bench]
) -> list[Row]:
    directory.mkdir()
    with tempfile.TemporaryDirectory(dir=directory) as place, ExitStack() as cleanup:
        return list(question(sized(Path(place), cleanup)))


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
