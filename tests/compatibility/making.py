"""Write the data directories of a version, for all later versions to open.

    python tests/compatibility/making.py tests/compatibility/0.2.0.tar.xz [PYTHON]

The logfs of PYTHON (default: this interpreter) writes them, by its command line and a mount alone.
So each version makes the same. The archive has

    clean/         after a clean stop
    killed/        while a daemon writes; a line of ``lines/0`` is not finished
    expected.json  what ``logfs cat`` of that version prints, for each name in each directory, and
                   after its recovery of ``killed``

Nothing of this tree is imported, so that it runs with every version.
"""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

SMALL = ("internal.segment.bytes=1500", "max.message.bytes=1400", "index.interval.bytes=200")
"""So that a few lines make several segments, and their indexes several entries."""
COMPACTED = ("cleanup.policy=compact", "delete.retention.ms=1000000000000")
COMPRESSED = ("compression.type=zstd",)
PACKED = ("logfs.sealed.compression.type=zstd",)
"""Since 0.2.0."""
TOPICS = ("lines", "keyed", "compacted", "compressed", "trimmed", "spread", "packed")
ENDS = ("", ".tsv", ".jsonl", "@offset=50", "@offset=50.jsonl", "@byte=2000")
"""What the names of a partition end in that are read."""
_PATIENCE_S = 60.0
_LINES = b"".join(b"line %03d %s\n" % (n, b"." * (n * 7 % 61)) for n in range(80))
_PAIRS = b"".join(b"key %d\tvalue %d\n" % (n % 7, n) for n in range(60))
_OBJECTS = b"".join(
    json.dumps(
        {
            "timestamp": 1_700_000_000_000 + 1000 * n,
            "key": f"k{n % 5}" if n % 4 else None,
            "value": f"value {n}\nof two lines" if n % 6 else None,
            "headers": [["number", str(n)]] if n % 3 else [],
        }
    ).encode()
    + b"\n"
    for n in range(40)
)


class Version:
    """The logfs of an interpreter."""

    def __init__(self, python: str) -> None:
        self._command = (python, "-m", "logfs")
        self._environment = {**os.environ, "TZ": "UTC0", "LC_ALL": "C.UTF-8"}

    def __call__(self, *arguments: str | Path, data: bytes = b"") -> bytes:
        """Run a command, which has to succeed, and return what it prints."""
        command = [*self._command, *map(str, arguments)]
        done = subprocess.run(
            command, input=data, capture_output=True, env=self._environment, cwd="/", check=False
        )
        if done.returncode:
            raise SystemExit(f"{command}: {done.returncode}\n{done.stderr.decode()}")
        return done.stdout

    def mount(self, data: Path, point: Path) -> "subprocess.Popen[bytes]":
        """Mount a directory; return its daemon once it answers."""
        command = [*self._command, "mount", str(data), str(point)]
        daemon = subprocess.Popen(command, env=self._environment, cwd="/")
        deadline_s = time.monotonic() + _PATIENCE_S
        while not os.path.ismount(point) or not (point / "lines").is_dir():
            if daemon.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f"{command}: does not answer")
            time.sleep(0.02)
        return daemon


def write_topics(logfs: Version, data: Path) -> None:
    """Write the topics of a directory, which is not mounted."""
    data.mkdir()
    made = {
        "lines": (1, ()),
        "keyed": (1, ()),
        "compacted": (1, COMPACTED),
        "compressed": (1, COMPRESSED),
        "trimmed": (1, ()),
        "spread": (3, ()),
        "deleted": (1, ()),
    }
    if _knows_packing(logfs):
        made["packed"] = (1, PACKED)
    for topic, (partitions, settings) in made.items():
        options = [word for one in (*SMALL, *settings) for word in ("--config", one)]
        logfs("topic", "create", data / topic, "--partitions", str(partitions), *options)
    logfs("append", data / "lines/0", data=_LINES)
    logfs("append", data / "keyed/0.jsonl", data=_OBJECTS)
    logfs("append", data / "compacted/0.tsv", data=_PAIRS)
    logfs("compact", data / "compacted", "--roll")
    logfs("append", data / "compacted/0.tsv", data=_first(_PAIRS, 8))
    for _ in range(4):
        logfs("append", data / "compressed/0", data=_first(_LINES, 30))
    logfs("append", data / "trimmed/0", data=_LINES)
    logfs("trim", "--now", data / "trimmed/0@offset=47")
    logfs("append", data / "spread", "--key-delimiter", "\t", data=_PAIRS)
    logfs("append", data / "deleted/0", data=_first(_LINES, 8))
    if "packed" in made:
        logfs("append", data / "packed/0", data=_LINES)
        logfs("pack", data / "packed", "--roll")
        logfs("append", data / "packed/0", data=_first(_LINES, 9))


def _first(lines: bytes, count: int) -> bytes:
    return b"".join(lines.splitlines(keepends=True)[:count])


def _knows_packing(logfs: Version) -> bool:
    return b"  pack " in logfs("--help")


def write_through_mount(logfs: Version, data: Path, point: Path, killed: Path) -> None:
    """Append through a mount; copy the directory while a line is not finished, then stop it."""
    point.mkdir()
    daemon = logfs.mount(data, point)
    try:
        with (point / "lines/0").open("ab", buffering=0) as file:
            file.write(b"through the mount\nnot fini")
            os.kill(daemon.pid, signal.SIGSTOP)
            shutil.copytree(data, killed, ignore=shutil.ignore_patterns("*.socket"))
            os.kill(daemon.pid, signal.SIGCONT)
            file.write(b"shed\n")
        logfs("topic", "delete", point / "deleted")
    finally:
        daemon.terminate()
        daemon.wait(_PATIENCE_S)


def names_of(data: Path) -> list[str]:
    """Return the names of a directory that are read."""
    partitions = [
        f"{topic}/{directory.name.rpartition('-')[2]}"
        for topic in TOPICS
        for directory in sorted(data.glob(f"{topic}-*"))
    ]
    return [partition + end for partition in partitions for end in ENDS]


def printed_by(logfs: Version, data: Path) -> dict[str, str]:
    """Return what the version prints for each name of a directory."""
    return {name: logfs("cat", data / name).decode() for name in names_of(data)}


def make(archive: Path, python: str) -> None:
    """Write the archive of a version."""
    logfs = Version(python)
    with tempfile.TemporaryDirectory() as folder:
        clean, killed = Path(folder) / "clean", Path(folder) / "killed"
        write_topics(logfs, clean)
        write_through_mount(logfs, clean, Path(folder) / "mnt", killed)
        copy = Path(folder) / "copy"
        shutil.copytree(killed, copy)  # to read it may change it
        expected = {"clean": printed_by(logfs, clean), "killed": printed_by(logfs, copy)}
        logfs("topic", "create", copy / "new")  # so that it opens the directory as its owner
        expected["recovered"] = printed_by(logfs, copy)
        with tarfile.open(archive, "w:xz") as output:
            for data in (clean, killed):
                output.add(data, data.name)
            text = json.dumps(expected, indent=1).encode()
            entry = tarfile.TarInfo("expected.json")
            entry.size = len(text)
            output.addfile(entry, io.BytesIO(text))


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else sys.executable)
