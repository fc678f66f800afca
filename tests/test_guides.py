"""The guides tell the truth: what they show is run, and their links lead somewhere.

Guides that need a server are run where it is: ``tests/kafka/test_guides.py``,
``tests/remote/test_archive_guide.py``, ``tests/spark/test_guide.py``.
"""

import re
from pathlib import Path

import pytest

from logfs.cli.command_index import COMMANDS
from tests.guides import GUIDES, run_guide
from tests.mounting import ROOT
from tests.transcripts import table_of

_METRIC = re.compile(r"`(logfs_[a-z_]+)`")
_WITH_SERVERS = {"cluster-buffer", "bucket-archive", "kafka-session", "spark-session"}


@pytest.mark.parametrize("guide", GUIDES)
def test_links_lead_somewhere(guide: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", GUIDES[guide].read_text()):
        assert link.startswith("https://") or (GUIDES[guide].parent / link).exists(), link


def test_metrics_they_name_are_there() -> None:
    named = {name for guide in GUIDES.values() for name in _METRIC.findall(guide.read_text())}
    assert named
    sources = "".join(path.read_text() for path in (ROOT / "logfs/fs/metrics").glob("*.py"))
    assert not [name for name in named if f'"{name}"' not in sources]


def test_the_table_of_commands_has_every_command() -> None:
    rows = table_of(GUIDES["commands"].read_text(), "command")
    named = {name for cell, _ in rows for name in re.findall(r"`logfs ([a-z-]+)", cell)}
    assert named == set(COMMANDS)


@pytest.mark.fuse
@pytest.mark.parametrize("guide", [name for name in GUIDES if name not in _WITH_SERVERS])
def test_what_it_shows_is_what_happens(guide: str, tmp_path: Path) -> None:
    run_guide(GUIDES[guide], tmp_path)
