"""Readers of every kind while daemons are killed and replaced, and segments rolled and packed.

Two writers append, one of them lines in pieces. More readers wait than may wait natively.
Each has to read the bytes of the log from the first one to the last, and none may hang.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from logfs.client import Daemon
from tests.fs.handover import attacked_readers
from tests.long import Limits
from tests.mounting import COMMAND, run
from tests.processes import PATIENCE_S
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

APPEND = os.O_WRONLY | os.O_APPEND
ATTACKS = 12
FEW = {True: 8, False: 4}
"""Attacks in ``make test``, by whether the kernel sends requests again."""
NAMES = ("0.follow", "0")
FOLLOWING_TOO = ("sized", "signalled", "doubled", "tiny")
"""Roles of which several readers follow."""
OPTIONS = ("-o", "log.segment.delete.delay.ms=200,log.retention.check.interval.ms=300")


class Writer(threading.Thread):
    """A program that appends numbered lines until it is told to stop; a signal never meets it."""

    def __init__(self, path: Path, name: bytes, *, in_pieces: bool, seed: int) -> None:
        super().__init__()
        self._file = os.open(path, APPEND)
        self._name, self._in_pieces, self._chance = name, in_pieces, Random(seed)
        self._is_over = threading.Event()
        self.failure: OSError | None = None
        self.count = 0

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._append()
            os.close(self._file)
        except OSError as error:
            self.failure = error

    def _append(self) -> None:
        chance, text = self._chance, b""
        for _ in range(chance.choice((*[1] * 30, 20, 1000))):
            padding = b"-" * chance.choice((0, 3, 60, 60, 60, 900 if len(text) < 9999 else 0))
            text += b"%s %d %s\n" % (self._name, self.count, padding)
            self.count += 1
        cut = chance.randrange(len(text)) if self._in_pieces else 0
        for piece in (text[:cut], text[cut:]):
            while piece:
                piece = piece[os.write(self._file, piece) :]
        self._is_over.wait(chance.choice((0, 0.001, 0.02)))

    def end(self) -> None:
        self._is_over.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "a write hangs"
        if self.failure is not None:
            raise self.failure


class Readers:
    """One reader of each kind, and more of those that wait."""

    def __init__(self, topic: Path, output: Path) -> None:
        roles = [(role, name) for role in (*attacked_readers.ROLES, "shared") for name in NAMES]
        roles += [(role, "0.follow") for role in FOLLOWING_TOO]
        roles.remove(("tiny", "0"))
        roles.remove(("shared", "0"))  # its processes could not tell the end
        self.running = [
            (
                f"{role}-{name}-{number}",
                subprocess.Popen(
                    [
                        *(sys.executable, attacked_readers.__file__, role, topic / name),
                        *(output / f"{role}-{name}-{number}", str(number)),
                    ],
                    stderr=subprocess.PIPE,
                ),
            )
            for number, (role, name) in enumerate(roles)
        ]
        self._output = output

    def check(self, text: bytes) -> None:
        """Wait for all of them, and compare what they have read with the whole text."""
        failures = [self._failure(name, reader, text) for name, reader in self.running]
        assert not any(failures), "; ".join(filter(None, failures))

    def _failure(self, name: str, reader: "subprocess.Popen[bytes]", text: bytes) -> str:
        try:
            error = reader.communicate(timeout=PATIENCE_S)[1]
        except subprocess.TimeoutExpired:
            return f"{name} hangs after {self._seen(name)} of {len(text)} bytes"
        if reader.returncode:
            return f"{name}: status {reader.returncode}: {error.decode()}"
        if name.startswith("shared"):
            return check_shared(name, self._pieces(name), text)
        got = (self._output / name).read_bytes()
        if got == text:
            return ""
        return f"{name}: {len(got)} bytes of {len(text)}, equal up to {equal(got, text)}"

    def _seen(self, name: str) -> int:
        return sum(path.stat().st_size for path in self._output.glob(f"{name}*"))

    def _pieces(self, name: str) -> list[list[bytes]]:
        return [list(pieces((self._output / f"{name}.{n}").read_bytes())) for n in range(2)]

    def end(self) -> None:
        for _, reader in self.running:
            reader.kill()
            reader.wait()


def pieces(found: bytes) -> Iterator[bytes]:
    """Split what a process has noted; the last piece may be cut."""
    while len(found) >= 4:
        size = int.from_bytes(found[:4], "little")
        yield found[4 : 4 + size]
        found = found[4 + size :]


def check_shared(name: str, found: list[list[bytes]], text: bytes) -> str:
    """The pieces of both processes are the whole text, each byte once and each in its order."""
    place = 0
    while place < len(text):
        fitting = [one for one in found if one and one[0] and text.startswith(one[0], place)]
        if not fitting:
            return f"{name}: neither process has read on at {place} of {len(text)}"
        place += len(max(fitting, key=lambda one: len(one[0])).pop(0))
    return f"{name}: something was read twice" if any(found) else ""


def equal(got: bytes, text: bytes) -> int:
    """Return how many bytes are equal."""
    pairs = enumerate(zip(got, text, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(got), len(text)))


class Attacks:
    """What is done to a mount and its log."""

    def __init__(self, mount: HeldMount, seed: int) -> None:
        self._mount, self._chance, self._number = mount, Random(seed), 0
        self._all = (
            *(self.reload, self.kill, self.restart, self.hang),
            *(self.roll, self.pack, self.compress, self.alter, self.roll, self.pack),
        )

    def attack(self) -> None:
        self._number += 1
        kind = self._chance.choice(self._all)
        self._mount.note(kind.__name__)
        kind()

    def reload(self) -> None:
        done = run(*COMMAND, "reload", self._mount.point)
        assert not done.returncode, done.stderr

    def kill(self) -> None:
        self._mount.end_daemon(signal.SIGKILL)

    def restart(self) -> None:
        self._mount.end_daemon(signal.SIGUSR2)

    def hang(self) -> None:
        pid = self._mount.signal_daemon(signal.SIGSTOP)
        threading.Event().wait(0.2)
        os.kill(pid, signal.SIGCONT)

    def roll(self) -> None:
        self._ask("roll", topic="t", partition=0)

    def pack(self) -> None:
        self._set("logfs.sealed.compression.type", "zstd")  # later in the background, too
        self._ask("pack", topic="t", partition=0, roll=self._chance.random() < 0.5)
        self._set("logfs.sealed.compression.type", self._chance.choice(("zstd", "uncompressed")))

    def compress(self) -> None:
        self._set("compression.type", self._chance.choice(("zstd", "producer", "producer")))

    def alter(self) -> None:
        self._set("retention.ms", str(10**12 + self._number))

    def _set(self, name: str, value: str) -> None:
        os.setxattr(self._mount.point / "t", f"user.logfs.{name}", value.encode())

    def _ask(self, name: str, **fields: object) -> None:
        with Daemon.connect(str(self._mount.data)) or pytest.fail("no daemon") as daemon:
            daemon.ask(name, fields)


def check_written(text: bytes, writers: list[Writer]) -> None:
    """The log has each line of each writer once, and in its order."""
    lines = text.splitlines()
    assert lines.pop() == b"end"
    for name, writer in zip((b"a", b"b"), writers, strict=True):
        found = [int(line.split(b" ", 2)[1]) for line in lines if line.startswith(name + b" ")]
        assert found == list(range(writer.count)), f"lines of {name!r}"
    assert len(lines) == sum(writer.count for writer in writers)


def attack(directory: Path, count: int, seed: int, *, resends: bool = True) -> None:
    """Attack a mount with readers and writers, a number of times."""
    output = directory / "output"
    output.mkdir()
    with HeldMount(directory, *OPTIONS, resends=resends) as mount:
        topic = mount.point / "t"
        topic.mkdir()
        os.setxattr(topic, "user.logfs.segment.bytes", b"3000000")
        writers = [
            Writer(topic / "0", name, in_pieces=name == b"b", seed=seed) for name in (b"a", b"b")
        ]
        readers, attacks, chance = Readers(topic, output), Attacks(mount, seed), Random(seed)
        try:
            for writer in writers:
                writer.start()
            for _ in range(count):
                threading.Event().wait(chance.choice((0.01, 0.1, 0.3)))
                attacks.attack()
            for writer in writers:
                writer.end()
            with (topic / "0").open("ab") as file:
                file.write(b"end\n")
            text = (topic / "0@earliest..latest").read_bytes()
            check_written(text, writers)
            readers.check(text)
        finally:
            readers.end()


@pytest.mark.parametrize("resends", FEW)
def test_readers_of_every_kind_get_each_byte_once(tmp_path: Path, resends: bool) -> None:
    attack(tmp_path, FEW[resends], 1, resends=resends)


@pytest.mark.long
def test_hundreds_of_attacks_lose_no_byte(tmp_path: Path, limits: Limits) -> None:
    for number in range(0, limits.kills, 4 * ATTACKS):
        if limits.is_over:
            break
        directory = tmp_path / str(number)
        directory.mkdir()
        attack(directory, 4 * ATTACKS, limits.seed + number, resends=number % (8 * ATTACKS) == 0)
