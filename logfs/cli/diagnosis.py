"""What a bug report needs to know about a data directory, its daemon and this machine, as text.

It contains no records: neither keys nor values nor headers, no bytes of logs or unfinished lines.
The values of secret settings are replaced, and so are user names and passwords in URLs. A section
that fails says why, and the others are made all the same.

The report is often made by root, and the writer of the directory may be another user. So files of
the directory are read as the daemon reads them, never through links. The note of the daemon names
a process: its log is read only if it is root's or this user's.
"""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from logfs import __version__
from logfs.library.places import Place
from logfs.machine.daemonnote import DaemonNote, read_daemon_note

LOG_LINES = 500
"""How many of the daemon's last log lines are in a report."""

_PATIENCE_S = 20
_LOG_BYTES = 256 * 1024
_MOST_FILES = 20_000
_HIDDEN = "(hidden)"
_WORDS = r"(?:pass|secret|token|credential|jaas|private|api.?key|access.?key)"
_SECRET = re.compile(_WORDS, re.IGNORECASE)
_SETTING = re.compile(r"^(?P<head>\s*[\"']?(?P<key>[\w.\-]+)[\"']?\s*[=:]\s*)(?P<value>.+)$")
_IN_LINE = re.compile(
    rf"(?P<head>[\w.\-]*{_WORDS}[\w.\-]*[\"']?\s*[=:]\s*)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;\"']+)",
    re.IGNORECASE,
)
_USER = re.compile(r"(?<=://)[^/@\s\"']+@")


class Section(NamedTuple):
    """A part of a report: its title, and a function that makes its lines."""

    title: str
    make: Callable[[], Iterable[str]]


def hide_secrets(text: str) -> str:
    """Return text without the values of settings that are secret, and without users in URLs."""
    lines = []
    for line in text.splitlines():
        match = _SETTING.match(line)
        if match is not None and _SECRET.search(match["key"]):
            lines.append(match["head"] + _HIDDEN)
        else:
            lines.append(_USER.sub(f"{_HIDDEN}@", _IN_LINE.sub(rf"\g<head>{_HIDDEN}", line)))
    return "\n".join(lines)


def report(sections: Iterable[Section]) -> Iterator[str]:
    """Yield the text of a report, section by section."""
    for section in sections:
        yield f"== {section.title}\n"
        try:
            text = "\n".join(section.make())
        except Exception as error:  # noqa: BLE001 - the other sections are wanted all the more
            text = f"not available: {type(error).__name__}: {error}"
        yield hide_secrets(text) + "\n\n"


def sections_of(place: Place, data: str, status: Callable[[], Iterable[str]]) -> list[Section]:
    """Return the sections of a report.

    Args:
        place: The place that the user has named.
        data: Its data directory.
        status: Makes the lines of ``logfs status``.
    """
    note = read_daemon_note(data)
    return [
        Section("logfs", _versions),
        Section("machine", _machine),
        Section("limits and kernel", _kernel),
        Section("mounts", lambda: _mounts(data, place.root)),
        Section("status", status),
        Section("daemon", lambda: _daemon(note)),
        Section("log of the daemon", lambda: _log(note)),
        Section("configuration", _configuration),
        Section("settings of the directory", lambda: _settings(data)),
        Section("files", lambda: _files(data)),
    ]


def _versions() -> Iterator[str]:
    yield f"logfs {__version__} in {Path(__file__).parents[1]}"
    yield f"Python {sys.version.split()[0]} at {sys.executable}"
    names = {
        re.split(r"[\s<>=!~;\[]", line)[0] for line in importlib.metadata.requires("logfs") or []
    }
    for name in sorted(names):
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra that is not installed


def _machine() -> Iterator[str]:
    yield f"time {datetime.now(UTC).isoformat(timespec='seconds')}"
    yield f"kernel {platform.release()} {platform.version()} {platform.machine()}"
    yield from _lines_with(Path("/etc/os-release"), ("PRETTY_NAME",))
    yield f"processors {os.cpu_count()}, load {' '.join(f'{x:.2f}' for x in os.getloadavg())}"
    yield from _lines_with(Path("/proc/meminfo"), ("MemTotal", "MemAvailable", "Dirty"))
    yield f"user {os.geteuid()}"
    yield f"process 1 {Path('/proc/1/comm').read_text().strip()}"


def _kernel() -> Iterator[str]:
    for path in sorted(Path("/sys/module/fuse/parameters").glob("*")):
        yield f"fuse.{path.name}={path.read_text().strip()}"
    for name in (
        "vm/dirty_ratio",
        "vm/dirty_background_ratio",
        "vm/overcommit_memory",
        "fs/file-max",
    ):
        yield f"{name}={Path('/proc/sys', name).read_text().strip()}"
    fusermount = shutil.which("fusermount3")
    yield "no fusermount3" if fusermount is None else _run(fusermount, "--version").strip()
    yield from _lines_with(Path("/proc/self/limits"), ("Max open files", "Max locked memory"))


def _mounts(data: str, root: str) -> Iterator[str]:
    real = {os.path.realpath(path) for path in (data, root)}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split(" ")[4]
        is_below = any(path == point or path.startswith(point.rstrip("/") + "/") for path in real)
        if is_below or "fuse.logfs" in line:
            yield line
    found = os.statvfs(data)
    yield (
        f"{data}: {found.f_bavail * found.f_frsize} of {found.f_blocks * found.f_frsize} bytes "
        f"free, {found.f_favail} of {found.f_files} inodes free"
    )


def _daemon(note: DaemonNote | None) -> Iterator[str]:
    if note is None:
        yield "no daemon serves the directory"
        return
    process = Path(f"/proc/{note.pid}")
    yield f"process {note.pid} at {note.mount_point}"
    yield "command " + " ".join(_command(note.pid))
    wanted = ("VmRSS", "VmHWM", "VmSwap", "Threads", "State", "Uid")
    yield from _lines_with(process / "status", wanted)
    yield f"descriptors {len(list((process / 'fd').iterdir()))}"
    yield from _lines_with(process / "limits", ("Max open files",))
    yield from (process / "cgroup").read_text().splitlines()


def _is_trusted(pid: int) -> bool:
    return Path(f"/proc/{pid}").stat().st_uid in (0, os.geteuid())


def _command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]


def _log(note: DaemonNote | None) -> Iterator[str]:
    if note is None:
        yield from _journal("logfs@*")
        return
    if not _is_trusted(note.pid):
        yield f"process {note.pid} is another user's: its log is not read"
        return
    command = _command(note.pid)
    files = [b for a, b in pairwise(command) if a == "--log-file"]
    files += [word.partition("=")[2] for word in command if word.startswith("--log-file=")]
    errors = os.path.realpath(f"/proc/{note.pid}/fd/2")
    if Path(errors).is_file():
        files.append(errors)
    for path in dict.fromkeys(files):
        yield f"-- {path}"
        yield from _last_lines(Path(path))
    unit = Path(f"/proc/{note.pid}/cgroup").read_text().strip().rpartition("/")[2]
    if unit.endswith(".service"):
        yield from _journal(unit)


def _journal(unit: str) -> Iterator[str]:
    if shutil.which("journalctl") is None:
        yield "no journal here"
        return
    yield f"-- journal of {unit}"
    yield _run(
        "journalctl", "--no-pager", "--quiet", "-o", "short-iso", "-n", str(LOG_LINES), "-u", unit
    )


def _last_lines(path: Path) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
        return file.read().decode(errors="replace").splitlines()[-LOG_LINES:]


def _configuration() -> Iterator[str]:
    for path in sorted(Path("/etc/logfs").glob("*.toml")):
        yield f"-- {path}"
        yield path.read_text()
    for line in Path("/etc/fstab").read_text().splitlines():
        if "logfs" in line:
            yield f"/etc/fstab: {line}"


def _settings(data: str) -> Iterator[str]:
    """Yield the small files of the directory that are settings, and of each topic its own once."""
    from logfs.disk.posix import PosixDisk
    from logfs.log import names

    disk = PosixDisk(data)
    topics = [name for name, is_directory in disk.list("") if is_directory and name.endswith("-0")]
    files = [names.META_PROPERTIES, names.REMOTE, *(f"{t}/{names.TOPIC_CONFIG}" for t in topics)]
    for name in files:
        try:
            text = disk.read(name).decode(errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            text = str(error)
        yield f"-- {name}"
        yield text


def _files(data: str) -> Iterator[str]:
    """Yield size, time and name of each file, as far as they are not too many."""
    count = 0
    for directory, names_below, files in os.walk(data):
        names_below.sort()
        for name in sorted(files):
            count += 1
            if count > _MOST_FILES:
                yield f"and more: only the first {_MOST_FILES} files are listed"
                return
            path = Path(directory, name)
            found = path.lstat()
            when = datetime.fromtimestamp(found.st_mtime, UTC).isoformat(timespec="seconds")
            blocks = found.st_blocks * 512
            yield f"{found.st_size:>14} {blocks:>14} {when} {path.relative_to(data)!s}"


def _lines_with(path: Path, starts: tuple[str, ...]) -> Iterator[str]:
    for line in path.read_text().splitlines():
        if line.startswith(starts):
            yield re.sub(r"\s+", " ", line).strip()


def _run(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PATIENCE_S)
    return done.stdout or done.stderr
