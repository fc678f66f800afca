"""The README tells the truth: its session, its tables, its links."""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.log.reading.address import SELECTOR_TABLE, VIEW_TABLE
from tests.mounting import ROOT, Mount, environment_with_command, is_mounted, logfs, run, take_away
from tests.transcripts import Shell, steps_of, table_of

README = ROOT / "README.md"
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "tests/README.md"]
_CODE = re.compile(r"`([^`\n]+)`")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a line that its header begins with."""
    return table_of(README.read_text(), heading)


def as_cell(example: str) -> str:
    return f"`{example}`" if example else "(none)"


@pytest.mark.parametrize(
    ("heading", "table"), [("selector", SELECTOR_TABLE), ("view", VIEW_TABLE)], ids=["@", "."]
)
def test_the_addresses_are_those_of_the_grammar(
    heading: str, table: tuple[tuple[str, str], ...]
) -> None:
    assert rows(heading) == [[as_cell(example), meaning] for example, meaning in table]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    page = ROOT / document
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target.read_text()), link


def anchors_of(text: str) -> set[str]:
    """Return what the headings of a Markdown text are linked as."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_it_names_is_there(document: str) -> None:
    named = {
        name
        for name in _CODE.findall((ROOT / document).read_text())
        if re.fullmatch(r"(?:logfs|tests|examples|\.ci)/[\w./-]*", name)
    }
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.fixture
def with_command(tmp_path: Path) -> dict[str, str]:
    """An environment in which ``logfs`` is this tree's."""
    return environment_with_command(tmp_path)


@pytest.mark.fuse
def test_the_session_does_what_it_shows(tmp_path: Path, with_command: dict[str, str]) -> None:
    directory = tmp_path / "session"
    directory.mkdir()
    try:
        with Shell(directory, with_command, tmp_path) as shell:
            for step in steps_of(README.read_text()):
                shell.check(step, README.name)
    finally:
        if is_mounted(directory / "logs"):
            take_away(directory / "logs")  # the daemon ends when its mount is gone


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    directory = tmp_path_factory.mktemp("refusals")
    with Mount(directory / "data", directory / "mnt") as mount:
        yield mount


@pytest.fixture
def point(mounted: Mount) -> Path:
    """The mount point, with a topic orders of one partition in it and nothing else."""
    for topic in mounted.point.iterdir():
        logfs("topic", "delete", topic)
    (mounted.point / "orders").mkdir()
    result = run("bash", "-c", "seq -f 'order %g' 10 >> orders/0", cwd=mounted.point)
    assert result.returncode == 0
    return mounted.point


REFUSALS = rows("what you do")
COMMANDS = [row for row in REFUSALS if row[0].startswith("`")]

ELSEWHERE = {
    "any change on a read-only mount": "test_a_read_only_mount_refuses_every_change",
    "append to a mirror of a topic of a cluster": "test_a_mirror_takes_no_appends",
    "append when the disk is full": "test_a_full_disk",
    "append to a topic that was deleted meanwhile": "test_a_deleted_topic",
    "append or fsync after the disk failed": "test_a_failed_write_takes_the_partition_offline",
    "read a corrupt record": "test_corrupt_data_stays_and_is_an_error",
    "anything after the daemon of a mount in the foreground has died": (
        "test_an_unfinished_line_outlives_the_daemon"
    ),
}
"""What takes more than a command, and the test in ``tests/semantics`` that does it."""


def code(cell: str) -> str:
    """Return the last piece of code in a cell, "" if there is none."""
    found: list[str] = _CODE.findall(cell)
    return found[-1] if found else ""


@pytest.mark.fuse
@pytest.mark.parametrize(("what", "error", "instead"), COMMANDS, ids=[row[0] for row in COMMANDS])
def test_a_refusal_is_what_the_table_says(point: Path, what: str, error: str, instead: str) -> None:
    command = f"set -o pipefail; {code(what)}"
    refused = run("bash", "-c", command, cwd=point)
    assert refused.returncode != 0
    assert os.strerror(getattr(errno, error)) in refused.stderr.decode()
    if code(instead):
        done = run("bash", "-c", code(instead), cwd=point)
        assert (done.returncode, done.stderr) == (0, b"")


def test_the_other_refusals_are_tested_elsewhere() -> None:
    others = [row for row in REFUSALS if row not in COMMANDS]
    assert [row[0] for row in others] == list(ELSEWHERE)
    sources = "".join(
        path.read_text() for path in (ROOT / "tests" / "semantics").glob("test_promise_*.py")
    )
    for (_, error, _), test in zip(others, ELSEWHERE.values(), strict=True):
        body = sources[sources.index(f"def {test}(") :].split("\ndef ")[0]
        assert f"errno.{error}" in body or os.strerror(getattr(errno, error)) in body
