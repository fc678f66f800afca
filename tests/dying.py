"""Processes that are killed with ``kill -9`` before, or after, one of their writes to a log.

A program of the tests dies of itself; any other Python program by a ``sitecustomize`` before
its path: ``Mount(..., variables=dying_variables(directory))``.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from logfs.disk.posixfile import PosixFile
from logfs.disk.vfs import ReadableBuffer

WRITES = 3
"""At which write to a log it happens."""


def die_once(marker: Path, victim: int = 0) -> None:
    """Kill a process, by default this one; not if the file is there, which is made before."""
    if not marker.exists():
        marker.touch()
        os.kill(victim or os.getpid(), signal.SIGKILL)


def die_while_writing(
    die: Callable[[], None], *, is_behind: bool = False, suffix: str = ".log", at: int = WRITES
) -> None:
    """Have this process die before a write to a log, or after it.

    Args:
        die: Called once or more.
        is_behind: After it.
        suffix: The end of the names of files whose writes are numbered.
        at: The number of the write.
    """
    pwrite, seen = PosixFile.pwrite, 0

    def dying(self: PosixFile, data: ReadableBuffer, position: int) -> None:
        nonlocal seen
        seen += self._path.endswith(suffix)
        if is_behind:
            pwrite(self, data, position)
        if seen == at:
            die()
        if not is_behind:
            pwrite(self, data, position)

    PosixFile.pwrite = dying  # type: ignore[method-assign]


def dying_variables(directory: Path, marker: Path, **options: object) -> dict[str, str]:
    """Return variables that have any Python program die so, once; a directory is filled for it.

    Args:
        directory: Does not exist.
        marker: The file that is there once a program has died.
        options: Those of ``die_while_writing``.
    """
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(
        "from pathlib import Path\n"
        "from tests.dying import die_once, die_while_writing\n"
        f"die_while_writing(lambda: die_once(Path({str(marker)!r})), **{options!r})\n"
    )
    return {"PYTHONPATH": f"{directory}:{Path(__file__).parents[1]}"}
