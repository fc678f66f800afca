"""``kill -9`` beside writers of odd sizes, fsync, retention, compaction and control requests.

Some kills, and with ``make test-long`` hundreds. Every acknowledged line is there, again only if
the program repeated a write that had failed; nothing is there that no program wrote; the newest
value of each key is the newest that was acknowledged.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from random import Random

import pytest

from logfs.client import Daemon
from logfs.errors import LogfsError
from tests.long import KILLS, Limits
from tests.mounting import Mount
from tests.semantics.appender import DEAD, close, make_line
from tests.semantics.programs import meta

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.slow,
]
KEYS = 5
OPTIONS = (
    "log.retention.check.interval.ms=200",
    "log.initial.task.delay.ms=50",
    "log.cleaner.backoff.ms=200",
    "log.segment.delete.delay.ms=500",
)
SMALL = {"internal.segment.bytes": "40000", "index.interval.bytes": "500"}
TOPICS = {
    "all": {"retention.ms": "-1"},
    "young": {"retention.bytes": "150000", "retention.ms": "-1"},
    "keys": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
}
WRITERS = {
    "a": ("all/0", (97,)),
    "b": ("all/0", (1, 250, 33)),
    "d": ("all/0", (10_007, 3)),
    "e": ("young/0", (511, 9_537)),
    "f": ("young/0", (300,)),
    "g": ("keys/0.tsv", (120, 7)),
    "h": ("keys/0.tsv", (2_000, 77)),
}


class Writer(threading.Thread):
    """A program that appends numbered lines, and repeats what was not acknowledged as a whole.

    Attributes:
        acknowledged: All lines before this one are.
        tried: Lines that were given to a write.
        again: How often each line was repeated.
    """

    def __init__(self, name: str, mount: Mount, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.file, sizes = WRITERS[name]
        self._path = mount.point / self.file
        self._sizes = cycle(sizes)
        self._random = Random(name)
        self._stop_event = stop
        self.acknowledged = self.tried = 0
        self.again: Counter[int] = Counter()

    def line(self, number: int) -> bytes:
        key = b"%s%d\t" % (self.name.encode(), number % KEYS) if "tsv" in self.file else b""
        return key + make_line(self.name, number)

    def run(self) -> None:
        while not self._stop_event.is_set():
            try:
                descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            except OSError:
                time.sleep(0.01)
                continue
            try:
                self._append(descriptor)
            except OSError as error:
                if error.errno not in DEAD:
                    raise
            finally:
                close(descriptor)
            self.again.update(range(self.acknowledged, self.tried))

    def _append(self, descriptor: int) -> None:
        rest, sent = b"", 0
        while rest or not self._stop_event.is_set():
            first = self.acknowledged
            while len(rest) < 10_000 and not self._stop_event.is_set():
                rest += self.line(first + rest.count(b"\n"))
            data = rest[sent : sent + next(self._sizes)]
            if self._stop_event.is_set():
                data = rest[sent:]
            self.tried = max(self.tried, first + rest[: sent + len(data)].count(b"\n") + 1)
            sent += os.write(descriptor, data)
            done = rest.rfind(b"\n", 0, sent) + 1
            self.acknowledged += rest.count(b"\n", 0, done)
            rest, sent = rest[done:], sent - done
            if self._random.random() < 0.02:
                os.fsync(descriptor)
            time.sleep(0.002)

    def is_piece(self, text: bytes) -> bool:
        """Whether a line is the beginning of one whose write failed."""
        return any(self.line(number).startswith(text) for number in self.again)


def requests(mount: Mount, stop: threading.Event, counts: Counter[str]) -> None:
    """Ask the daemon for what changes the segments, as long as it answers."""
    random = Random(1)
    while not stop.wait(0.05 * random.random()):
        name, arguments = random.choice(
            [
                ("roll", {"topic": random.choice(list(TOPICS)), "partition": 0}),
                ("trim", {"names": ["young", f"0@offset=-{random.randint(50, 500)}"],
                          "at_once": random.random() < 0.5}),
                ("compact", {"topic": "keys", "partition": 0, "roll": random.random() < 0.5}),
                ("retention", {}),
                ("flush", {"topic": "all", "partition": 0}),
                ("point", {"topic": "keys", "partition": 0}),
            ]
        )  # fmt: skip
        try:
            daemon = Daemon.connect(str(mount.data))
            if daemon is not None:
                with daemon:
                    daemon.ask(name, arguments)
                counts["requests"] += 1
        except (OSError, LogfsError):
            counts["requests refused, or cut off by a kill"] += 1


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def check(writers: list[Writer], file: str, found: list[bytes]) -> int:
    """Compare what is there with what the programs know; returns how many lines were looked for."""
    mine = [writer for writer in writers if writer.file == file]
    there = Counter(found)
    checked = 0
    for writer in mine:
        begin = 0
        if file != "all/0":  # what is left is the end
            present = [n for n in range(writer.tried) if there[writer.line(n)[:-1]]]
            begin = min(present, default=writer.acknowledged) if "young" in file else writer.tried
        for number in range(writer.tried):
            times = there.pop(writer.line(number)[:-1], 0)
            assert times <= 1 + writer.again[number], (file, writer.name, number, times)
            if begin <= number < writer.acknowledged:
                assert times, (file, writer.name, number, "is lost")
                checked += 1
    strange = [text for text in there if not any(writer.is_piece(text) for writer in mine)]
    assert not strange, (file, strange[:5])
    return checked


def check_newest(writers: list[Writer], found: list[bytes]) -> None:
    newest = {text.partition(b"\t")[0]: text for text in found}
    for writer in writers:
        if "keys" not in writer.file:
            continue
        numbers = {writer.line(n)[:-1]: n for n in range(writer.tried)}
        for key in range(KEYS):
            name = b"%s%d" % (writer.name.encode(), key)
            last = max((n for n in range(writer.acknowledged) if n % KEYS == key), default=None)
            if last is None:
                continue
            text = newest[name]
            assert numbers.get(text, last) >= last, (name, text, last)
            assert text in numbers or writer.is_piece(text), (name, text)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    with Mount(tmp_path / "data", tmp_path / "mnt", *OPTIONS) as mount:
        with Daemon.connect(str(mount.data)) as daemon:  # type: ignore[union-attr]
            for topic, config in TOPICS.items():
                properties = {**SMALL, **config}
                daemon.ask("create", {"topic": topic, "partitions": 1, "config": properties})
        yield mount


def kill_often(mount: Mount, limits: Limits, counts: Counter[str]) -> None:
    stop, random = threading.Event(), Random(2)
    writers = [Writer(name, mount, stop) for name in WRITERS]
    asking = threading.Thread(target=requests, args=(mount, stop, counts), daemon=True)
    for thread in (*writers, asking):
        thread.start()
    kills = 0
    try:
        while kills < limits.kills and not limits.is_over:
            time.sleep(random.choice([0.02, 0.1, 0.4]) * random.random())
            mount.crash()
            kills += 1
    finally:
        stop.set()
        for thread in (*writers, asking):
            thread.join(60)
    counts["kills of a daemon"] += kills
    for file in ("all/0", "young/0", "keys/0.tsv"):
        found = lines_of(mount.point / file)
        counts["lines checked after kills"] += check(writers, file, found)
        if "keys" in file:
            check_newest(writers, found)
    for topic in TOPICS:
        state = meta(mount.point / topic / "0")
        assert state["offline"] is None
        # A piece of a line that has no key yet cannot become a record of a topic that needs keys.
        allowed = {"cut", "line"} if topic == "keys" else {"cut"}
        assert {loss["kind"] for loss in state["losses"]} <= allowed
    assert counts["requests"]


@pytest.mark.parametrize("kills", KILLS)
def test_kills_lose_nothing(mount: Mount, limits: Limits, counts: Counter[str], kills: int) -> None:
    kill_often(mount, replace(limits, kills=kills), counts)
