"""Daemons on a disk that hangs under the files of one topic, and programs that use the others."""

import mmap
import os
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from tests.compiling import compiled
from tests.fs.mounting import Mounted
from tests.mounting import COMMAND
from tests.processes import wait_until

READ, WRITE, SYNC, OPEN, CREATE = (1 << bit for bit in range(5))
APPEND = os.O_WRONLY | os.O_APPEND
PATIENCE_S = 30
LINE, HALF = b"line\n", b"half"
OPTIONS = ("native", "no_native")


class Disk:
    """What hangs: calls of some kinds on files whose path has a part."""

    def __init__(self, folder: Path) -> None:
        source, control = Path(__file__).with_name("hanging.c"), folder / "hanging"
        library = compiled("hanging.so", "-O1", "-shared", "-fPIC", source, "-ldl")
        control.write_bytes(bytes(4096))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 4096)
        self.variables = {"LD_PRELOAD": str(library), "HANGING": str(control)}

    def hang(self, kinds: int, path: str) -> None:
        self._control[4:256] = struct.pack("=i248s", 0, path.encode())
        self._control[:4] = struct.pack("=i", kinds)

    @property
    def hits(self) -> int:
        return int(struct.unpack("=i", self._control[4:8])[0])

    def go_on(self) -> None:
        self._control[:4] = bytes(4)


class Files:
    """The open files of both topics."""

    def __init__(self, point: Path) -> None:
        self.point = point
        self.bad, self.good = (self._open(topic) for topic in ("bad", "good"))

    def _open(self, topic: str) -> int:
        file = os.open(self.point / topic / "0", APPEND)
        for _ in range(60):  # so many that the native thread reads requests
            os.write(file, LINE)
        os.fsync(file)
        return file

    def close(self) -> None:
        for file in (self.bad, self.good):
            os.close(file)

    def open_and_append(self, topic: str) -> None:
        file = os.open(self.point / topic / "0", APPEND)
        os.write(file, LINE)
        os.close(file)

    def make_and_remove(self) -> None:
        topic = self.point / "passing"
        topic.mkdir()
        topic.rmdir()

    def status(self) -> None:
        command = [*COMMAND, "status", str(self.point / "good")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def others(self) -> dict[str, Callable[[], object]]:
        """What programs do that has nothing to do with the topic whose disk hangs."""
        good = self.point / "good"
        return {
            "append": lambda: os.write(self.good, LINE),
            "large append": lambda: os.write(self.good, 100_000 * b"x" + b"\n"),
            "half line": lambda: os.write(self.good, HALF),
            "fsync": lambda: os.fsync(self.good),
            "open, append and close": lambda: self.open_and_append("good"),
            "cat": (good / "0").read_bytes,
            "cat of a fixed name": (good / "0@earliest..latest").read_bytes,
            "look-up of a time": lambda: os.stat(good / "0@-1m"),
            "stat": lambda: os.stat(good / "0"),
            ".meta": (good / "0.meta").read_bytes,
            "ls": lambda: os.listdir(self.point),
            "ls of the topic": lambda: os.listdir(good),
            "mkdir": lambda: os.mkdir(self.point / f"new{len(os.listdir(self.point))}"),
            "touch of a partition": lambda: (good / f"{len(os.listdir(good))}").touch(),
            "chmod": lambda: good.chmod(0o750),
            "alteration": lambda: os.setxattr(good, "user.logfs.retention.ms", b"600000"),
            "mkdir and rmdir": self.make_and_remove,
            "logfs status": self.status,
            "statvfs": lambda: os.statvfs(self.point),
        }


def long_line(files: Files) -> None:
    os.write(files.bad, 200_000 * b"y" + b"\n")


def write_and_sync(files: Files) -> None:
    os.write(files.bad, LINE)
    os.fsync(files.bad)


def touch_a_partition(files: Files) -> None:
    os.close(os.open(files.point / "bad" / "1", os.O_CREAT | os.O_WRONLY))


def alter(files: Files) -> None:
    os.setxattr(files.point / "bad", "user.logfs.retention.ms", b"600000")


def close_half_a_line(files: Files) -> None:
    os.close(files.bad)


CALLS: dict[str, tuple[int, Callable[[Files], object]]] = {
    "append": (WRITE, lambda files: os.write(files.bad, LINE)),
    "half line": (WRITE, lambda files: os.write(files.bad, HALF)),
    "long line": (WRITE, long_line),
    "fsync": (SYNC, write_and_sync),
    "close with half a line": (WRITE, close_half_a_line),
    "first append of a file": (WRITE, lambda files: files.open_and_append("bad")),
    "look-up of a time": (READ | OPEN, lambda files: os.stat(files.point / "bad" / "0@-1m")),
    "fixed name": (READ | OPEN, lambda files: (files.point / "bad/0@1..9.jsonl").read_bytes()),
    ".meta": (READ | OPEN, lambda files: (files.point / "bad/0.meta").read_bytes()),
    "touch of a partition": (OPEN, touch_a_partition),
    "alteration": (OPEN, alter),
    "roll": (CREATE, lambda files: [os.write(files.bad, 3000 * b"r" + b"\n") for _ in range(9)]),
}


SEGMENTED = {"look-up of a time", "fixed name", "roll"}
"""They need a topic with several segments."""


def check(mounted: Mounted, disk: Disk, name: str) -> None:
    """Have a call hang, and do everything else meanwhile."""
    kinds, call = CALLS[name]
    files = Files(mounted.point)
    if name.startswith("close"):
        os.write(files.bad, HALF)
    disk.hang(kinds, "/bad-1" if name.startswith("touch") else "/bad-0/")
    bad = threading.Thread(target=call, args=(files,), daemon=True)
    bad.start()
    wait_until(lambda: disk.hits > 0, f"{name} has reached the disk")
    for other, step in files.others().items():
        thread = threading.Thread(target=step, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        is_over = not thread.is_alive()
        if not is_over:
            disk.go_on()
        assert is_over, f"{other} waits while {name} hangs"
    disk.go_on()
    bad.join(PATIENCE_S)
    assert not bad.is_alive(), name
    if name.startswith("close"):
        files.bad = os.dup(files.good)
    files.close()


def check_others(folder: Path, option: str, *names: str) -> None:
    """Have calls hang one after the other, in their own mount."""
    disk, options = Disk(folder), [option] * (option != "native")
    with Mounted(folder, *options, variables=disk.variables) as mounted:
        for topic in ("bad", "good"):
            (mounted.point / topic).mkdir()
        if SEGMENTED & set(names):
            for name, value in (("max.message.bytes", 4000), ("internal.segment.bytes", 12_000)):
                os.setxattr(mounted.point / "bad", f"user.logfs.{name}", str(value).encode())
            with (mounted.point / "bad" / "0").open("ab") as file:
                file.writelines([3000 * b"r" + b"\n"] * 40)
            mounted.restart()  # no file of a segment is open then
        try:
            for name in names:
                check(mounted, disk, name)
        finally:
            disk.go_on()
