"""Programs that use the mount, and what they know of it: what they have written, synced and read.

Each line has its writer and its number. So every reader can tell a line that is lost, that is there
twice, or that no program wrote.
"""

import collections
import errno
import itertools
import os
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.simulation.daemon import calls
from tests.simulation.daemon.calls import Call, OpenFile
from tests.simulation.daemon.child import DefectError
from tests.simulation.daemon.controls import ControlClient
from tests.simulation.daemon.kernel import MIB, FuseError, Kernel, Op, Task
from tests.simulation.daemon.plans import Plan
from tests.simulation.daemon.streams import Reader, Stream, writer_of_part

TOPIC = "t"
_LINE = re.compile(rb"w(\d) n(\d{6}) ")
_SIZES = (0, 5, 40, 60, 90, 90, 300)
_LONG_LINE = 5000
_LARGE_LINES = 2100
_LARGE_LINE = 1000


class Clients:
    """The programs of one run.

    Args:
        choice: Decides what they do.
        takes: Whether an operation is made.
        plan: Which programs there are. Clients of the control socket have the numbers after those
            of writers.
    """

    def __init__(self, choice: random.Random, takes: Callable[[str], bool], plan: Plan) -> None:
        self._choice = choice
        self._takes = takes
        self._fails, self._has_store = plan.fails > 0, plan.has_store
        self._passing = {errno.ENOSPC, errno.EIO} if self._fails else {errno.ENOSPC}
        self._retains = plan.retains
        self._largest_seen = 0
        self._names = 0
        self.streams = {writer: Stream() for writer in range(plan.writers + plan.controls)}
        self._numbers = dict.fromkeys(self.streams, 0)
        self._control_numbers = itertools.count(1)
        self.readers: list[Reader] = []
        self.writing = 0
        self.counts: collections.Counter[str] = collections.Counter()
        self.follow_tasks: list[Task] = []

    # Programs

    def set_up(self, kernel: Kernel) -> Call:
        """Make the topic."""
        yield from calls.mkdir(kernel, TOPIC)
        settings = [("segment.bytes", b"1048576"), ("retention.ms", b"-1")]
        if self._has_store:
            settings += [
                ("segment.ms", self._choice.choice([b"100", b"2000", b"60000"])),
                ("local.retention.bytes", b"0"),
                ("remote.storage.enable", b"true"),
            ]
        for name, value in settings:
            yield from calls.setxattr(kernel, TOPIC, f"user.logfs.{name}", value)

    def write(self, kernel: Kernel, writer: int) -> Call:
        """Open the log several times, and write lines in pieces of all sizes."""
        choice, stream = self._choice, self.streams[writer]
        for _ in range(choice.randint(1, 3)):
            flags = os.O_WRONLY | os.O_APPEND
            file = yield from self._patiently(
                lambda: calls.open_file(kernel, f"{TOPIC}/0", flags)  # noqa: B023 - used at once
            )
            self.counts["opens"] += 1
            try:
                yield from self._use(file, writer)
            except FuseError as error:
                if error.errno != errno.EIO or not self._fails:
                    raise
                stream.fail()
                self.counts["failed files"] += 1
            yield from self._close(kernel, file)
        self.writing -= 1

    def _use(self, file: OpenFile, writer: int) -> Call:
        choice, stream = self._choice, self.streams[writer]
        for _ in range(choice.randint(1, 12)):
            what = choice.random()
            if what < 0.7 and self._takes(f"writer {writer} writes"):
                yield from self._write_lines(file, writer)
            elif 0.7 <= what < 0.85 and self._takes(f"writer {writer} syncs"):
                sent = len(stream.sent)
                while not (yield from self._synced(file)):
                    yield ("later",)
                stream.durable = max(stream.durable, sent)
                self.counts["fsyncs"] += 1
            elif what >= 0.85:
                yield from self._look_at_size(file.node)

    def _synced(self, file: OpenFile) -> Call:
        """Sync a file; returns False if the disk has no room for it."""
        try:
            yield from calls.fsync(file)
        except FuseError as error:
            if error.errno != errno.ENOSPC:
                raise
            self.counts["full disks"] += 1
            return False
        return True

    def _close(self, kernel: Kernel, file: OpenFile) -> Call:
        try:
            yield from calls.close(kernel, file)
        except FuseError as error:
            if error.errno not in self._passing:
                raise

    def _write_lines(self, file: OpenFile, writer: int) -> Call:
        choice, stream = self._choice, self.streams[writer]
        lines = [self._line(writer) for _ in range(choice.choice([1, 1, 1, 3, 20]))]
        if choice.random() < 0.03:
            lines += [self._line(writer, _LARGE_LINE) for _ in range(_LARGE_LINES)]
        data = b"".join(lines)
        cut = choice.randint(1, len(data)) if choice.random() < 0.4 else len(data)
        for part in (data[:cut], data[cut:]):
            left = part
            while left:
                stream.unsure = left
                try:
                    count = yield from calls.write(file, left, choice.randrange(4096))
                except FuseError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    self.counts["full disks"] += 1
                    yield ("later",)
                    continue
                stream.sent += left[:count]
                left = left[count:]
                stream.unsure = b""
                self.counts["writes"] += 1

    def _line(self, writer: int, size: int | None = None) -> bytes:
        number = self._numbers[writer]
        self._numbers[writer] += 1
        if size is None:
            size = _LONG_LINE if self._choice.random() < 0.02 else self._choice.choice(_SIZES)
        return b"w%d n%06d %s\n" % (writer, number, b"abcdefghij"[writer : writer + 1] * size)

    def _look_at_size(self, node: int) -> Call:
        before = self._largest_seen
        size = (yield from calls.attributes(node))[1]
        if size < before:
            raise DefectError(f"st_size is {size}, and was {before}")
        self._largest_seen = max(size, self._largest_seen)

    def tail(self, kernel: Kernel) -> Call:
        """Read on from the last position, as ``tail -f`` does."""
        reader = Reader("tail")
        self.readers.append(reader)
        file, position = (yield from calls.open_file(kernel, f"{TOPIC}/0", os.O_RDONLY)), 0
        while self.writing:
            size = self._choice.choice([4096, 65536, MIB])
            data = yield from self._read(file, size, position)
            if data:
                reader.pieces.append((position, data))
                position += len(data)
            else:
                yield ("later",)
        yield from calls.close(kernel, file)

    def _read(self, file: OpenFile, size: int, position: int) -> Call:
        """Read; again where the store has failed."""
        while True:
            try:
                return (yield from calls.read(file, size, position))
            except FuseError as error:
                if not (self._has_store and error.errno == errno.EIO):
                    raise
            self.counts["failed reads"] += 1
            yield ("later",)

    def follow(self, kernel: Kernel, *, polls: bool) -> Call:
        """Read ``.follow``, whose reads wait at the end, until a signal ends the last one."""
        reader = Reader("follow")
        self.readers.append(reader)
        file, position = (yield from calls.open_file(kernel, f"{TOPIC}/0.follow", os.O_RDONLY)), 0
        while True:
            if polls and self.writing:  # then it reads, and waits there
                yield from calls.poll(kernel, file)
                self.counts["polls"] += 1
            try:
                data = yield from calls.read(file, self._choice.choice([4096, MIB]), position)
            except FuseError as error:
                if error.errno == errno.EIO and (error.deaths > 1 or self._has_store):
                    # Two daemons have ended during it, or the store has failed.
                    self.counts["failed reads of .follow"] += 1
                    yield ("later",)
                    continue
                if error.errno != errno.EINTR or self.writing:
                    raise
                break
            if not data:
                raise DefectError("a read of .follow has ended")
            reader.pieces.append((position, data))
            position += len(data)
        yield from calls.close(kernel, file)

    def interrupt_followers(self, kernel: Kernel) -> None:
        """Send a signal to those that wait for lines in ``.follow``."""
        kernel.interrupt_polls()
        for request in list(kernel.pending.values()):
            if request.task in self.follow_tasks and request.opcode is Op.READ:
                kernel.interrupt(request)

    def change_topics(self, kernel: Kernel) -> Call:
        """Make topics, use them and remove them: nothing is done twice."""
        choice = self._choice
        for _ in range(choice.randint(1, 5)):
            if not self._takes("a topic is made and removed"):
                continue
            self._names += 1
            name = f"u{self._names}"
            yield from self._patiently(lambda: calls.mkdir(kernel, name))  # noqa: B023
            mode = choice.choice([0o755, 0o700, 0o750])
            found = yield from self._patiently(lambda: calls.chmod(kernel, name, mode))  # noqa: B023
            if found & 0o777 != mode:
                raise DefectError(f"{name} has mode {found:o} after chmod {mode:o}")
            if choice.random() < 0.5:
                attribute = "user.logfs.retention.ms"
                yield from self._patiently(
                    lambda: calls.setxattr(kernel, name, attribute, b"86400000")  # noqa: B023
                )
            yield from self._use_topic(kernel, name)
            yield from self._patiently(lambda: calls.mkdir(kernel, name + "e"))  # noqa: B023
            yield from self._list(kernel, (TOPIC, name, name + "e"))
            yield from self._patiently(lambda: calls.rmdir(name + "e"))  # noqa: B023
            self.counts["topics"] += 1

    def _list(self, kernel: Kernel, wanted: Iterable[str]) -> Call:
        size = self._choice.choice([1024, 4096, 65536])
        names = yield from calls.list_directory(kernel, size)
        for name in wanted:
            if names.count(name) != 1:
                raise DefectError(f"{name} is {names.count(name)} times in {names}")

    def _use_topic(self, kernel: Kernel, name: str) -> Call:
        path, flags, left = f"{name}/0", os.O_WRONLY | os.O_APPEND, b"first\nsecond\n"
        file = yield from self._patiently(lambda: calls.open_file(kernel, path, flags))
        while left:
            count = yield from self._patiently(lambda: calls.write(file, left))  # noqa: B023
            left = left[count:]
        yield from self._close(kernel, file)
        try:
            yield from calls.rmdir(name)
            raise DefectError(f"{name} was removed with its records")
        except FuseError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        text = yield from calls.cat(kernel, path)
        if text != b"first\nsecond\n":
            raise DefectError(f"{name} contains {text!r}")
        node, found = yield from calls.look_up(kernel, path)
        if found[1] < len(text):  # it is larger after a write that a kill has cut
            raise DefectError(f"{path} has {found[1]} bytes, and {len(text)} were read")
        calls.forget(kernel, node)

    def retain(self, kernel: Kernel) -> Call:
        """Change how much retention leaves."""
        while self.writing:
            yield ("later",)
            value = self._choice.choice([b"100000", b"3000", b"-1"])
            if not self._takes(f"retention.bytes={value.decode()}"):
                continue
            name = "user.logfs.retention.bytes"
            yield from self._patiently(
                lambda: calls.setxattr(kernel, TOPIC, name, value)  # noqa: B023
            )

    def _patiently(self, call: Callable[[], Call]) -> Call:
        """Make a call again until the disk has room."""
        while True:
            try:
                return (yield from call())
            except FuseError as error:
                if error.errno not in self._passing:
                    raise
            self.counts["full disks"] += 1
            yield ("later",)

    def ask(self, kernel: Kernel, data: Path, writer: int) -> Call:
        """Have the daemon append lines, through its control socket."""
        choice, stream = self._choice, self.streams[writer]
        client = ControlClient(kernel, data, next(self._control_numbers), kernel.digest.update)
        for _ in range(choice.randint(1, 12)):
            if not self._takes(f"client {writer} appends"):
                continue
            lines = [self._line(writer) for _ in range(choice.choice([1, 1, 3, 20]))]
            is_durable = choice.random() < 0.3
            stream.unsure = b"".join(lines)
            yield from client.append(TOPIC, stream.unsure, is_durable=is_durable)
            stream.sent += stream.unsure
            stream.unsure = b""
            if is_durable:
                stream.durable = len(stream.sent)
            self.counts["requests to the control socket"] += 1
        client.close()
        self.writing -= 1

    # What must hold

    def judge(self, text: bytes) -> None:
        """Compare the whole log with what was written.

        Raises:
            DefectError: They differ.
        """
        found = self._by_writer(text)
        for writer, stream in self.streams.items():
            wanted, lines = stream.lines(), found.pop(writer, [])
            if self._retains:
                wanted = wanted[len(wanted) - len(lines) :]
            at = stream.first_difference(lines, wanted)
            if at is not None:
                raise DefectError(
                    f"writer {writer}: {len(lines)} lines, {len(wanted)} were written; from {at} "
                    f"on {lines[at : at + 2]!r:.200}, written {wanted[at : at + 2]!r:.200}"
                )
        if not self._retains:
            for reader in self.readers:
                for position, data in reader.pieces:
                    if text[position : position + len(data)] != data:
                        raise DefectError(f"{reader.name} has read other bytes at {position}")
        self.counts["lines"] += text.count(b"\n")

    def judge_readers(self) -> None:
        """Look at what readers have got: lines of programs, once, in order.

        Raises:
            DefectError: They have got something else.
        """
        for reader in self.readers:
            text = b"".join(data for _, data in reader.pieces)
            for writer, lines in self._by_writer(text[: text.rfind(b"\n") + 1]).items():
                stream, position = self.streams[writer], 0
                wanted = stream.possible()
                for line in lines:
                    at = stream.find(line, wanted, position)
                    if at < 0 or (stream.misses(position, at) and not self._retains):
                        raise DefectError(
                            f"{reader.name}: line {at} of writer {writer} in the place of "
                            f"{position}: {line[:80]!r}"
                        )
                    position = at + 1

    def continue_after_power_cut(self, text: bytes) -> None:
        """Compare the log with what a power cut may leave, and continue from there.

        Raises:
            DefectError: A line that was synced is missing, or there is one that no program wrote.
        """
        found = self._by_writer(text, is_cut=True)
        for writer, stream in self.streams.items():
            lines = found.pop(writer, [])
            self.counts["pieces left"] += stream.survive(writer, lines)
            lost = len(stream.lines()) - len(lines)
            self.counts["lines lost by power cuts"] += max(lost, 0)
            self.streams[writer] = Stream(before=lines)
        self.readers.clear()
        self.follow_tasks.clear()
        self.writing = self._largest_seen = 0

    def _by_writer(self, text: bytes, *, is_cut: bool = False) -> dict[int, list[bytes]]:
        if text and not text.endswith(b"\n"):
            raise DefectError(f"the log ends with {text[-60:]!r}")
        found, is_cut = collections.defaultdict(list), is_cut or self._fails
        for line in text.split(b"\n")[:-1]:
            if line == b"w":
                continue  # a power cut has left it, and any writer may have begun it
            match = _LINE.match(line)
            writer = -1 if match is None else int(match[1])
            if match is None:
                kept = (one for one, stream in self.streams.items() if line in stream.before)
                writer = writer_of_part(line, self.streams) if is_cut else next(kept, -1)
            if writer not in self.streams:
                raise DefectError(f"a line that no program wrote: {line[:80]!r}")
            found[writer].append(line)
        return dict(found)
