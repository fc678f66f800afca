"""What is shown of the last runs: a picture in the README, and every row in ``RESULTS.md``.

Both are made of the runs that are kept and of nothing else, and a test makes them again. The
picture shows some of the same rows; see ``drawing``.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.results import Row, format_number
from benchmarks.runner import ROOT
from benchmarks.runs import Run

README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PLOTS = ROOT / "benchmarks" / "plots"

_BEGIN = "<!-- Written by `make plot`, of the runs in benchmarks/runs. -->"
_END = "<!-- The end of what `make plot` has written. -->"
_BETWEEN = re.compile(f"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}\n", re.DOTALL)
_MINUTE_S = 60
_COMMANDS = {False: "make bench", True: "make bench-peers"}


def plot_path(theme: str) -> Path:
    """Return where the picture for light or for dark pages is."""
    return PLOTS / f"speed-{theme}.svg"


def title_of(run: Run) -> str:
    """Say which command, when, on what: one line for plot and text."""
    machine = run.machine
    return (
        f"{_COMMANDS[run.is_beside_peers]}{' --quick' if run.is_quick else ''}, {run.date}: "
        f"{machine['processors']} x {machine['processor']}, {machine['memory']}, "
        f"{machine['file system']}, Linux {machine['kernel']}, Python {machine['python']}, "
        f"load {machine['load'].split()[0]} before"
    )


def summary_of(run: Run) -> str:
    """Say how many budgets are met."""
    return f"{run.met} of {len(run.rows)} budgets met"


def readme_block(runs: Sequence[Run]) -> str:
    """Return what is in the README, markers included."""
    light, dark = (plot_path(theme).relative_to(ROOT) for theme in ("light", "dark"))
    lines = [
        _BEGIN,
        "<picture>",
        f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">',
        f'<img src="{light}" alt="Bars: logfs beside a plain file, Kafka and kcat">',
        "</picture>",
        "",
        *(f"- {title_of(run)}: {summary_of(run)}." for run in runs),
        _END,
    ]
    return "".join(f"{line}\n" for line in lines)


def with_block(text: str, runs: Sequence[Run]) -> str:
    """Return a text with another block in the place of the one it has.

    Raises:
        ValueError: It has none.
    """
    changed, count = _BETWEEN.subn(lambda _: readme_block(runs), text)
    if count != 1:
        raise ValueError(f"{count} places are marked by {_BEGIN!r}, expected 1")
    return changed


def results_page(runs: Sequence[Run]) -> str:
    """Return ``RESULTS.md``: every row of the runs."""
    lines = [
        "# What was measured",
        "",
        "Written by `make plot`, of the runs in `benchmarks/runs`, which hold every single value.",
        "A number is a median of alternating runs; a ratio is that of two medians. What is",
        "compared is said in `benchmarks/__init__.py`, how in the modules of",
        "`benchmarks/questions`.",
    ]
    for run in runs:
        lines += ["", *_section(run)]
    return "".join(f"{line}\n" for line in lines)


def _section(run: Run) -> Iterator[str]:
    yield f"## `{_COMMANDS[run.is_beside_peers]}`: {summary_of(run)}"
    yield ""
    yield f"{title_of(run)}."
    minutes = sum(run.seconds.values()) / _MINUTE_S
    yield f"It took {minutes:.1f} minutes."
    if run.is_quick:
        yield "Less data and fewer runs than the budgets ask for: an impression and no verdict."
    for question, text in run.failed.items():
        yield f"**`{question}` could not be measured:** {text}."
    yield ""
    yield "| | what | budget | measured | logfs | beside it | |"
    yield "|---|---|---|---|---|---|---|"
    previous = None
    for row in run.rows:
        yield _line(row, is_first=row.question != previous)
        previous = row.question


def _line(row: Row, *, is_first: bool) -> str:
    cells = (
        f"`{row.question}`" if is_first else "",
        row.what,
        str(row.budget),
        format_number(row.measured),
        str(row.ours),
        ", ".join(f"{samples.system} {samples}" for samples in row.beside),
        "" if row.is_met else "**missed**",
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
