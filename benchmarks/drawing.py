"""The plot: for every row how often its budget fits, and how often it would fit the peers.

Everything of a row is on one logarithmic axis, whose 1 is the budget: where logfs is, and where
a plain file, the floor, a broker and the other peers would be if they were held against the same
budget. Text stays text in the SVG, and every mark has an id, so that a test can read both.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.published import plot_path, summary_of, title_of
from benchmarks.results import Row, format_number
from benchmarks.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

LEAST, MOST = 1 / 64, 128.0
"""The ends of the axis; what lies after them is drawn there."""
WIDTH_IN = 11.0
_ROW_IN = 0.21
_FRAME_IN = 1.5
_TICKS = (
    (1 / 32, "1/32"),
    (1 / 16, "1/16"),
    (1 / 8, "1/8"),
    (1 / 4, "1/4"),
    (1 / 2, "1/2"),
    (1, "budget"),
)
_TICKS_ABOVE = (2, 4, 8, 16, 32, 64)


class Side(NamedTuple):
    """How a side is drawn: its name in the legend, and its mark."""

    name: str
    mark: str


_PEERS = {
    "plain": Side("plain file", "|"),
    "cat": Side("plain file", "|"),
    "floor": Side("floor: a FUSE daemon that does nothing", "x"),
    "broker": Side("Kafka broker and its tools", "D"),
    "perf-test": Side("Kafka broker and its tools", "D"),
    "kafka-dump-log": Side("Kafka broker and its tools", "D"),
    "console consumer": Side("Kafka broker and its tools", "D"),
    "kcat": Side("kcat", "^"),
    "text": Side("Spark's text and Kafka sources", "s"),
    "kafka": Side("Spark's text and Kafka sources", "s"),
}
_COLOURS = {
    "light": {"ink": "#1f2328", "grid": "#d1d9e0", "met": "#1a7f37", "missed": "#cf222e"},
    "dark": {"ink": "#d1d7e0", "grid": "#3d444d", "met": "#3fb950", "missed": "#f85149"},
}
THEMES = tuple(_COLOURS)


def label_of(row: Row) -> str:
    """Return what is on the left of a row."""
    return f"{row.what}  ({row.budget})"


def value_of(row: Row) -> str:
    """Return what is on its right: the number that is held against the budget."""
    return format_number(row.measured)


def clipped(headroom: float) -> float:
    """Return where on the axis a value is drawn; what cannot be put in numbers has no bar."""
    return min(max(headroom, LEAST), MOST) if math.isfinite(headroom) else 1.0


def marks_of(row: Row) -> list[tuple[str, float]]:
    """Return the sides of a row that are drawn beside logfs, each with its place on the axis."""
    found = []
    for samples in row.beside:
        headroom = row.headroom_of(samples)
        if samples.system in _PEERS and headroom is not None and math.isfinite(headroom):
            found.append((samples.system, clipped(headroom)))
    return found


def draw(runs: Sequence[Run]) -> list[Path]:
    """Draw the runs, for light and for dark pages; returns the files.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib as mpl

    mpl.use("agg")
    paths = []
    for theme in THEMES:
        path = plot_path(theme)
        path.parent.mkdir(exist_ok=True)
        # Always the same bytes of the same run.
        settings = {"svg.fonttype": "none", "svg.hashsalt": "logfs", "font.family": "sans-serif"}
        with mpl.rc_context(settings | _paint(theme)):
            _draw(path, runs, _COLOURS[theme])
        paths.append(path)
    return paths


def _paint(theme: str) -> dict[str, str]:
    ink, grid = _COLOURS[theme]["ink"], _COLOURS[theme]["grid"]
    names = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    clear = dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "none")
    return {**clear, **dict.fromkeys(names, ink), "axes.edgecolor": grid, "grid.color": grid}


def _draw(path: Path, runs: Sequence[Run], colours: dict[str, str]) -> None:
    from matplotlib import pyplot as plt

    counts = [len(run.rows) for run in runs]
    figure, panels = plt.subplots(
        len(runs),
        figsize=(WIDTH_IN, sum(_FRAME_IN + _ROW_IN * count for count in counts)),
        height_ratios=[count + 3 for count in counts],
        squeeze=False,
        layout="constrained",
    )
    for number, (axes, run) in enumerate(zip(panels[:, 0], runs, strict=True)):
        _panel(axes, run, number, colours)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _panel(axes: "Axes", run: Run, number: int, colours: dict[str, str]) -> None:
    axes.patch.set_gid(f"axes-{number}")
    named: dict[str, Line2D] = {}
    for place, row in enumerate(run.rows):
        colour = colours["met" if row.is_met else "missed"]
        bars = axes.barh(place, clipped(row.headroom) - 1, left=1, height=0.55, color=colour)
        bars[0].set_gid(f"row-{number}-{place}")
        for system, where in marks_of(row):
            peer = _PEERS[system]
            size = 7 if peer.mark == "|" else 4.5
            (line,) = axes.plot([where], [place], peer.mark, color=colours["ink"], markersize=size)
            line.set_gid(f"peer-{number}-{place}-{system}")
            named.setdefault(peer.name, line)
        axes.text(MOST * 1.15, place, value_of(row), va="center", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set_xlim(LEAST, MOST)
    axes.set_ylim(len(run.rows) - 0.4, -0.6)
    axes.set_xticks([place for place, _ in _TICKS] + list(_TICKS_ABOVE),
                    [text for _, text in _TICKS] + [str(n) for n in _TICKS_ABOVE])  # fmt: skip
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(run.rows)), [label_of(row) for row in run.rows], fontsize=8)
    axes.tick_params(length=0)
    axes.grid(axis="x", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.axvline(1, color=colours["ink"], linewidth=1)
    axes.spines[:].set_visible(False)
    axes.set_title(title_of(run), fontsize=9, loc="right")
    axes.set_xlabel(
        f"how often the budget fits, on the right what was measured; {summary_of(run)}", fontsize=8
    )
    if named:
        axes.legend(named.values(), named.keys(), fontsize=8, loc="lower right", framealpha=0)
