"""What logfs and the tool of the broker print of the same files.

The tool is asked once about the same bytes, see ``tests.kafka.written``.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests import cache
from tests.cli.conftest import Outcome, run
from tests.kafka import jars
from tests.kafka.tools import DUMP_LOG
from tests.kafka.written import answered
from tests.mounting import PATIENCE_S

UTF8 = "-Dsun.stdout.encoding=UTF-8"
"""Java prints in the encoding of the locale, logfs in UTF-8."""


_PLACE = b"/the place of the files/"
REFUSED = "Batches that readers refuse in "
"""How the findings begin that the tool does not have."""


def _shared(findings: Sequence[str]) -> Iterator[str]:
    """Yield the findings of kinds that the tool has, too."""
    is_ours = False
    for line in findings:
        if not line.startswith(" "):
            is_ours = line.startswith(REFUSED)
        if not is_ours:
            yield line


def compare(
    files: Sequence[Path], *options: str, is_read: bool = True, refused: Sequence[Path] = ()
) -> Outcome:
    """Print files with both, demand the same, and return it.

    Where the tool gives up (not ``is_read``), its stderr is a Java stack. Only logfs names the
    batches that readers refuse: in the files ``refused``, and in no other.
    """
    theirs = _printed_by_the_tool(files, options)
    ours = run("dump", *options, "--files", ",".join(map(str, files)))
    assert ours.out == theirs.stdout
    if is_read:
        assert theirs.returncode == 0, theirs.stderr
        assert [line for line in ours.errors if line.startswith(REFUSED)] == [
            f"{REFUSED}{file}" for file in refused
        ]
        errors = list(_shared(ours.errors))
        # Of several files the tool's findings come in the order of a hash table.
        assert sorted(errors) == sorted(theirs.stderr.decode().splitlines())
        assert len(files) > 1 or errors == theirs.stderr.decode().splitlines()
        return ours
    assert (theirs.returncode, ours.status, len(ours.errors)) == (1, 1, 1)
    return ours


def _printed_by_the_tool(
    files: Sequence[Path], options: Sequence[str]
) -> "subprocess.CompletedProcess[bytes]":
    """Return what it has printed of files with these bytes; their place is no part of it."""
    place = os.path.commonpath([file.parent for file in files]).encode() + b"/"
    names = ",".join(map(str, files))

    def ask(_: Path) -> tuple[int, bytes, bytes]:
        java, *rest = jars.command(DUMP_LOG, [*options, "--files", names])
        done = subprocess.run(
            [java, UTF8, *rest], check=False, capture_output=True, timeout=PATIENCE_S
        )
        out, errors = (text.replace(place, _PLACE) for text in (done.stdout, done.stderr))
        return done.returncode, out, errors

    told = names.encode().replace(place, _PLACE).decode()
    status, *printed = answered("dump", ask, *options, told, cache.checksum(files))
    out, errors = (text.replace(_PLACE, place) for text in printed)
    return subprocess.CompletedProcess(names, status, out, errors)
