"""A daemon without a kernel that is killed between any two stores, on the disk or in the state.

Programs write lines, in pieces of any size, to the views of one partition. ``Mount`` plays the
kernel: it gives each WRITE a slot, and after a kill it sends again what was not answered. ``check``
compares what the partition has with what the programs were told.
"""

import contextlib
import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from logfs.config import StoreConfig
from logfs.errors import LogfsError, RecordTooLargeError
from logfs.fs.handover.journal import Journal
from logfs.fs.handover.settling import Settling
from logfs.fs.handover.slots import Slots
from logfs.fs.handover.state import SLOTS, SlotWord, Word, slot_index
from logfs.fs.partitions.partition import identity_of
from logfs.log.host import Host
from logfs.log.lines.append import append_lines
from logfs.log.lines.form import LineForm
from logfs.log.lines.writer import LineWriter
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.types import View
from tests.fakes import START_MS, FakeDisk
from tests.fakestate import Stopped
from tests.log.support import lines_of

MAX_MESSAGE_BYTES = 400
_JOURNAL_BYTES = 1 << 17


class Life:
    """How long the process lives, in operations of the disk and stores into the state."""

    def __init__(self, disk: FakeDisk) -> None:
        self._disk = disk
        self._left: int | None = None
        self._torn = 0.0
        self._is_over = False
        disk.before = self._before

    def end_after(self, steps: int, torn: float) -> None:
        """Die before the next step after so many; a write to the disk is then torn."""
        self._left, self._torn = steps, torn

    def begin_again(self) -> None:
        self._left, self._is_over = None, False

    def store(self) -> None:
        """Take a step that is a store into the state."""
        if self._take():
            raise Stopped

    def _before(self, operation: str, _name: str, _size: int) -> None:
        if self._take():
            self._disk.stop_before(0, torn=self._torn if operation == "pwrite" else 0.0)

    def _take(self) -> bool:
        if not self._is_over and self._left is not None:
            self._left -= 1
            self._is_over = self._left < 0
        return self._is_over


class DyingWords:
    """Words of the state that take no store of a process that is dead."""

    def __init__(self, words: list[int], life: Life, first: int = 0) -> None:
        self._words, self._life, self._first = words, life, first

    def __getitem__(self, index: int, /) -> int:
        return self._words[self._first + index]

    def __setitem__(self, index: int, value: int, /) -> None:
        self._life.store()
        self._words[self._first + index] = value


class DyingBytes:
    """The same for the bytes of the journal."""

    def __init__(self, size: int, life: Life) -> None:
        self._data, self._life = bytearray(size), life

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, part: slice, /) -> bytes:
        return bytes(self._data[part])

    def __setitem__(self, part: slice, data: bytes, /) -> None:
        self._life.store()
        self._data[part] = data


@dataclass(eq=False)
class Program:
    """A program that has a view of the partition open.

    Attributes:
        fh: The number of its open file.
        accepted: All bytes that its writes were told to be accepted.
        pending: The bytes it writes next.
        request: The WRITE it waits for: number and bytes; None: it waits for none.
        answer: What the daemon has answered and not sent yet: bytes accepted.
        is_closing: It waits for the end of RELEASE.
    """

    fh: int
    view: View
    syncs: bool
    accepted: bytearray = field(default_factory=bytearray)
    pending: bytes = b""
    request: tuple[int, bytes] | None = None
    answer: int | None = None
    is_refused: bool = False
    is_closing: bool = False

    def texts(self) -> list[bytes]:
        """The values that its records must have, in their order."""
        lines = bytes(self.accepted).split(b"\n")
        return [_value(self.view, line) for line in lines[: len(lines) - (not lines[-1])]]


class Mount:
    """The kernel, the daemon and the programs."""

    def __init__(self, random: Random, counts: Counter[str]) -> None:
        self.random, self.counts = random, counts
        self.disk = FakeDisk()
        self.life = Life(self.disk)
        self._memory = [0] * slot_index(SLOTS)
        self.words = DyingWords(self._memory, self.life)
        self._area = DyingBytes(_JOURNAL_BYTES, self.life)
        self.programs: list[Program] = []
        self.closed: list[Program] = []
        self.others: list[bytes] = []
        self.perhaps: set[bytes] = set()
        self._numbers = self._ids = self._lines = 0
        self._writers: dict[int, LineWriter] = {}
        self._load()
        self.store.create_topic("t", 1, {
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
            "internal.segment.bytes": random.choice(["600", "5000", "1000000"]),
        }, START_MS)  # fmt: skip

    @property
    def log(self) -> PartitionLog:
        return self.store.partition("t", 0)

    # The daemon

    def _load(self) -> None:
        words = DyingWords(self._memory, self.life, Word.JOURNAL_HALF)
        self.journal = Journal(words, self._area, spare_bytes=2000)
        self.slots = Slots(self.words, self.journal)
        self._settling = Settling(self.words, self.journal)
        config = StoreConfig(num_recovery_threads_per_data_dir=1)
        self.store = LogStore.open(
            self.disk, config, Host("1", self._new_id), now_ms=START_MS, resumed=self._settling
        )
        self._writers = {}

    def _new_id(self) -> bytes:
        self._ids += 1
        return hashlib.md5(b"%d" % self._ids, usedforsecurity=False).digest()

    def _writer(self, program: Program) -> LineWriter:
        writer = self._writers.get(program.fh)
        if writer is None:
            writer = self._settling.writers.get(program.fh) or LineWriter(self.log, program.view)
            writer.notes = self.slots.notes(identity_of(self.log), program.fh, program.view)
            self._writers[program.fh] = writer
        return writer

    def open(self, view: View) -> None:
        self._numbers += 2
        self.journal.opened(self._numbers, view + 2, 0, 0)
        self.programs.append(Program(self._numbers, view, self.random.random() < 0.2))

    def send(self, program: Program) -> None:
        """Have a program write a piece: the daemon reads the request."""
        if not program.pending:
            program.pending = self._text(program)
        size = self.random.choice([1, 5, 60, 1000, 3000])
        data, self._numbers = program.pending[:size], self._numbers + 2
        program.request = self._numbers, data
        self._memory[self._slot(program) : self._slot(program) + 16] = [0] * 16
        self._memory[self._slot(program) + SlotWord.FH] = program.fh
        self._memory[self._slot(program) + SlotWord.UNIQUE] = self._numbers

    def handle(self, program: Program) -> None:
        """Have the daemon apply the write of a program, without an answer yet."""
        assert program.request is not None
        number, data = program.request
        self._memory[Word.CURRENT] = 1 + (number // 2) % SLOTS
        writer = self._writer(program)
        try:
            program.answer = writer.write(data, START_MS, self.slots.current())
        except RecordTooLargeError:
            program.answer, program.is_refused = 0, True
        if program.syncs:
            writer.sync()

    def reply(self, program: Program) -> None:
        """Send the answer: the library frees the slot, and the program continues."""
        assert program.request is not None
        assert program.answer is not None
        _, data = program.request
        self._memory[self._slot(program) + SlotWord.UNIQUE] = 0
        program.accepted += data[: program.answer]
        program.pending = program.pending[program.answer :]
        if program.is_refused:
            _, newline, program.pending = program.pending.partition(b"\n")
            if program.accepted and not program.accepted.endswith(b"\n"):
                program.pending = newline + program.pending
            self.counts["refused lines"] += 1
        self.counts["short writes"] += 0 < program.answer < len(data)
        program.request = program.answer = None
        program.is_refused = False

    def finish(self, program: Program) -> None:
        """Have a program write what it has left."""
        while program.pending or program.request is not None:
            if program.request is None:
                self.send(program)
            self.handle(program)
            self.reply(program)

    def release(self, program: Program) -> None:
        program.is_closing = True
        self._writer(program).close(START_MS)
        self.journal.released(program.fh)
        self._writers.pop(program.fh, None)
        self.programs.remove(program)
        self.closed.append(program)

    def append_others(self) -> None:
        """Have another client append whole lines."""
        lines = [self._line() for _ in range(self.random.randint(1, 9))]
        self.perhaps |= set(lines)
        done = append_lines(self.log, b"".join(b"%s\n" % x for x in lines), LineForm(), START_MS)
        assert done.records == len(lines)
        self.perhaps -= set(lines)
        self.others += lines

    def fail(self, program: Program) -> None:
        """Have the disk fail in a write; its caller is not told before the kill."""
        self.disk.fail_next_write("*.log", after_bytes=self.random.choice([0, 30, 100, 1000]))
        with contextlib.suppress(OSError, LogfsError):
            self.handle(program)
        for other in self.programs:  # while it is offline it refuses
            if other is not program and other.request is not None and other.answer is None:
                with contextlib.suppress(OSError, LogfsError):
                    self.handle(other)
                other.answer = None
        program.answer = None
        self.counts["failed writes"] += 1

    # The kill

    def come_back(self) -> None:
        """Restart the daemon, which may be killed again; it gets the unanswered requests again."""
        while True:
            self.counts["kills"] += 1
            self.disk.kill()
            self.life.begin_again()
            for program in self.programs:
                program.answer, program.is_refused = None, False
            if self.random.random() < 0.5:
                self.life.end_after(self.random.randint(0, 120), self.random.random())
            try:
                self._load()
                waiting = [p for p in self.programs if p.request is not None or p.is_closing]
                self.random.shuffle(waiting)
                for program in waiting:
                    if program.request is not None:
                        self.handle(program)
                        self.reply(program)
                    elif program.fh in self.journal.files:
                        self.release(program)
                    else:
                        self.programs.remove(program)
                        self.closed.append(program)
            except Stopped:
                continue
            self.life.begin_again()
            self.disk.live_on()
            return

    def check(self) -> None:
        """Compare the partition with what the programs were told."""
        found = lines_of(self.log)
        expected = Counter(self.others)
        for program in self.closed:
            expected.update(program.texts())
        assert not expected - Counter(found), "lost"
        rest = Counter(found) - expected
        assert rest.keys() <= self.perhaps, "twice, or never written"
        assert all(count == 1 for count in rest.values()), "twice"
        for program in self.closed:  # pieces of two lines may be equal
            mine = [line for line in program.texts() if expected[line] == 1]
            in_order = set(mine)
            assert [line for line in found if line in in_order] == mine, "out of order"
        self.counts["lines"] += len(found)

    # Text

    def _text(self, program: Program) -> bytes:
        lines = []
        for _ in range(self.random.choice([1, 3, 30])):
            line = self._line()
            if program.view is View.JSONL:
                line = json.dumps({"value": line.decode()}).encode()
            elif program.view is View.TEXT and self.random.random() < 0.05:
                line += b"-" * MAX_MESSAGE_BYTES
            lines.append(line)
        return b"\n".join(lines) + b"\n"

    def _line(self) -> bytes:
        self._lines += 1
        return b"%d|%s" % (self._lines, b"#" * self.random.choice([0, 5, 100]))

    def _slot(self, program: Program) -> int:
        assert program.request is not None
        return slot_index((program.request[0] // 2) % SLOTS)


def _value(view: View, line: bytes) -> bytes:
    if view is not View.JSONL:
        return line
    value = json.loads(line)["value"]
    assert isinstance(value, str)
    return value.encode()
