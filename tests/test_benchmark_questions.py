"""Each question of the benchmarks can be asked: with so little data that numbers mean nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.questions import PEER_QUESTIONS, QUESTIONS
from tests.mounting import ROOT

pytestmark = [pytest.mark.long, pytest.mark.fuse, pytest.mark.timeout(900)]


def measure(tmp_path: Path, *arguments: str) -> list[dict[str, object]]:
    """Run a question; returns its rows."""
    results = tmp_path / "run.json"
    command = [sys.executable, "-m", "benchmarks", "--tiny", "--json", str(results)]
    done = subprocess.run([*command, *arguments], cwd=ROOT, check=False, capture_output=True)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    return list(json.loads(results.read_text())["rows"])


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_question_is_measured(tmp_path: Path, name: str) -> None:
    assert measure(tmp_path, name)


@pytest.mark.kafka
@pytest.mark.parametrize("name", PEER_QUESTIONS)
def test_each_question_about_peers_is_measured(tmp_path: Path, name: str) -> None:
    assert measure(tmp_path, "--peers", name)
