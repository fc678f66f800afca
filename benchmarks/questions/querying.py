"""How fast are records found by what is in them, beside ``grep`` on a file with the same lines."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.data import LogSpec, build_log, write_text
from benchmarks.results import Row, at_least, compare, rates
from benchmarks.runner import Bench, alternate, python_command, settle, shell_run

_BATCH_LINES = 160
"""About 16 KiB, what a producer sends at a time."""
_PATTERNS = (
    ("a literal", "0001234", "--"),
    ("a regular expression", "^0*1234[0-9] the", "--"),
    ("a literal in every line", "quick", "--"),
    ("a regular expression in half of the lines", "[02468] the q", "--"),
    ("a few lines, in any case", "1234[0-9] THE", "-i"),
)
_GREP = 'grep -a "$3" "$1" "$2" | cat > /dev/null'
"""Into a pipe: grep ends at the first match if its output is /dev/null."""


def rows(bench: Bench) -> Iterator[Row]:
    """Patterns that few, half or all of 100-byte lines match, in a new process each time."""
    total = bench.scaled(20_000_000, 5_000_000)
    spec = LogSpec(batch_lines=_BATCH_LINES, segment_batches=total // _BATCH_LINES // 4, segments=4)
    data, text = build_log(bench, "log", spec), bench.directory / "lines.txt"
    write_text(text, spec)
    settle(bench.directory)
    for what, pattern, option in _PATTERNS:
        ours, theirs = alternate(
            [
                _query(pattern, data / spec.topic / "0", option),
                shell_run(_GREP, pattern, text, option),
            ],
            bench.pairs,
        )
        size = text.stat().st_size
        yield compare(
            "query",
            f"logfs cat --grep, {what}",
            at_least(1, "x grep"),
            rates("logfs", size, ours),
            rates("grep", size, theirs),
        )
    shutil.rmtree(data)
    text.unlink()


def _query(pattern: str, path: Path, option: str) -> Callable[[], float]:
    options = ["-i"] if option == "-i" else []
    command = python_command("logfs", "cat", *options, "--grep", pattern, path)
    return shell_run('"$@" | cat > /dev/null', *command)
