"""Events over time as a picture: failed logins by address, errors of a web server below."""

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

_NAMED = 5
"""Addresses with their own colour; what the others did is grey."""
_BARS = 60
"""About so many bars from the first event to the last."""
_STEPS_S = (1, 10, 60, 300, 600, 1800, 3600, 6 * 3600, 86400, 7 * 86400)


def draw(failed: DataFrame, errors: DataFrame | None, path: str) -> None:
    """Draw a picture.

    Args:
        failed: Rows with ``time`` and ``address``.
        errors: Rows with ``time`` and ``level``, or None.
        path: File to write; its suffix says what kind.
    """
    worst = [
        row.address
        for row in failed.groupBy("address").count().orderBy(sql.desc("count"), "address").take(
            _NAMED
        )
    ]  # fmt: skip
    named = sql.when(sql.col("address").isin(worst), sql.col("address")).otherwise("others")
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text, which one can search
    figure = Figure(figsize=(10, 3 if errors is None else 5.5), layout="constrained")
    axes = figure.subplots(1 if errors is None else 2, squeeze=False)[:, 0]
    colours = [f"C{number}" for number in range(len(worst))] + ["0.7"]
    _bars(axes[0], failed.withColumn("kind", named), [*worst, "others"], colours)
    axes[0].set_title("failed logins", loc="left")
    if errors is not None:
        levels = [row.level for row in errors.select("level").distinct().orderBy("level").collect()]
        colours = [f"C{number + _NAMED}" for number in range(len(levels))]
        _bars(axes[1], errors.withColumnRenamed("level", "kind"), levels, colours)
        axes[1].set_title("web server", loc="left")
    figure.savefig(path)


def _bars(axes: Axes, events: DataFrame, kinds: list[str], colours: list[str]) -> None:
    """Stack the events of each kind, counted by Spark, in bars of a round length of time."""
    first, last = events.agg(sql.min("time"), sql.max("time")).first() or (None, None)
    if first is None:
        axes.text(0.5, 0.5, "none", ha="center", transform=axes.transAxes)
        return
    span_s = (last - first).total_seconds()
    step_s = next((step for step in _STEPS_S if span_s <= step * _BARS), _STEPS_S[-1])
    counts = events.groupBy(
        sql.window("time", f"{step_s} seconds").start.alias("since"), "kind"
    ).count()
    found = {(row.since, row.kind): row["count"] for row in counts.collect()}
    moments = sorted({since for since, _ in found})
    below = [0] * len(moments)
    for kind, colour in zip(kinds, colours, strict=True):
        heights = [found.get((moment, kind), 0) for moment in moments]
        if any(heights):
            axes.bar(
                moments, heights, width=step_s / 86400, bottom=below, align="edge",
                label=f"{kind} ({sum(heights)})", color=colour,
            )  # fmt: skip
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.xaxis.set_major_formatter(ConciseDateFormatter(AutoDateLocator()))
    axes.set_ylabel(f"in {step_s} s" if step_s < 60 else f"in {step_s // 60} min")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
