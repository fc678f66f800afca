"""What is shown of the benchmarks is what the last committed runs have measured."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import drawing, published
from benchmarks.__main__ import main
from benchmarks.results import Row, Samples, at_least, at_most, compare, hold
from benchmarks.runs import Run, last_runs, path_of, read_run, write_run

RUNS = last_runs()
OURS, PLAIN = Samples("logfs", "MB/s", (90.0, 100.0, 400.0)), Samples("plain", "MB/s", (50.0,))
ROW = compare("cat", "cat of a name", at_least(0.5, "x plain"), OURS, PLAIN)
RUN = Run(
    date="2026-01-02",
    machine={
        "processor": "Fast",
        "processors": "2",
        "memory": "8 GB",
        "kernel": "6.1",
        "file system": "ext4",
        "python": "3.11",
        "load": "0.1 0.2 0.3",
    },
    is_beside_peers=False,
    is_quick=False,
    rows=[ROW],
)


def changed(run: Run) -> Run:
    """Return a run of which one row says something else."""
    first, *others = run.rows
    return replace(run, rows=[replace(first, measured=first.measured * 3), *others])


class Plot:
    """The picture as it is drawn: its texts, and how long its bars are."""

    def __init__(self, path: Path) -> None:
        root = ET.parse(path).getroot()
        self._parts = {part.get("id"): part for part in root.iter() if part.get("id")}
        self.texts = ["".join(part.itertext()) for part in root.iter() if part.tag.endswith("text")]

    def lengths(self, panel: int) -> list[float]:
        """Return the lengths of the bars of a measurement, the longest as 1."""
        found = list[float]()
        while f"bar-{panel}-{len(found)}" in self._parts:
            across = list(self._across(f"bar-{panel}-{len(found)}"))
            found.append(max(across) - min(across))
        return [length / max(found) for length in found]

    def _across(self, name: str) -> Iterator[float]:
        (path,) = (part for part in self._parts[name].iter() if part.tag.endswith("path"))
        for across, _ in re.findall(r"[ML] (\S+) (\S+)", path.attrib["d"]):
            yield float(across)


def test_the_readme_and_the_page_of_results_are_those_of_the_last_runs() -> None:
    assert RUNS
    readme = published.README.read_text()
    assert published.with_block(readme, RUNS) == readme
    assert published.RESULTS.read_text() == published.results_page(RUNS)


def test_both_would_change_with_a_number_a_date_or_a_machine() -> None:
    readme, page = published.readme_block([RUN]), published.results_page([RUN])
    machine = {**RUN.machine, "processor": "Slow"}
    for other in (changed(RUN), replace(RUN, date="2026-01-03"), replace(RUN, machine=machine)):
        assert published.results_page([other]) != page
    assert published.readme_block([replace(RUN, machine=machine)]) != readme
    assert "2026-01-02" in readme
    assert "2 x Fast" in readme
    assert "1 of 1 budgets met" in readme
    missed = replace(RUN, rows=[replace(ROW, measured=0.4)])
    assert "0 of 1 budgets met" in published.readme_block([missed])
    assert "| `cat` | cat of a name | ≥ 0.5 x plain | 2 | 100 MB/s | plain 50 MB/s |  |" in page
    assert "**missed**" in published.results_page([missed])


@pytest.mark.parametrize("theme", drawing.THEMES)
def test_the_picture_is_that_of_the_last_runs(theme: str) -> None:
    plot = Plot(published.plot_path(theme))
    for number, measure in enumerate(drawing.MEASURES):
        bars = drawing.bars_of(measure, RUNS)
        assert bars, measure.title
        longest = max(bar.value for bar in bars)
        expected = [bar.value / longest for bar in bars]
        assert plot.lengths(number) == pytest.approx(expected, rel=0.01, abs=1e-4)
        shown = [measure.title, measure.detail, *(bar.system for bar in bars)]
        assert set(shown) <= set(plot.texts)
        assert all(any(text.startswith(bar.label) for text in plot.texts) for bar in bars)


def test_the_picture_has_a_bar_for_each_system_that_was_measured() -> None:
    measure = drawing.Measure("Read", "", "cat", "cat of a name")
    peers = (Samples("kcat", "MB/s", (20.0,)), Samples("odd", "MB/s", (1.0,)))
    other = replace(ROW, ours=Samples("logfs", "GB/s", (0.2,)), beside=peers)
    runs = [RUN, replace(RUN, is_beside_peers=True, rows=[other])]
    assert drawing.bars_of(measure, runs) == [
        ("logfs", 100.0, "MB/s", ""),
        ("plain file", 50.0, "MB/s", ""),
        ("kcat", 20.0, "MB/s", "(logfs in that run: 200 MB/s)"),
    ]
    assert [bar.system for bar in drawing.bars_of(measure, runs[:1])] == ["logfs", "plain file"]
    assert drawing.bars_of(measure._replace(question="other"), runs) == []


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    none = hold("fixed", "again", at_most(2, "READs"), Samples("logfs", "READs", (0.0,)))
    run = replace(RUN, rows=(ROW, none), failed={"spark": "no Java"}, seconds={"cat": 1.5})
    path = path_of(run, tmp_path)
    write_run(path, run)
    assert replace(read_run(path), rows=()) == replace(run, rows=())
    assert list(read_run(path).rows) == list(run.rows)
    assert "Infinity" not in path.read_text()


def test_the_last_run_of_both_kinds_is_shown(tmp_path: Path) -> None:
    peers = replace(RUN, is_beside_peers=True)
    runs = [RUN, peers, replace(RUN, date="2026-01-10"), replace(peers, date="2025-12-31")]
    for run in runs:
        write_run(path_of(run, tmp_path), run)
    found = last_runs(tmp_path)
    assert [(run.date, run.is_beside_peers) for run in found] == [
        ("2026-01-10", False),
        ("2026-01-02", True),
    ]


def test_what_was_hurried_or_failed_is_said() -> None:
    run = replace(RUN, is_quick=True, failed={"spark": "RuntimeError: no Java"})
    assert "make bench --quick, 2026-01-02" in published.readme_block([run])
    page = published.results_page([run])
    assert "no verdict" in page
    assert "**`spark` could not be measured:** RuntimeError: no Java." in page


def test_a_part_of_a_run_is_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--record", "cat"])
    assert stopped.value.code == 2
    assert "leave ROW out" in capsys.readouterr().err


def test_every_row_has_a_label_of_its_own() -> None:
    for run in RUNS:
        labels = [(row.question, f"{row.what} ({row.budget})") for row in run.rows]
        assert sorted(set(labels)) == sorted(labels)


def test_rows_are_compared_by_medians() -> None:
    assert Row("cat", "cat of a name", at_least(0.5, "x plain"), 2.0, OURS, (PLAIN,)) == ROW
