"""The table, the JSON and the plot."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.results import Row, Samples, format_number

_WIDTH = 160
_MOST_SHOWN = 8.0


def describe_machine(directory: Path) -> dict[str, str]:
    """Return on what the numbers were measured."""
    return {
        "kernel": platform.release(),
        "processors": str(os.cpu_count()),
        "processor": _processor(),
        "file system": _file_system(directory),
        "python": platform.python_version(),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def print_table(rows: Sequence[Row], machine: Mapping[str, str], *, quick: bool) -> None:
    """Print all rows as one table."""
    console = Console(width=None if Console().is_terminal else _WIDTH, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "what", "budget", "measured", "logfs", "beside it", "result"):
        is_number = name in {"measured", "logfs"}
        table.add_column(
            name, justify="right" if is_number else "left", no_wrap=name != "beside it"
        )
    previous = None
    for row in rows:
        table.add_row(
            "" if row.question == previous else row.question,
            row.what,
            str(row.budget),
            format_number(row.measured),
            str(row.ours),
            ", ".join(f"{samples.who} {samples}" for samples in row.beside),
            "[green]pass[/]" if row.is_met else "[bold red]MISSED[/]",
        )
        previous = row.question
    console.print(table)
    console.print(", ".join(f"{key} {text}" for key, text in machine.items()))
    if quick:
        console.print("--quick: less data and fewer runs than the budgets ask for")


def write_json(path: Path, rows: Sequence[Row], machine: Mapping[str, str], *, quick: bool) -> None:
    """Write all rows with the values of every run."""
    facts = {
        "machine": machine,
        "quick": quick,
        "rows": [
            {
                **asdict(row),
                "is_met": row.is_met,
                "headroom": row.budget.headroom(row.measured),
                "ours": _samples(row.ours),
                "beside": [_samples(samples) for samples in row.beside],
            }
            for row in rows
        ],
    }
    path.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def write_plot(directory: Path, rows: Sequence[Row]) -> Path | None:
    """Draw for each row how often its budget fits; None where matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return None
    mpl.use("agg")
    from matplotlib import pyplot as plt

    directory.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(9, 1 + 0.3 * len(rows)), layout="constrained")
    places = range(len(rows))
    lengths = [_clipped(row.budget.headroom(row.measured)) - 1 for row in rows]
    colours = ["tab:green" if row.is_met else "tab:red" for row in rows]
    axes.barh(places, lengths, left=1, color=colours)
    axes.set_yticks(places, [f"{row.what}  ({row.budget})" for row in rows])
    for place, row in zip(places, rows, strict=True):
        axes.text(_MOST_SHOWN * 1.1, place, format_number(row.measured), va="center")
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xlim(1 / _MOST_SHOWN, _MOST_SHOWN)
    axes.set_xticks([1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8], ["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    axes.set_xlabel("how often the budget fits; on the right what was measured")
    path = directory / "budgets.svg"
    figure.savefig(path)
    plt.close(figure)
    return path


def _clipped(headroom: float) -> float:
    return min(max(headroom, 1 / _MOST_SHOWN), _MOST_SHOWN)


def _samples(samples: Samples) -> dict[str, object]:
    return {**asdict(samples), "median": samples.median}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """Return the kind of the file system that a directory is on."""
    device = directory.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"
