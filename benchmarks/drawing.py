"""The picture of the README: six measurements, each with logfs and what it was compared with.

``MEASURES`` chooses them from the rows of the last runs. A bar is a median; the longest of a
measurement has the full width. A system that was not measured has no bar. Text stays text in the
SVG, and every bar has an id, so that a test can read both.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.published import plot_path
from benchmarks.results import Samples, format_number
from benchmarks.runs import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN = 9.0
_BAR_IN = 0.24
_LEFT, _NUMBER_ROOM = 1.4, 0.72
"""The widths beside the bars, as parts of that of the longest bar: its names, and its number."""


class Measure(NamedTuple):
    """One measurement of the picture.

    Attributes:
        question: The question of the rows, as on the command line.
        what: The text of the rows; those of all runs are shown together.
    """

    title: str
    detail: str
    question: str
    what: str


class Bar(NamedTuple):
    """The median of one system.

    Attributes:
        note: What a reader has to know of another run; "" for the same run as the first bar.
    """

    system: str
    value: float
    unit: str
    note: str = ""

    @property
    def label(self) -> str:
        """The number at the end of the bar."""
        return f"{format_number(self.value)} {self.unit}"


_MORE, _LESS = "more is better", "less is better"
MEASURES = (
    Measure("Append a line", f"write(2), median; {_LESS}", "line", "write(2) of one line, p50"),
    Measure("cat FILE >>", f"a large file; {_MORE}", "append", "cat FILE >>"),
    Measure("Read a growing name", f"cat orders/0; {_MORE}", "cat", "cat of a growing name"),
    Measure(
        "Read a fixed name",
        f"cat orders/0@earliest..latest; {_MORE}",
        "fixed",
        "cat of @earliest..latest",
    ),
    Measure("Find a time", f"open(2) of a time, p99; {_LESS}", "open", "open at a timestamp, p99"),
    Measure(
        "Recover after a crash",
        f"batches of 16 KiB; {_MORE}",
        "recovery",
        "recovery, batches of 16 KiB",
    ),
)
_SYSTEMS = {
    "logfs": "logfs",
    "plain": "plain file",
    "floor": "FUSE that does nothing",
    "cat": "cat of the same files",
    "broker": "Kafka broker",
    "perf-test": "kafka-producer-perf-test",
    "console consumer": "kafka-console-consumer",
    "kcat": "kcat",
}
"""The systems that have a bar, and their names in the picture."""
_COLOURS = {
    "light": {"ink": "#1f2328", "quiet": "#59636e", "logfs": "#0969da", "other": "#afb8c1"},
    "dark": {"ink": "#f0f6fc", "quiet": "#9198a1", "logfs": "#4493f8", "other": "#59636e"},
}
THEMES = tuple(_COLOURS)


def bars_of(measure: Measure, runs: Sequence[Run]) -> list[Bar]:
    """Return the bars of a measurement: logfs, and below it every system that was measured."""
    bars: list[Bar] = []
    for run in runs:
        for row in run.rows:
            if (row.question, row.what) != (measure.question, measure.what):
                continue
            ours, note = _bar(row.ours), ""
            if not bars:
                bars.append(ours)
            elif bars[0] != ours:
                note = f"(logfs in that run: {ours.label})"
            others = [samples for samples in row.beside if samples.system in _SYSTEMS]
            bars += [_bar(samples, note) for samples in others]
    return bars


def _bar(samples: Samples, note: str = "") -> Bar:
    """Return a bar, with throughput always in MB/s."""
    is_large = samples.unit == "GB/s"
    value = samples.median * 1000 if is_large else samples.median
    return Bar(_SYSTEMS[samples.system], value, "MB/s" if is_large else samples.unit, note)


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
        with mpl.rc_context({**settings, "figure.facecolor": "none", "axes.facecolor": "none"}):
            _draw(path, runs, _COLOURS[theme])
        paths.append(path)
    return paths


def _draw(path: Path, runs: Sequence[Run], colours: dict[str, str]) -> None:
    from matplotlib import pyplot as plt

    measured = [(measure, bars) for measure in MEASURES if (bars := bars_of(measure, runs))]
    counts = [len(bars) for _, bars in measured]
    figure, panels = plt.subplots(
        len(measured),
        figsize=(WIDTH_IN, _BAR_IN * (sum(counts) + len(counts))),
        height_ratios=[count + 1 for count in counts],
        squeeze=False,
        gridspec_kw={"left": 0, "right": 1, "top": 1, "bottom": 0, "hspace": 0},
    )
    for number, (axes, (measure, bars)) in enumerate(zip(panels[:, 0], measured, strict=True)):
        _panel(axes, measure, bars, number, colours)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _panel(
    axes: "Axes", measure: Measure, bars: list[Bar], number: int, colours: dict[str, str]
) -> None:
    longest = max(bar.value for bar in bars)
    axes.axis("off")
    axes.set_xlim(-_LEFT - 0.02, 1 + _NUMBER_ROOM)
    axes.set_ylim(len(bars) - 0.2, -0.8)
    axes.text(-_LEFT, 0, measure.title, va="center", weight="bold", color=colours["ink"])
    axes.text(-_LEFT, 1, measure.detail, va="center", fontsize=8, color=colours["quiet"])
    for place, bar in enumerate(bars):
        kind = "logfs" if place == 0 else "other"
        text = {"va": "center", "fontsize": 9, "color": colours["ink"]}
        drawn = axes.barh(place, bar.value / longest, height=0.7, color=colours[kind])
        drawn[0].set_gid(f"bar-{number}-{place}")
        axes.text(-0.02, place, bar.system, ha="right", **text)
        axes.text(bar.value / longest + 0.02, place, f"{bar.label} {bar.note}".rstrip(), **text)
