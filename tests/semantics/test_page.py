"""SEMANTICS.md: every statement has a test that quotes it, and its sessions do what they show."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import ROOT, Mount, environment_with_command
from tests.transcripts import Shell, matches, steps_of

PAGE = ROOT / "logfs" / "fs" / "SEMANTICS.md"
PROMISES = {
    1: "One line is one record",
    2: "Written is visible and safe",
    3: "Positions are for ever",
    4: "Sealed segments belong to the kernel",
    5: "Any moment is one lookup",
    6: "A Kafka directory, always",
    7: "Loss is loud",
    8: "Refusals are clear",
    9: "A restart is a pause",
    10: "Permissions hold on every path to the bytes",
}

_HEADING = re.compile(r"^## (\d+)\. (.*)$", re.MULTILINE)
_STATEMENT = re.compile(r"^\*\*(.+?)\*\*", re.MULTILINE | re.DOTALL)


def sections() -> dict[int, str]:
    """Return the text below each numbered heading."""
    parts = _HEADING.split(PAGE.read_text())[1:]
    return {int(number): text for number, text in zip(parts[::3], parts[2::3], strict=True)}


def statements(text: str) -> list[str]:
    """Return the statements of a section, each on one line."""
    return [" ".join(found.split()) for found in _STATEMENT.findall(text)]


def quoted(number: int) -> dict[str, str]:
    """Return the tests of a promise and the sentences they quote."""
    functions = [
        (path.name, node)
        for path in Path(__file__).parent.glob("test_promise_*.py")
        if path.stem.split("_")[2] == str(number)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return {
        f"{file}::{function.name}": " ".join((ast.get_docstring(function) or "").split())
        for file, function in functions
    }


def test_the_headings_are_the_promises() -> None:
    headings = _HEADING.findall(PAGE.read_text())
    assert headings == [(str(n), title) for n, title in PROMISES.items()]


@pytest.mark.parametrize("number", PROMISES)
def test_statements_and_tests_belong_together(number: int) -> None:
    stated = statements(sections()[number])
    tests = quoted(number)
    assert len(stated) == len(set(stated))
    assert not {name: text for name, text in tests.items() if text not in stated}
    assert not [statement for statement in stated if statement not in tests.values()]


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    directory = tmp_path_factory.mktemp("page")
    with Mount(directory / "data", directory / "mnt") as mount:
        yield mount


@pytest.mark.fuse
@pytest.mark.parametrize("number", PROMISES)
def test_the_sessions_do_what_they_show(mounted: Mount, tmp_path: Path, number: int) -> None:
    page = PAGE.read_text()
    begin = page.index(f"\n## {number}. ")
    end = page.find("\n## ", begin + 1)
    wanted = range(page.count("\n", 0, begin), page.count("\n", 0, end) if end >= 0 else len(page))
    steps = [step for step in steps_of(page) if step.line in wanted]
    with Shell(mounted.point, environment_with_command(tmp_path), tmp_path) as shell:
        for step in steps:
            shell.check(step, PAGE.name)


@pytest.mark.parametrize(
    ("expected", "printed", "is_match"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("", "a\n", False),
        ("a\n", "", False),
        ("x…z\n", "x and y and z\n", True),
        ("x…z\n", "x\nz\n", False),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\nd\n", "a\nd\n", True),
        ("no newline\n", "no newline", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_output_is_compared_whole(expected: str, printed: str, is_match: bool) -> None:
    assert matches(expected, printed) is is_match
