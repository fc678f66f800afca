"""Programs and libraries in C of the tests, compiled once for all sessions: see ``tests.cache``."""

import functools
import subprocess
from pathlib import Path

from tests import cache


def compiled(name: str, *arguments: str | Path) -> Path:
    """Return a program, or with ``-shared`` a library; nothing may be written beside it.

    It is compiled again if the compiler, an argument, or what the preprocessor makes of the sources
    has changed, and with that any header.

    Args:
        name: The name of its file.
        arguments: Sources and flags of cc, without ``-o``.
    """
    words = [str(word) for word in arguments]
    text = subprocess.run(["cc", "-E", *words], check=True, capture_output=True).stdout
    made_of = [_compiler(), *words, text.decode(errors="surrogateescape")]

    def make(directory: Path) -> None:
        subprocess.run(["cc", *words, "-o", str(directory / name)], check=True)

    return cache.kept(f"compiled-{name}", made_of, make) / name


@functools.cache
def _compiler() -> str:
    return subprocess.run(["cc", "--version"], check=True, capture_output=True, text=True).stdout
