"""Shell sessions and tables in documents, to be run line by line and compared.

A session is a ``console`` block of Markdown:

    $ a command        run by one bash for all blocks of a document, or of a section of it
    > its next line    if it has several
    what it prints     stdout and stderr as they come

In what is printed ``…`` means any text within a line, and a line that is nothing but ``…`` for
any number of lines. Output is compared whole: what is not there must not be printed.
"""

import os
import re
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.mounting import PATIENCE_S

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "--- end of step ---"


class Step(NamedTuple):
    """One command of a session and what it prints."""

    command: str
    printed: str
    line: int
    """Where the command is, from 1."""


def steps_of(text: str) -> list[Step]:
    """Return the commands of all console blocks of a Markdown text."""
    steps: list[Step] = []
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1)) + 1
        begun: list[Step] = []
        for number, line in enumerate(block[1].splitlines(), first):
            if line.startswith("$ "):
                begun.append(Step(line[2:], "", number))
                continue
            assert begun, f"line {number}: output before the first command"
            step = begun[-1]
            if line.startswith("> ") and not step.printed:
                begun[-1] = step._replace(command=f"{step.command}\n{line[2:]}")
            else:
                begun[-1] = step._replace(printed=f"{step.printed}{line}\n")
        steps += begun
    return steps


def table_of(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table of a Markdown text whose header begins with a word."""
    lines = text.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    table = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\)\|", line.removeprefix("|").removesuffix("|"))
        table.append([cell.strip().replace("\\|", "|") for cell in cells])
    return table


def matches(expected: str, printed: str) -> bool:
    """Tell whether a command printed what a document says, where ``…`` matches anything."""
    pattern = ""
    for line in expected.splitlines():
        if line == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(map(re.escape, line.split("…"))) + r"\n"
    if printed and not printed.endswith("\n"):
        printed += "\n"
    return re.fullmatch(pattern, printed) is not None


class Shell:
    """One bash that runs the commands of a document.

    Args:
        directory: Where it starts.
        variables: Its environment.
        notes: A directory outside any mount, for what it is told.
    """

    def __init__(self, directory: Path, variables: Mapping[str, str], notes: Path) -> None:
        self._step = notes / "step"
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=dict(variables),
        )

    def run(self, command: str) -> str:
        """Run a command and return what it prints, as an interactive shell would print it."""
        assert self._bash.stdin is not None
        self._step.write_text(command)
        tell = f"eval \"$(<'{self._step}')\" < /dev/null\nprintf '%s\\n' '{_END}'\n"
        self._bash.stdin.write(tell.encode())
        self._bash.stdin.flush()
        printed = self._read(command)
        return re.sub(r"^bash: line \d+: ", "bash: ", printed, flags=re.MULTILINE)

    def check(self, step: Step, document: str) -> None:
        """Run a step and see that it prints what the document says."""
        printed = self.run(step.command)
        assert matches(step.printed, printed), (
            f"{document}:{step.line}: $ {step.command}\n--- expected\n{step.printed}"
            f"--- printed\n{printed}---"
        )

    def _read(self, command: str) -> str:
        assert self._bash.stdout is not None
        read = b""
        while not read.endswith(f"{_END}\n".encode()):
            ready = select.select([self._bash.stdout], [], [], PATIENCE_S)[0]
            assert ready, f"$ {command}\ndoes not end; so far it printed:\n{read!r}"
            data = os.read(self._bash.stdout.fileno(), 1 << 16)
            assert data, f"$ {command}\nended the shell; it printed:\n{read!r}"
            read += data
        return read.decode(errors="replace").removesuffix(f"{_END}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bash.kill()
        self._bash.communicate()
