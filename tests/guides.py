"""Runs a guide: what it shows is what happens.

In each guide, from top to bottom and in one directory:

    console    a session, compared with what it prints (``tests.transcripts``)
    sh         commands that have to succeed; other directories mean the ones they name
    python     a program that has to succeed
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.mounting import ROOT, environment_with_command, is_mounted, run, take_away
from tests.transcripts import Shell, steps_of

GUIDES = {path.stem: path for path in sorted((ROOT / "logfs" / "guides").glob("*.md"))}
_BLOCK = re.compile(r"^```(console|sh|python)\n.*?^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    "/var/lib/kafka/data": "kafka",
    "/var/lib/logfs": "store",
    "/var/backups/logfs": "backups",
    "/mnt/logs": "mnt",
}
"""Directories that a guide names, and those below the test's own that mean them."""


def run_guide(
    guide: Path,
    work: Path,
    variables: Mapping[str, str] | None = None,
    places: Mapping[str, str] | None = None,
) -> None:
    """Run all blocks of a guide.

    Args:
        work: An empty directory.
        variables: More of the environment.
        places: Names of servers in the guide, and those that they mean here.
    """
    environment = {**environment_with_command(work), **(variables or {})}
    environment["XDG_CACHE_HOME"] = str(work / "cache")
    text = guide.read_text()
    with _directory(work) as directory, Shell(directory, environment, work) as shell:
        names = {name: str(directory / stand_in) for name, stand_in in ELSEWHERE.items()}
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            placed = _placed(block[0], {**names, **(places or {})})
            _check(shell, block[1], placed, f"{guide.name}:{line}")


@contextmanager
def _directory(work: Path) -> Iterator[Path]:
    """Give where the commands run; mounts below it are taken away in the end."""
    directory = work / "session"
    directory.mkdir()
    _prepare(directory)
    try:
        yield directory
    finally:
        for point in directory.iterdir():
            if is_mounted(point):
                take_away(point)


def _check(shell: Shell, kind: str, block: str, where: str) -> None:
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


def _placed(block: str, places: Mapping[str, str]) -> str:
    """Put what a test has in the place of what a guide names."""
    for name, stand_in in places.items():
        block = block.replace(name, stand_in)
    return block


def _prepare(directory: Path) -> None:
    """Make the directories: a store, one as a broker leaves it, the others empty."""
    for stand_in in ELSEWHERE.values():
        (directory / stand_in).mkdir()
    made = directory / "kafka"
    done = run(sys.executable, "-m", "logfs", "topic", "create", made / "orders", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    shutil.copytree(made, directory / "store", dirs_exist_ok=True)
    for own in [*made.glob("logfs.*"), *made.glob("*/logfs.*"), *made.glob("*/*.textindex")]:
        own.unlink()
