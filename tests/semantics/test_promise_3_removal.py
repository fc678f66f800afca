"""Promise 3 of SEMANTICS.md, through a mount: readers beside everything that removes records."""

import os
import re
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from logfs.client import Daemon
from logfs.errors import CleaningAbortedError, OffsetOutOfRangeError
from tests.mounting import Mount
from tests.semantics.programs import configure, meta

pytestmark = pytest.mark.fuse

SECONDS = 3.0
KEYS = 50
OPTIONS = (
    "log.retention.check.interval.ms=100",
    "log.initial.task.delay.ms=50",
    "log.cleaner.backoff.ms=100",
)
SMALL = {"internal.segment.bytes": "20000", "index.interval.bytes": "500"}


def line(number: int) -> bytes:
    """A record in ``.tsv``: its value ends with a checksum of the line."""
    body = b"k%d\t%d %s" % (number % KEYS, number, b"#" * (number * 7919 % 211))
    return b"%s %08x\n" % (body, zlib.crc32(body))


def number_of(text: bytes) -> int | None:
    """Return the number of a line; None if no writer wrote it."""
    found = re.fullmatch(rb"((k\d+\t)(\d+) #*) ([0-9a-f]{8})", text)
    if found is None or zlib.crc32(found[1]) != int(found[4], 16):
        return None
    return int(found[3])


@dataclass
class Bystanders:
    """Threads at work until they are told to stop, and what is wrong with what they saw.

    Attributes:
        lines: How many lines were read, by reader.
    """

    wrong: list[tuple[str, object]] = field(default_factory=list)
    lines: Counter[str] = field(default_factory=Counter)
    stop: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, call: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=self._run, args=(call, *arguments))
        self.threads.append(thread)
        thread.start()

    def _run(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except OSError as error:
            self.wrong.append((call.__name__, error))

    def write(self, path: Path) -> None:
        """Append a few lines at a time."""
        random, number = Random(1), 0
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        while not self.stop.is_set():
            count = random.choice((1, 1, 20, 200))
            os.write(file, b"".join(line(number + n) for n in range(count)))
            number += count
            time.sleep(random.random() * 0.02)
        os.close(file)

    def read(self, path: Path, size: int) -> None:
        """Read on with one size, now and then so late that records are removed before."""
        who, random, rest, last = f"{path.name} {size}", Random(size), b"", -1
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        while not self.stop.is_set():
            try:
                piece = os.read(file, size)
            except BlockingIOError:  # a name that is followed, at its end
                piece = b""
            if not piece:
                time.sleep(0.005)
                continue
            *lines, rest = (rest + piece).split(b"\n")
            for text in lines:
                number = number_of(text)
                if number is None or number <= last:
                    self.wrong.append((who, (text, last)))
                else:
                    last = number
            self.lines[who] += len(lines)
            if random.random() < 0.02:
                time.sleep(random.random() * 0.4)
        os.close(file)

    def remove(self, data: Path) -> None:
        """Trim, compact and have retention look, again and again."""
        random = Random(2)
        while not self.stop.is_set():
            time.sleep(random.random() * 0.05)
            ask: tuple[str, dict[str, object]] = random.choice(
                [
                    ("trim", {"names": ["kept", "0@offset=-300"], "at_once": True}),
                    ("compact", {"topic": "latest", "partition": 0, "roll": True}),
                    ("retention", {}),
                ]
            )
            daemon = Daemon.connect(str(data))
            assert daemon is not None
            with daemon:
                try:
                    daemon.ask(*ask)
                except (CleaningAbortedError, OffsetOutOfRangeError):
                    continue  # the log has changed meanwhile


def test_every_line_that_is_read_was_written(tmp_path: Path) -> None:
    """A reader that is inside a record when the record is removed first reads it to its end."""
    with Mount(tmp_path / "data", tmp_path / "mnt", *OPTIONS) as mount:
        root, others = mount.point, Bystanders()
        (root / "kept").mkdir()
        (root / "latest").mkdir()
        configure(root / "kept", **SMALL, **{"retention.bytes": "150000"})
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        configure(root / "latest", **SMALL, **compacted)
        for topic in ("kept", "latest"):
            others.start(others.write, root / topic / "0.tsv")
            for size in (333, 4096, 1 << 20):
                others.start(others.read, root / topic / "0.tsv", size)
        others.start(others.remove, mount.data)
        time.sleep(SECONDS)
        others.stop.set()
        for thread in others.threads:
            thread.join()
        assert others.wrong == []
        assert all(others.lines[f"0.tsv {size}"] for size in (333, 4096, 1 << 20))
        losses = [meta(root / topic / "0")["losses"] for topic in ("kept", "latest")]
        assert losses == [[], []]
