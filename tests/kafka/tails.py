"""A program that follows a file, and the files that a process has open."""

import os
import subprocess
import threading
from pathlib import Path
from typing import Self


class Tail:
    """``tail -c +1 -f``: everything from the start, then what comes."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            ["tail", "-c", "+1", "-s", "0.1", "-f", path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._output, self._errors = self._process.stdout, self._process.stderr
        self._data = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def lines(self) -> list[bytes]:
        return bytes(self._data).split(b"\n")[:-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it; it must not have complained."""
        self._process.kill()
        self._thread.join()
        self._process.wait()
        with self._output, self._errors:
            complaints = self._errors.read()
        assert not complaints, complaints

    def _read(self) -> None:
        while data := os.read(self._output.fileno(), 1 << 16):
            self._data += data


def files_open_for_writing(pid: int, below: Path) -> list[str]:
    """Return the files below a directory that a process has open for anything but reading."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
            flags = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text().splitlines()[1]
            if os.readlink(entry) != target:
                continue  # the number means another file by now
        except FileNotFoundError:
            continue
        if target.startswith(f"{below}/") and int(flags.split()[1], 8) & os.O_ACCMODE:
            found.append(target)
    return found


def foreign_names(below: Path) -> list[str]:
    """Return what is logfs's own in a directory."""
    return [str(path) for path in below.rglob("*") if "logfs" in path.name or
            path.suffix == ".textindex"]  # fmt: skip
