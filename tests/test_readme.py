"""The README tells the truth: its session, its tables, its links."""

import re
from pathlib import Path

import pytest

from logfs.log.reading.address import SELECTOR_TABLE, VIEW_TABLE
from tests.mounting import ROOT, environment_with_command, is_mounted, run, take_away
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
    environment = {**with_command, "TMPDIR": str(directory)}
    try:
        with Shell(directory, environment, tmp_path) as shell:
            for step in steps_of(README.read_text()):
                shell.check(step, README.name)
    finally:
        for point in directory.glob("*/logs"):
            if is_mounted(point):
                take_away(point)  # the daemon ends when its mount is gone


def test_the_commands_before_the_session_make_the_command_available(
    tmp_path: Path, with_command: dict[str, str]
) -> None:
    (block,) = re.findall(
        r"^## Try it\n.*?^```sh\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL
    )
    demo, path = block.splitlines()
    target = demo.split("#")[0].strip().removeprefix("make ")
    assert re.search(
        rf"^{target}:.* \$\(VENV\)/\.installed", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    (tmp_path / ".venv").mkdir()
    (tmp_path / "programs").rename(tmp_path / ".venv" / "bin")
    found = run("bash", "-c", f"{path}\ncommand -v logfs", cwd=tmp_path)
    assert found.stdout.decode() == f"{tmp_path}/.venv/bin/logfs\n"
