"""What takes long to make is made once, for all sessions and processes, and kept outside the tree.

    entry = kept("sanitized", [*sources, *flags], compile_into)      a directory, whole and as made

It is in ``$XDG_CACHE_HOME/logfs`` (``~/.cache/logfs``): jars, programs, compiled tests, directories
that a broker wrote. The name of an entry has the checksum of what it was made of, so that a change
of a source makes another entry. One process makes it, under a lock, in a directory with another
name; the others wait. An entry has a list of its files with their checksums: one that is damaged or
incomplete is made again, and one that no session has used for a month is removed.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

SUMS = "SHA256SUMS"
"""The file of an entry with the checksums of the others."""
_KEPT_S = 30 * 86_400
_LOCKS = "locks"


def place() -> Path:
    """Return where all of this is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "logfs"


def checksum(made_of: Iterable[str | Path]) -> str:
    """Return the name of what something is made of: texts, and the contents of files."""
    found = hashlib.sha256()
    for part in made_of:
        data = (
            part.read_bytes() if isinstance(part, Path) else part.encode(errors="surrogateescape")
        )
        found.update(b"%d %s" % (len(data), data))
    return found.hexdigest()[:16]


def kept(name: str, made_of: Iterable[str | Path], make: Callable[[Path], None]) -> Path:
    """Return a directory that is made unless it is there; nothing in it may be changed.

    Args:
        name: What the names of its entries begin with.
        made_of: Everything that decides what ``make`` makes; see ``checksum``.
        make: Fills an empty directory.
    """
    directory = place() / "tests" / f"{name}-{checksum(made_of)}"
    with _locked(directory.name):
        if not _is_whole(directory):
            shutil.rmtree(directory, ignore_errors=True)
            _remove_unused(directory.parent)
            filled(directory, lambda folder: _make_with_sums(folder, make))
        os.utime(directory)
    return directory


def since(name: str, most_s: float) -> str:
    """Return when a period has begun that lasts so long; the same for all sessions in it.

    What gets old may have it among what it is made of. A period begins when it is first asked for.
    """
    with _locked(name):
        begun = place() / _LOCKS / f"{name}.begun"
        if not begun.exists() or not 0 <= time.time() - begun.stat().st_mtime < most_s:
            begun.touch()
        return str(begun.stat().st_mtime_ns)


def filled(directory: Path, fill: Callable[[Path], None]) -> Path:
    """Return a directory that is filled unless it is there.

    Args:
        directory: Whole if it is there, for it is filled under another name.
        fill: Fills an empty directory. What it raises leaves nothing there.
    """
    if directory.is_dir():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=directory.parent) as folder:
        unfinished = Path(folder) / "filled"
        unfinished.mkdir()
        fill(unfinished)
        try:
            unfinished.rename(directory)
        except OSError:
            # Another process was quicker; its directory is complete.
            if not directory.is_dir():
                raise
    return directory


def sums_of(directory: Path) -> str:
    """Return the list of a directory's files, as of sha256sum."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != SUMS)
    return "".join(f"{_sum_of(path)}  {path.relative_to(directory)}\n" for path in files)


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    """Keep other processes from the entry; a process that is killed gives its lock back."""
    locks = place() / _LOCKS
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_with_sums(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder)
    (folder / SUMS).write_text(sums_of(folder))


def _is_whole(directory: Path) -> bool:
    try:
        return (directory / SUMS).read_text() == sums_of(directory)
    except OSError:
        return False


def _sum_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove_unused(entries: Path) -> None:
    """Remove what was not used for long; sources that are gone made it."""
    for path in entries.glob("*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _KEPT_S:
                shutil.rmtree(path)
