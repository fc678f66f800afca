"""What programs and the store do: each operation is a letter, and a method of ``Run``.

A name is a letter, for ``F`` with the room that the disk still has: ``F:40``.

    W  write whole lines            R  roll                    G  commit the position of a group
    H  write half a line            T  retention               M  a minute passes: maintenance
    B  write 2 MiB                  X  trim                    Z  stop cleanly and start
    S  fsync                        K  compact                 F  write and roll on a full disk
    C  close                        P  pack                    Q  close on a full disk
    O  open a second file           D  delete and create       V  copy to the object store
                                                               L  drop local files

Each method asks the store, and notes before and after it what programs know.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

from logfs.errors import DeletedError
from logfs.log.groups.coding import OFFSETS_TOPIC, Position
from logfs.log.groups.table import commit_records
from logfs.log.lines.writer import LineWriter
from logfs.log.reading.lookup import positions_of_offset
from logfs.records._encoding import encode_records
from logfs.services.compaction.manual import compact_now
from logfs.services.compaction.tools import CleaningTools
from logfs.services.packing.packer import pack_now
from logfs.services.retention.logs import apply_retention
from logfs.services.retention.trimming import trim
from tests.log.compaction import tools
from tests.model.account import UID_BYTES, Account, Defect, Line
from tests.model.machine import Writer, lines_from
from tests.simulation.machine import GROUPS, Kind, Machine, T, places_of

MINUTE_MS = 70_000
ROOM_BYTES = 200
"""The room on a full disk, if nothing else is said."""
ROOMS = (0, 40, 100, 120, ROOM_BYTES, 330, 700)
"""Rooms that the last operation of a sequence is tried with: each ends at another write."""
_LARGE_LINES = 128


def sequences_of(kind: Kind, depth: int) -> Iterator[tuple[str, ...]]:
    """Return all sequences of up to so many operations, the short ones first."""
    for length in range(1, depth + 1):
        for names in product(kind.operations, repeat=length):
            rooms = ROOMS if names[-1] == "F" else ()
            yield from ((*names[:-1], f"F:{room}") for room in rooms)
            if not rooms:
                yield names


class Run:
    """Operations on the log of a machine, one after the other.

    Attributes:
        machine: The store, and what programs were told.
        writers: The files that are open; the last one is used.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.writers: list[Writer] = []

    @classmethod
    def begun(cls, kind: Kind) -> "Run":
        """Return a run on a new topic, of which a file is open."""
        run = cls(Machine(kind))
        run.machine.start()
        run.create()
        run.open()
        return run

    def do(self, name: str) -> None:
        """Do an operation, and have a reader look."""
        letter, _, room = name.partition(":")
        _OPERATIONS[letter](self, *([int(room)] if room else ()))
        self.learn()

    def learn(self) -> None:
        """Have a reader look at what is new."""
        machine, told = self.machine, self.machine.told
        account, log = told.account, machine.log
        if log.offline is not None:
            raise Defect(f"offline: {log.offline}")
        account.learn(
            lines_from(log, account.view, account.shown), log.snapshot.end.positions[account.view]
        )
        account.note_offsets(list(lines_from(log, account.view, 0)), places_of(log, account.view))

    # Writing

    def open(self) -> None:
        """Open another file."""
        file = LineWriter(self.machine.log, self.machine.view)
        self.machine.told.files += 1
        self.writers.append(Writer(self.machine.told.files, T, file))

    def write(self, count: int = 3, size: int = 20) -> None:
        """Write whole lines; an unfinished line of the file is finished first."""
        writer = self._writer()
        writer.queue += [self.new_line(size, writer.number) for _ in range(count)]
        self._write(writer, len(writer.stream))

    def write_half(self) -> None:
        """Write the beginning of a line, or more of it."""
        writer = self._writer()
        if writer.queue:
            self._write(writer, 3)
            return
        line = self.new_line(40, writer.number)
        writer.queue.append(line)
        self._write(writer, line.data.rfind(b"\t") + 1 + UID_BYTES + 6)

    def write_much(self) -> None:
        """Write 2 MiB, which the kernel sends as two requests."""
        writer = self._writer()
        size = (2 << 20) // _LARGE_LINES - UID_BYTES - 2
        writer.queue += [self.new_line(size, writer.number) for _ in range(_LARGE_LINES)]
        while writer.queue:
            self._write(writer, min(1 << 20, len(writer.stream)))

    def new_line(self, size: int, owner: int) -> Line:
        """Return a line that a program is going to write."""
        told = self.machine.told
        told.lines += 1
        uid = b"%08d" % told.lines
        body = uid + b"|" + b"#" * size
        key = b"k%d" % (told.lines % 3) if self.machine.kind.name == "compacted" else None
        line = Line(uid, body if key is None else key + b"\t" + body, key, owner)
        told.account.add(line)
        return line

    def _writer(self) -> Writer:
        if not self.writers:
            self.open()
        return self.writers[-1]

    def _write(self, writer: Writer, size: int) -> None:
        data = writer.stream[:size]
        writer.offer(len(data))
        try:
            accepted = writer.file.write(data, self.machine.now_ms)
        except OSError as error:
            if error.errno != errno.ENOSPC or self.machine.disk.space_bytes is None:
                raise
            accepted = 0
        else:
            if accepted != len(data) and self.machine.disk.space_bytes is None:
                raise Defect(f"{accepted} bytes of {len(data)} were accepted")
        writer.accept(accepted)
        if accepted < len(data):
            del writer.queue[1 if writer.sent else 0 :]  # the program gives up

    def sync(self) -> None:
        """Sync a file."""
        writer = self._writer()
        writer.file.sync()
        self.learn()
        self.machine.told.account.flushed()
        writer.synced()

    def close(self) -> None:
        """Close the file."""
        if self.writers:
            self.writers.pop().close(self.machine.now_ms)

    # A full disk

    def fill(self, room: int = ROOM_BYTES) -> None:
        """Write and roll on a disk with little room; then there is room again."""
        with self._full(room):
            self.write(4, 60)
        with self._full(room):
            self.machine.log.roll(self.machine.now_ms)

    def close_full(self) -> None:
        """Close a file on a full disk; then there is room again."""
        with self._full(0):
            self.close()

    @contextmanager
    def _full(self, room: int) -> Iterator[None]:
        disk = self.machine.disk
        disk.fill()
        disk.space_bytes = disk.used_bytes + room
        try:
            yield
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        finally:
            disk.space_bytes = None
            disk.names_need_room = False

    # Segments

    def roll(self) -> None:
        self.machine.log.roll(self.machine.now_ms)

    def retain(self) -> None:
        """Have retention remove all that it can."""
        machine, account = self.machine, self.machine.told.account
        trimmed_most = account.given_up_most
        account.gives_up(account.shown)
        machine.store.alter_topic("t", {"retention.bytes": "0"})
        apply_retention(machine.log, machine.now_ms)
        account.gave_up(machine.log.snapshot.start.positions[machine.view])
        account.given_up_most = max(account.given_up, trimmed_most)
        machine.store.alter_topic("t", {"retention.bytes": "-1"})

    def trim(self) -> None:
        """Remove the first half of the records."""
        machine, account, log = self.machine, self.machine.told.account, self.machine.log
        offset = (log.log_start_offset + log.log_end_offset + 1) // 2
        account.gives_up(positions_of_offset(log.snapshot, offset)[machine.view])
        trim(log, offset, machine.now_ms)
        account.gave_up(log.snapshot.start.positions[machine.view])

    def compact(self) -> None:
        machine = self.machine
        compact_now(machine.log, machine.now_ms, self._tools(), roll=True)
        machine.log.remove_due_files(machine.now_ms)

    def pack(self) -> None:
        pack_now(self.machine.log, self.machine.now_ms, self._tools(), roll=True)

    def _tools(self) -> CleaningTools:
        return replace(tools(), new_id=self.machine.new_id)

    def copy(self) -> None:
        self.machine.tiering.copy(lambda _: None)

    def drop(self) -> None:
        self.machine.tiering.drop(self.machine.now_ms)
        self.machine.log.remove_due_files(self.machine.now_ms)

    # The topic and the store

    def create(self) -> None:
        machine, topic = self.machine, self.machine.told.topic
        topic.begin_making()
        machine.store.create_topic("t", 1, machine.kind.properties, machine.now_ms)
        topic.made(Account("t/0", machine.view))

    def recreate(self) -> None:
        """Delete the topic, with files of it open, and make it again."""
        machine, told = self.machine, self.machine.told
        told.committed.append(None)
        told.topic.begin_deleting()
        machine.store.delete_topic("t", machine.now_ms)
        told.topic.deleted()
        for writer in self.writers:
            try:
                writer.file.write(b"late\n", machine.now_ms)
            except DeletedError:
                writer.file.close(machine.now_ms)
            else:
                raise Defect("an append to a deleted topic was accepted")
        self.writers.clear()
        self.create()

    def commit(self) -> None:
        """Commit the end of the log for a group, durably."""
        machine, told = self.machine, self.machine.told
        if OFFSETS_TOPIC not in machine.store.topics():
            machine.store.create_topic(OFFSETS_TOPIC, 1, {}, machine.now_ms)
        log, offset = machine.store.partition(*GROUPS), machine.log.log_end_offset
        told.committed.append(offset)
        records = commit_records("g", {T: Position(offset, "", machine.now_ms)})
        options = log.encode_options()
        encoded = encode_records(records, log.log_end_offset, machine.now_ms, options)
        log.append(encoded.batches, machine.now_ms)
        log.flush()
        told.committed = [offset]

    def maintain(self) -> None:
        """Have a minute pass, and do what a daemon does in it."""
        self.machine.maintain(MINUTE_MS)

    def restart(self) -> None:
        """Stop cleanly, and start again."""
        machine = self.machine
        while self.writers:
            self.close()
        self.learn()
        machine.store.close(machine.now_ms)
        machine.told.account.flushed()
        before = machine.disk.before
        machine.disk.kill()
        machine.disk.before = before
        machine.start()
        if not machine.store.was_clean:
            raise Defect("the stop was clean, and it was recovered")


_OPERATIONS: dict[str, Callable[..., None]] = {
    "W": Run.write,
    "H": Run.write_half,
    "B": Run.write_much,
    "S": Run.sync,
    "C": Run.close,
    "O": Run.open,
    "R": Run.roll,
    "T": Run.retain,
    "X": Run.trim,
    "K": Run.compact,
    "P": Run.pack,
    "D": Run.recreate,
    "G": Run.commit,
    "M": Run.maintain,
    "Z": Run.restart,
    "F": Run.fill,
    "Q": Run.close_full,
    "V": Run.copy,
    "L": Run.drop,
}
