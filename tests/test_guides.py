"""The guides tell the truth: what they show is run, and their links lead somewhere.

In each guide, from top to bottom and in one directory:

    console    a session, compared with what it prints (``tests.transcripts``)
    sh         commands that have to succeed; other directories mean the ones they name
    python     a program that has to succeed
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import ROOT, environment_with_command, is_mounted, run, take_away
from tests.transcripts import Shell, steps_of

GUIDES = sorted((ROOT / "logfs" / "guides").glob("*.md"))
_BLOCK = re.compile(r"^```(console|sh|python)\n.*?^```$", re.MULTILINE | re.DOTALL)
_METRIC = re.compile(r"`(logfs_[a-z_]+)`")
ELSEWHERE = {
    "/var/lib/kafka/data": "kafka",
    "/var/lib/logfs": "store",
    "/var/backups/logfs": "backups",
    "/mnt/logs": "mnt",
}
"""Directories that a guide names, and those below the test's own that mean them."""


def names(guide: Path) -> str:
    return guide.stem


@pytest.mark.parametrize("guide", GUIDES, ids=names)
def test_links_lead_somewhere(guide: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", guide.read_text()):
        assert link.startswith("https://") or (guide.parent / link).exists(), link


def test_metrics_they_name_are_there() -> None:
    named = {name for guide in GUIDES for name in _METRIC.findall(guide.read_text())}
    assert named
    sources = "".join(path.read_text() for path in (ROOT / "logfs/fs/metrics").glob("*.py"))
    assert not [name for name in named if f'"{name}"' not in sources]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Where the commands run; mounts below it are taken away in the end."""
    directory = tmp_path / "session"
    directory.mkdir()
    yield directory
    for point in directory.iterdir():
        if is_mounted(point):
            take_away(point)


@pytest.mark.fuse
@pytest.mark.parametrize("guide", GUIDES, ids=names)
def test_what_it_shows_is_what_happens(guide: Path, tmp_path: Path, directory: Path) -> None:
    variables = environment_with_command(tmp_path)
    variables["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    prepare(directory)
    text = guide.read_text()
    with Shell(directory, variables, tmp_path) as shell:
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            check(shell, block[1], placed(block[0], directory), f"{guide.name}:{line}")


def check(shell: Shell, kind: str, block: str, where: str) -> None:
    """Run a block and see that it succeeds; a session also prints what it shows."""
    if kind == "console":
        for step in steps_of(block):
            shell.check(step, where)
        return
    source = block.partition("\n")[2].removesuffix("```")
    command = f"(set -e; {source}\n)"
    if kind == "python":
        command = f"{shlex.quote(sys.executable)} -c {shlex.quote(source)}"
    printed = shell.run(f"{command} && echo 'all is well'")
    assert printed.endswith("all is well\n"), f"{where}:\n{printed}"


def placed(block: str, directory: Path) -> str:
    """Put the directories of a test in the place of those that a guide names."""
    for name, stand_in in ELSEWHERE.items():
        block = block.replace(name, str(directory / stand_in))
    return block


def prepare(directory: Path) -> None:
    """Make the directories: a store, one as a broker leaves it, the others empty."""
    for stand_in in ELSEWHERE.values():
        (directory / stand_in).mkdir()
    made = directory / "kafka"
    done = run(sys.executable, "-m", "logfs", "topic", "create", made / "orders", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    shutil.copytree(made, directory / "store", dirs_exist_ok=True)
    for own in [*made.glob("logfs.*"), *made.glob("*/logfs.*"), *made.glob("*/*.textindex")]:
        own.unlink()
