"""The table on the terminal, and on what it was measured."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.results import Row, format_number

_WIDTH = 160
_GB = 10**9


def describe_machine(directory: Path) -> dict[str, str]:
    """Return on what the numbers are measured, and how busy it is before."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": _processor(),
        "processors": str(os.cpu_count()),
        "memory": f"{memory_bytes / _GB:.0f} GB",
        "kernel": platform.release().partition("-")[0],
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
            ", ".join(f"{samples.system} {samples}" for samples in row.beside),
            "[green]pass[/]" if row.is_met else "[bold red]MISSED[/]",
        )
        previous = row.question
    console.print(table)
    console.print(", ".join(f"{key} {text}" for key, text in machine.items()))
    if quick:
        console.print("--quick: less data and fewer runs than the budgets ask for")


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
