"""How quick is the command line: whole processes, from their start to their end.

The modules of logfs are compiled first, as in an installed logfs; a checkout may not, where
``PYTHONDONTWRITEBYTECODE`` is set.
"""

import compileall
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.data import write_lines
from benchmarks.mounts import mount_logfs
from benchmarks.results import Row, Samples, at_least, at_most, compare, rates
from benchmarks.runner import ROOT, Bench, alternate, settle, shell_run, timed_shell

_LOGFS = f'"{sys.executable}" -c "from logfs.cli.main import main; import sys; sys.exit(main())"'
"""What the installed command does; the shell runs it in the checkout, where logfs is found."""
_PASS = f'exec "{sys.executable}" -c pass'
_SIZE_BYTES = 1_000_000_000
_QUICK_BYTES = 200_000_000


def helping(bench: Bench) -> Iterator[Row]:
    """``logfs --help`` beside an interpreter that does nothing."""
    _compile()
    runs = [shell_run(_command("--help > /dev/null"), ROOT), shell_run(_PASS)]
    ours, theirs = alternate(runs, 4 * bench.pairs)
    yield compare(
        "help",
        "logfs --help, beside python -c pass",
        at_most(8, "x python"),
        Samples("logfs", "ms", tuple(1000 * s for s in ours)),
        Samples("python", "ms", tuple(1000 * s for s in theirs)),
    )


def starting(bench: Bench) -> Iterator[Row]:
    """``logfs cat`` of a topic without records, beside an interpreter that does nothing."""
    _compile()
    data = bench.directory / "data"
    data.mkdir()
    timed_shell(_command('topic create "$2/t"'), ROOT, data)
    for what, options in (("", ""), (" --grep", "--grep x ")):
        runs = [shell_run(_command(f'cat {options}"$2/t/0"'), ROOT, data), shell_run(_PASS)]
        ours, theirs = alternate(runs, 4 * bench.pairs)
        yield compare(
            "start",
            f"logfs cat{what} of an empty topic, beside python -c pass",
            at_most(12, "x python"),
            Samples("logfs", "ms", tuple(1000 * s for s in ours)),
            Samples("python", "ms", tuple(1000 * s for s in theirs)),
        )
    shutil.rmtree(data)


def printing(bench: Bench) -> Iterator[Row]:
    """``logfs cat`` of a directory without a daemon; the log is in the page cache.

    A plain cat into /dev/null, which takes bytes without looking at them, is done with 1 GB in
    0.1 to 0.15 s; the start of Python with what it imports takes 0.12 s, however much is printed.
    """
    _compile()
    source, size = _source(bench)
    data = bench.directory / "data"
    data.mkdir()
    timed_shell(_command('append --create "$2/t/0" "$3"'), ROOT, data, source)
    ours_printed = timed_shell(_command('cat "$2/t/0" | cmp - "$3"'), ROOT, data, source)
    if ours_printed[1]:
        raise RuntimeError(ours_printed[1])
    for what, sink in (("> /dev/null", "> /dev/null"), ("into a pipe", "| cat > /dev/null")):
        runs = [
            shell_run(_command(f'cat "$2/t/0" {sink}'), ROOT, data),
            shell_run(f'cat "$1" {sink}', source),
        ]
        ours, theirs = alternate(runs, bench.pairs)
        yield compare(
            "print",
            f"logfs cat {what}, no daemon",
            at_least(0.5, "x plain"),
            rates("logfs", size, ours),
            rates("plain", size, theirs),
        )


def feeding(bench: Bench) -> Iterator[Row]:
    """``logfs append`` beside ``cat >>``; what a run fills is removed, see ``appending``."""
    _compile()
    source, size = _source(bench)
    settle(bench.directory)
    of_file, of_pipe = ("", '"$3"'), ('cat "$3" |', "")
    for what, limit, (before, name), has_daemon in (
        ("logfs append FILE, no daemon", 0.5, of_file, False),
        ("logfs append FILE, by a daemon", 0.5, of_file, True),
        ("cat FILE | logfs append, by a daemon", 0.2, of_pipe, True),
    ):
        append = f'cd "$1" && {before} {_LOGFS} append --create "$2/t/0" {name}'
        plain = 'cat "$1" | cat >> "$2"' if before else 'exec cat "$1" >> "$2"'
        runs = [
            _append_run(bench, source, append, has_daemon=has_daemon),
            _plain_run(bench, source, plain),
        ]
        ours, theirs = alternate(runs, bench.pairs)
        yield compare(
            "feed",
            what,
            at_least(limit, "x plain"),
            rates("logfs", size, ours),
            rates("plain", size, theirs),
        )


def _append_run(
    bench: Bench, source: Path, command: str, *, has_daemon: bool
) -> Callable[[], float]:
    def run() -> float:
        data = bench.directory / "data"
        mount = mount_logfs(bench, data) if has_daemon else None
        data.mkdir(exist_ok=True)
        seconds, _ = timed_shell(command, ROOT, data, source)
        if mount is not None:
            mount.stop()
        log = data / "t-0" / f"{0:020}.log"
        if log.stat().st_size < source.stat().st_size:
            raise RuntimeError(f"{log} has {log.stat().st_size} bytes")
        shutil.rmtree(data)
        return seconds

    return run


def _plain_run(bench: Bench, source: Path, command: str) -> Callable[[], float]:
    target = bench.directory / "plain"

    def run() -> float:
        target.touch()
        seconds, _ = timed_shell(command, source, target)
        target.unlink()
        return seconds

    return run


def _source(bench: Bench) -> tuple[Path, int]:
    source = bench.directory / "source"
    return source, write_lines(source, bench.scaled(_SIZE_BYTES, _QUICK_BYTES))


def _command(arguments: str) -> str:
    return f'cd "$1" && {_LOGFS} {arguments}'


def _compile() -> None:
    compileall.compile_dir(ROOT / "logfs", quiet=1)
