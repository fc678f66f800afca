"""One partition against a list: appended to, cut, killed, without power, with a failing disk.

More of it: LOGFS_MODEL_EXAMPLES=2000 LOGFS_MODEL_STEPS=100.
"""

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logfs.errors import LogOfflineError, RecordTooLargeError, UnparsableLineError
from logfs.log.lines.writer import LineWriter
from logfs.log.reading.lookup import offset_for_time, positions_of_offset
from logfs.log.reading.reader import TextReader
from logfs.records.record import Record
from logfs.types import View
from tests.log.model import Kept, Line, Model
from tests.log.support import Bench, batches_in, end_of, kept_runs_of, records_in
from tests.records.oracle import rendering

EXAMPLES = int(os.environ.get("LOGFS_MODEL_EXAMPLES", "150"))
STEPS = int(os.environ.get("LOGFS_MODEL_STEPS", "40"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.allow_log(
        "is offline:",
        "[loss: cut,",
        "[loss: line,",
        "an index entry is left out",
        "the one before it is used",
        "the base offset of the batch",
    ),
]

PROPERTIES = st.fixed_dictionaries(
    {
        "internal.segment.bytes": st.sampled_from(["250", "700", "3000", "100000"]),
        "index.interval.bytes": st.sampled_from(["0", "100", "4096"]),
        "segment.index.bytes": st.sampled_from(["4", "12", "24", "60", "10485760"]),
        "segment.ms": st.sampled_from(["50", "604800000"]),
        "max.message.bytes": st.sampled_from(["250", "1048588"]),
        "compression.type": st.sampled_from(["producer", "gzip", "snappy", "lz4", "zstd"]),
    }
)
TEXTS = st.sampled_from(
    [b"", b"v", b"some words", "größer".encode(), b"x" * 60, b"\xff\xfe", b"\r"]
)
NULLABLE = st.none() | TEXTS | st.just(b"two\nlines\t\\")
HEADERS = st.lists(st.tuples(TEXTS, NULLABLE), max_size=2).map(tuple)
SHIFTS = st.integers(-100, 100)
RECIPES = st.tuples(NULLABLE, NULLABLE, HEADERS, SHIFTS)
SEEDS = st.none() | st.integers(0, 2**32)
FILES = st.sampled_from(["*.log", "*.unfinished", "*/logfs.segments", "*.*index", "*"])
FAILURES = (OSError, LogOfflineError)
UNIQUE_BYTES = 8


class Writer:
    """An open file: what it will write, and the line it is in."""

    def __init__(self, lines: LineWriter, view: View) -> None:
        self.lines = lines
        self.line = Line(view)
        self.stream = b""


class PartitionMachine(RuleBasedStateMachine):
    """Every rule does one thing to both; the invariants compare them."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.writers: list[Writer] = []
        self.count = 0

    @initialize(properties=PROPERTIES)
    def create(self, properties: dict[str, str]) -> None:
        self.bench = Bench(properties)

    # Writing

    @precondition(lambda self: len(self.writers) < 4)
    @rule(view=st.sampled_from(View))
    def open_writer(self, view: View) -> None:
        self.writers.append(Writer(self.bench.writer(view), view))

    @precondition(lambda self: self.writers)
    @rule(
        number=st.integers(0, 3), recipes=st.lists(RECIPES, min_size=1, max_size=4), data=st.data()
    )
    def write(self, number: int, recipes: list[Any], data: st.DataObject) -> None:
        writer = self.writers[number % len(self.writers)]
        writer.stream += self.lines(writer.line.view, recipes)
        size = data.draw(st.integers(1, len(writer.stream)))
        self.write_some(writer, size)

    def lines(self, view: View, recipes: list[Any]) -> bytes:
        """Lines that differ in their first bytes, so that what becomes of each can be told."""
        data = b""
        for key, value, headers, shift in recipes:
            self.count += 1
            unique = b"%0*d" % (UNIQUE_BYTES, self.count)
            if view is View.TEXT:
                data += unique + (value or b"").replace(b"\n", b"") + b"\n"
            elif view is View.TSV:
                data += rendering(view, Record(0, -1, unique + (key or b""), value))
            else:
                timestamp = self.bench.now_ms + shift
                data += rendering(view, Record(0, timestamp, key, unique + (value or b""), headers))
        return data

    def write_some(self, writer: Writer, size: int) -> None:
        """Write the next bytes; what fails may be tried again, what is refused ends the file."""
        begun = len(writer.line.written) if b"\n" not in writer.stream[:size] else 0
        part = size - writer.stream.rfind(b"\n", 0, size) - 1 + begun
        if 0 < part < UNIQUE_BYTES:
            size += UNIQUE_BYTES - part
        data = writer.stream[:size]
        try:
            accepted = writer.lines.write(data, self.bench.now_ms)
        except (RecordTooLargeError, UnparsableLineError):
            self.close_one(writer)
            return
        writer.line = self.model.write(writer.line, data[:accepted], self.bench.now_ms)
        writer.stream = writer.stream[accepted:]
        assert writer.lines.unfinished == len(writer.line.written)
        if accepted < len(data) and accepted == 0:
            raise AssertionError("a write returned 0")

    @rule(recipes=st.lists(RECIPES, min_size=1, max_size=4))
    def append_records(self, recipes: list[Any]) -> None:
        now_ms = self.bench.now_ms
        records = [Record(0, now_ms + shift, k, v, headers) for k, v, headers, shift in recipes]
        try:
            self.bench.append(records)
        except RecordTooLargeError:
            return
        for record in records:
            self.model.append(record)

    @precondition(lambda self: self.writers)
    @rule(number=st.integers(0, 3))
    def close_writer(self, number: int) -> None:
        self.close_one(self.writers[number % len(self.writers)])

    def close_one(self, writer: Writer) -> None:
        self.writers.remove(writer)
        writer.lines.close(self.bench.now_ms)
        self.model.close(writer.line, self.bench.now_ms)

    @rule(by_ms=st.integers(1, 100))
    def wait(self, by_ms: int) -> None:
        self.bench.now_ms += by_ms
        self.bench.disk.now_ms = self.bench.now_ms

    @rule(codec=st.sampled_from(["uncompressed", "gzip", "snappy", "lz4", "zstd"]))
    def alter(self, codec: str) -> None:
        self.bench.store.alter_topic("t", {"compression.type": codec})

    # Upkeep

    @rule()
    def roll(self) -> None:
        self.bench.log.roll(self.bench.now_ms)

    @rule()
    def flush(self) -> None:
        self.bench.log.flush()
        assert self.bench.log.recovery_point >= self.model.end_offset
        self.model.flushed = self.model.end_offset

    @precondition(lambda self: self.writers)
    @rule(number=st.integers(0, 3))
    def sync(self, number: int) -> None:
        self.sync_one(self.writers[number % len(self.writers)])

    def sync_one(self, writer: Writer) -> None:
        writer.lines.sync()
        self.model.flushed = self.model.end_offset
        writer.line.synced = len(writer.line.written)

    @rule()
    def maintain(self) -> None:
        self.bench.log.maintain()
        assert not self.bench.log.maintenance_due
        self.model.flushed = max(self.model.flushed, self.bench.log.recovery_point)

    @rule()
    def checkpoint(self) -> None:
        self.bench.store.checkpoint()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.model.start, self.model.end_offset))
        while self.writers:
            self.close_one(self.writers[0])
        if offset < self.model.end_offset:
            base = self.base_of_batch_at(offset)
            self.bench.log.truncate_to(offset, self.bench.now_ms)
            self.model.truncate(offset, base)

    def base_of_batch_at(self, offset: int) -> int:
        for segment in self.bench.log.snapshot.segments:
            for _, batch in batches_in(self.bench.disk.read(segment.name)):
                if batch.base_offset <= offset <= batch.last_offset:
                    return batch.base_offset
        return offset

    @rule(data=st.data(), remove=st.booleans())
    def advance(self, data: st.DataObject, remove: bool) -> None:
        offset = data.draw(st.integers(self.model.start, self.model.end_offset))
        self.bench.log.advance_log_start_offset(offset, self.bench.now_ms)
        self.model.start = offset
        if remove:
            self.bench.store.remove_due_files(self.bench.now_ms + 1_000_000)

    # Stops

    @rule()
    def restart(self) -> None:
        while self.writers:
            self.close_one(self.writers[0])
        self.bench.restart()
        self.model.flushed = self.model.end_offset

    @rule()
    def leave(self) -> None:
        """Close it without a flush: on the same boot it is as after a clean stop."""
        while self.writers:
            self.close_one(self.writers[0])
        self.bench.leave()
        self.bench.kill()
        assert self.bench.store.was_clean

    @rule()
    def kill(self) -> None:
        self.writers.clear()
        self.bench.kill()
        self.come_back()
        self.model.stop(self.records_from(self.model.end_offset), self.bench.now_ms)

    @rule(seed=SEEDS, is_left=st.booleans())
    def crash(self, seed: int | None, is_left: bool) -> None:
        while is_left and self.writers:
            self.close_one(self.writers[0])
        if is_left:
            self.bench.leave()
        self.writers.clear()
        log = self.bench.crash(seed)
        self.come_back()
        found = [
            Kept(record, positions_of_offset(log.snapshot, record.offset))
            for record in self.records_from(self.model.start)
        ]
        bases = {segment.base_offset for segment in log.snapshot.segments}
        behind = self.model.lose(found, log.log_end_offset, bases)
        self.go_on_after_the_reservation(self.model.end_offset)
        self.model.resume_lines(behind, self.bench.now_ms)
        self.model.set_aside = self.lines_set_aside()
        self.model.flushed = max(self.model.flushed, log.recovery_point)

    def come_back(self) -> None:
        """What was given up does not come back; a log that lost everything begins at its end."""
        log = self.bench.log
        if log.log_start_offset == log.log_end_offset:
            self.model.start = max(self.model.start, log.log_start_offset)
        assert log.log_start_offset == self.model.start

    def go_on_after_the_reservation(self, offset: int) -> None:
        """No position is given twice: what comes next is after all that was ever shown."""
        self.model.end = positions_of_offset(self.bench.log.snapshot, offset)
        assert all(a >= b for a, b in zip(self.model.end, self.model.shown, strict=True))

    # Failures of the disk

    @rule(name=FILES, after=st.integers(0, 300), is_killed=st.booleans())
    def fail_write(self, name: str, after: int, is_killed: bool) -> None:
        self.bench.disk.fail_next_write(name, errno.EIO, after_bytes=after)
        self.suffer(is_killed)

    @rule(name=FILES, is_killed=st.booleans())
    def fail_sync(self, name: str, is_killed: bool) -> None:
        self.bench.disk.fail_next_sync(name)
        self.suffer(is_killed)

    @rule(name=FILES, after=st.integers(0, 300), times=st.integers(1, 4))
    def fill_disk(self, name: str, after: int, times: int) -> None:
        for _ in range(times):
            self.bench.disk.fail_next_write(name, errno.ENOSPC, after_bytes=after)
        self.suffer()

    def suffer(self, is_killed: bool = False) -> None:
        """Write and sync while something fails, then load the partition again if it is offline."""
        writer = Writer(self.bench.writer(View.TEXT), View.TEXT)
        self.writers.append(writer)
        writer.stream = self.lines(View.TEXT, [(None, b"." * 40 * n, (), 0) for n in range(6)])
        attempts: list[Callable[[], object]] = [
            lambda: self.write_some(writer, 30),
            lambda: self.sync_one(writer),
            lambda: self.write_some(writer, 200),
            lambda: self.write_some(writer, len(writer.stream)),
            lambda: self.sync_one(writer),
            lambda: self.maintain(),
        ]
        for attempt in attempts:
            try:
                attempt()
            except FAILURES:
                if self.bench.log.offline is not None:
                    break
        self.bench.disk.heal()
        if self.bench.log.offline is not None:
            self.check_offline()
            self.load_anew(writer, is_killed)

    def check_offline(self) -> None:
        for refused in (self.bench.log.flush, lambda: self.bench.write(b"x")):
            with pytest.raises(LogOfflineError):
                refused()

    def load_anew(self, failed: Writer, is_killed: bool) -> None:
        """What was acknowledged is there; of what failed, a prefix of the lines may be."""
        bench, model = self.bench, self.model
        for writer in self.writers:
            writer.lines.close(bench.now_ms)
        self.writers.clear()
        assert (bench.kill() if is_killed else bench.reload()).offline is None
        self.come_back()
        found = self.records_from(model.end_offset)
        tried = failed.line.written + failed.stream
        while found and tried.startswith((found[0].value or b"") + b"\n"):
            failed.line.offset = model.append(found.pop(0))
            tried = tried[tried.index(b"\n") + 1 :]
        self.go_on_after_the_reservation(model.end_offset)
        model.stop(found, bench.now_ms)

    # Comparing

    def records_from(self, offset: int) -> list[Record]:
        """What the segments hold, as they lie on the disk."""
        snapshot = self.bench.log.snapshot
        logs = [
            self.bench.disk.read(segment.name)[: snapshot.end_of(number)[2]]
            for number, segment in enumerate(snapshot.segments)
        ]
        found = [record for data in logs for record in records_in(data)]
        return [record for record in found if record.offset >= offset]

    def lines_set_aside(self) -> int:
        return sum(loss.kind == "line" for loss in self.bench.log.losses)

    @invariant()
    def offsets_and_sizes_agree(self) -> None:
        log, model = self.bench.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end_offset)
        assert log.snapshot.end.positions == model.end
        assert all(a >= b for a, b in zip(model.end, model.shown, strict=True))
        model.shown = model.end
        assert self.lines_set_aside() == model.set_aside
        assert model.flushed <= model.end_offset

    @invariant()
    def every_view_agrees(self) -> None:
        for view in View:
            assert kept_runs_of(self.bench.log, view) == self.model.runs(view)

    @rule(view=st.sampled_from(View), data=st.data())
    def read_somewhere(self, view: View, data: st.DataObject) -> None:
        log = self.bench.log
        anywhere = st.integers(0, end_of(log, view) + 5)
        near = st.sampled_from(
            [0, *(k.positions[view] + d for k in self.model.visible for d in (-1, 0, 1))]
        )
        position = max(0, data.draw(anywhere | near))
        size = data.draw(st.integers(1, 300))
        reader = TextReader(view, lambda: log.snapshot)
        expected = self.model.next_kept(view, position)
        if expected is None:
            expected = max(position, end_of(log, view))
        assert reader.seek(position) == expected
        out = memoryview(bytearray(size))
        got = reader.read_into(out, end_of(log, view))
        assert bytes(out[:got]) == self.model.bytes_at(view, expected)[:size]

    @rule(view=st.sampled_from(View), data=st.data())
    def look_up(self, view: View, data: st.DataObject) -> None:
        snapshot = self.bench.log.snapshot
        offset = data.draw(st.integers(0, self.model.end_offset + 2))
        position = positions_of_offset(snapshot, offset)[view]
        expected = self.model.position_of(view, offset)
        found = self.model.next_kept(view, position)
        assert found == expected
        timestamp = self.bench.now_ms + data.draw(st.integers(-500, 200))
        assert offset_for_time(snapshot, timestamp) == self.model.offset_for_time(timestamp)


PartitionMachine.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None
)
TestPartition = PartitionMachine.TestCase
