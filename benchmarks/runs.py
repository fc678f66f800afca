"""A run that is kept: what was measured, on which day, on what.

Runs are JSON files below ``runs``, one for ``make bench`` and one for ``make bench-peers`` a day;
what they hold is what the README and ``RESULTS.md`` show (``published``), and nothing else.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results import Budget, Row, Samples
from benchmarks.runner import ROOT

RUNS = ROOT / "benchmarks" / "runs"
_PEERS = "-peers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the benchmarks.

    Attributes:
        date: The day, UTC, as in ISO 8601.
        machine: On what; see ``report.describe_machine``.
        is_beside_peers: It was ``make bench-peers``.
        is_quick: Less data and fewer runs: an impression and no verdict.
        rows: What was measured.
        seconds: How long each question took.
        failed: What each question said that could not be measured.
    """

    date: str
    machine: Mapping[str, str]
    is_beside_peers: bool
    is_quick: bool
    rows: Sequence[Row]
    seconds: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def met(self) -> int:
        """How many budgets are met."""
        return sum(row.is_met for row in self.rows)


def path_of(run: Run, directory: Path = RUNS) -> Path:
    """Return where a run is kept."""
    return directory / f"{run.date}{_PEERS if run.is_beside_peers else ''}.json"


def write_run(path: Path, run: Run) -> None:
    """Write a run with the values of every single measurement."""
    facts = {**asdict(run), "rows": [_as_json(row) for row in run.rows]}
    path.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def read_run(path: Path) -> Run:
    """Read what ``write_run`` has written."""
    facts = json.loads(path.read_text())
    return Run(**{**facts, "rows": [_row(row) for row in facts["rows"]]})


def last_runs(directory: Path = RUNS) -> list[Run]:
    """Return the last run, and the last one beside the peers, as far as there are any."""
    names = sorted(directory.glob("*.json"))
    own = [path for path in names if not path.stem.endswith(_PEERS)]
    peers = [path for path in names if path.stem.endswith(_PEERS)]
    return [read_run(paths[-1]) for paths in (own, peers) if paths]


def _as_json(row: Row) -> dict[str, object]:
    return {
        **asdict(row),
        "is_met": row.is_met,
        "headroom": row.headroom if math.isfinite(row.headroom) else None,
        "ours": _samples_as_json(row.ours),
        "beside": [_samples_as_json(samples) for samples in row.beside],
    }


def _samples_as_json(samples: Samples) -> dict[str, object]:
    # Six digits are more than any clock here gives.
    values = [float(f"{value:.6g}") for value in samples.values]
    return {**asdict(samples), "values": values, "median": samples.median}


def _row(facts: Mapping[str, Any]) -> Row:
    return Row(
        facts["question"],
        facts["what"],
        Budget(**facts["budget"]),
        facts["measured"],
        _samples(facts["ours"]),
        tuple(_samples(each) for each in facts["beside"]),
    )


def _samples(facts: Mapping[str, Any]) -> Samples:
    return Samples(facts["system"], facts["unit"], tuple(facts["values"]))
