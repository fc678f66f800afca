"""The native writer and Python make the same bytes of the same writes, in any order."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.disk.posix import PosixDisk
from logfs.disk.posixfile import PosixFile
from logfs.errors import LogfsError
from logfs.log.lines.writer import LineWriter
from logfs.types import View
from tests.fakes import FakeDisk, native_writes
from tests.log.support import DIRECTORY, Bench, lines_of

PROPERTIES = {
    "internal.segment.bytes": "60000",
    "index.interval.bytes": "200",
    "max.message.bytes": "20000",
}
VIEWS = (View.TEXT, View.TEXT, View.TSV, View.JSONL)


class Side:
    """One of the two ways: a store on a disk of the machine, and four writers."""

    def __init__(self, directory: str, *, is_native: bool) -> None:
        self.bench = Bench(PROPERTIES, disk=cast("FakeDisk", PosixDisk(directory)))
        self.is_native = is_native
        self.native_writes = 0
        self.native_syncs = 0
        self.writers = [LineWriter(self.bench.log, view) for view in VIEWS]

    def write(self, number: int, data: bytes) -> object:
        """Write; returns how much was accepted, or the text of the error."""
        writer, bench = self.writers[number], self.bench
        if self.is_native:
            bench.log.exclusive().clock_ms = bench.now_ms
            accepted = writer.native.write(data)
            if accepted is not None:
                self.native_writes += 1
                return accepted
        try:
            return writer.write(data, bench.now_ms)
        except (LogfsError, OSError) as error:
            return repr(error)
        finally:
            if self.is_native:
                bench.log.appender.arm()

    def sync(self, number: int) -> None:
        """Make durable what was written through a writer, and everything before it."""
        writer = self.writers[number]
        if self.is_native and writer.is_all_records and writer.native.sync():
            self.native_syncs += 1
        else:
            writer.sync()
            if self.is_native:
                self.bench.log.appender.arm()

    def reopen(self, number: int) -> None:
        self.writers[number].close(self.bench.now_ms)
        self.writers[number] = LineWriter(self.bench.log, VIEWS[number])

    def restart(self, *, is_clean: bool) -> None:
        if is_clean:
            for writer in self.writers:
                writer.close(self.bench.now_ms)
            self.bench.restart()
        else:
            self.bench.leave()
            self.bench.store = self.bench.open()
        self.writers = [LineWriter(self.bench.log, view) for view in VIEWS]

    def pass_time(self, milliseconds: int) -> None:
        self.bench.now_ms += milliseconds

    def alter(self, max_message_bytes: int) -> None:
        changes = {"max.message.bytes": str(max_message_bytes)}
        self.bench.store.alter_topic("t", changes)

    def state(self) -> object:
        log = self.bench.log
        snapshot, counters = log.snapshot, log.counters
        return (
            snapshot.start,
            snapshot.end,
            [segment.base_offset for segment in snapshot.segments],
            log.last_modified_ms if counters.appends else None,
            log.unflushed_since_ms,
            [writer.unfinished for writer in self.writers],
            (counters.appends, counters.records, counters.bytes_in),
            log.line_files.are_settled,
        )

    def files(self) -> dict[str, bytes]:
        disk = self.bench.disk
        names = [name for name, is_directory in disk.list(DIRECTORY) if not is_directory]
        return {name: disk.read(f"{DIRECTORY}/{name}", None) for name in names}


@contextmanager
def both_ways() -> Iterator[tuple[Side, Side]]:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        native, python = Side(one, is_native=True), Side(other, is_native=False)
        yield native, python
        for side in (native, python):
            side.bench.store.close(side.bench.now_ms)
        assert native.files() == python.files()


pieces = st.one_of(
    st.sampled_from([b"", b"\n", b"\n\n", b"a\tb\n", b"\\N\t\\N\n", b"\\x\n", b"a\tb\tc\n", b"\\"]),
    st.sampled_from([b"\xff\n", "ä\n".encode(), "ä".encode()[:1], b"\r\n", b'"\x01\n', b"{}\n"]),
    st.binary(max_size=12),
    st.sampled_from([1, 100, 4000, 4097, 8000, 19000, 25000, 70000]).map(lambda n: b"x" * n),
    st.integers(1, 3000).map(lambda n: b"line\n" * n),
)
writes = st.tuples(
    st.just("write"),
    st.sampled_from([0, 0, 0, 1, 2, 2, 3]),
    st.lists(pieces, min_size=1, max_size=4).map(b"".join).filter(len),
)
others = st.tuples(
    st.sampled_from(
        ["sync", "reopen", "roll", "flush", "trim", "truncate", "restart", "kill", "time", "alter"]
    ),
    st.integers(0, 3),
    st.just(b""),
)


def apply(side: Side, what: str, number: int, data: bytes) -> object:
    """Do one step; returns what a program sees of it."""
    if what == "write":
        return side.write(number, data)
    bench = side.bench
    log, now_ms = bench.log, bench.now_ms
    start, end = log.log_start_offset, log.log_end_offset
    changes: dict[str, Callable[[], object]] = {
        "sync": lambda: side.sync(number),
        "reopen": lambda: side.reopen(number),
        "roll": lambda: log.roll(now_ms),
        "flush": log.flush,
        "trim": lambda: log.advance_log_start_offset(start + (end - start) // 2, now_ms),
        "truncate": lambda: log.truncate_to(end - (end - start) // 4, now_ms),
        "restart": lambda: side.restart(is_clean=True),
        "kill": lambda: side.restart(is_clean=False),
        "time": lambda: side.pass_time((1, 1000, 10**9, -5000)[number]),
        "alter": lambda: side.alter((20000, 9000, 5000, 100)[number]),
    }
    changes[what]()
    return None


@pytest.mark.allow_log("unfinished line")
@given(steps=st.lists(st.one_of(writes, writes, writes, writes, others), max_size=40))
@settings(max_examples=25, deadline=None)
def test_both_ways_make_the_same_files(steps: list[tuple[str, int, bytes]]) -> None:
    with both_ways() as (native, python):
        for step in steps:
            assert apply(native, *step) == apply(python, *step)
            assert native.state() == python.state()


@pytest.mark.parametrize("view", [0, 2])
def test_lines_are_written_natively(view: int) -> None:
    with both_ways() as (native, python):
        for side in (native, python):
            for number in range(500):
                assert side.write(view, b"line %d\n" % number) > 0  # type: ignore[operator]
        assert native.native_writes > 480
        assert native.state() == python.state()


def test_unfinished_lines_are_written_natively() -> None:
    with both_ways() as (native, python):
        for side in (native, python):
            for number in range(500):
                data = b"x" * (number % 90) + b"\nrest of %d" % number
                assert side.write(number % 3, data) == len(data)
        assert native.native_writes > 480
        assert native.state() == python.state()


def test_records_are_synced_natively() -> None:
    with both_ways() as (native, python):
        for side in (native, python):
            for number in range(300):
                side.write(number % 2, b"line %d\n" % number)
                side.sync(number % 2)
                assert side.bench.log.recovery_point == side.bench.log.log_end_offset
        assert native.native_syncs > 280
        assert native.bench.log.counters.flush_s.count == 300
        assert native.state() == python.state()


@pytest.mark.allow_log("is offline: fsync failed")
def test_a_native_sync_that_fails_takes_the_log_offline(tmp_path: Path) -> None:
    side = Side(str(tmp_path), is_native=True)
    log, writer = side.bench.log, side.writers[0]
    for number in range(3):
        side.write(0, b"line %d\n" % number)
        side.sync(0)
    side.write(0, b"more\n")
    fileno = cast("PosixFile", log.snapshot.active.files().log).fileno()
    kept, pipe = os.dup(fileno), os.pipe()
    os.dup2(pipe[1], fileno)
    assert not writer.native.sync()
    os.dup2(kept, fileno)
    for fd in (kept, *pipe):
        os.close(fd)
    # A sync would succeed now, but the kernel may have dropped what it could not write.
    with pytest.raises(OSError, match="Invalid argument"):
        writer.sync()
    assert log.offline is not None
    assert log.recovery_point == 3
    assert "LogOfflineError" in str(side.write(0, b"later\n"))


def test_a_log_that_lets_go_of_its_files_has_none_open(tmp_path: Path) -> None:
    side = Side(str(tmp_path), is_native=True)
    for number in range(3):
        side.write(0, b"line %d\n" % number)
    assert side.native_writes
    log = side.bench.log
    assert open_logs(tmp_path)
    log.close_files()
    assert not open_logs(tmp_path)
    assert log.log_end_offset == 3


def open_logs(directory: Path) -> list[str]:
    """The ``.log`` files in a directory that this process has open."""
    names = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            names.append(str(entry.readlink()))
    return [name for name in names if name.startswith(str(directory)) and name.endswith(".log")]


def test_a_line_is_kept_in_a_whole_file_after_the_disk_was_full() -> None:
    """Python has made the file, and had no room for its header."""
    with native_writes() as descriptors:
        bench = Bench(PROPERTIES)
        bench.disk.descriptors = descriptors
        writer = bench.writer()
        writer.write(b"whole\n", bench.now_ms)
        bench.disk.fill(names_need_room=False)
        with pytest.raises(OSError, match="No space left"):
            writer.write(b"half", bench.now_ms)
        bench.disk.space_bytes = None
        bench.log.maintain()
        bench.log.appender.arm()
        if writer.native.write(b"half") is None:
            writer.write(b"half", bench.now_ms)
        writer.sync()
        assert lines_of(bench.kill()) == [b"whole", b"half"]


def test_a_native_append_is_seen_after_a_roll_that_had_no_room() -> None:
    """The first thing that Python did with the segment after a start was to fail."""
    with native_writes() as descriptors:
        bench = Bench(PROPERTIES)
        bench.disk.descriptors = descriptors
        bench.write(b"before")
        bench.kill()
        bench.disk.fail("open", f"*{1:020}.index", errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            bench.log.roll(bench.now_ms)
        bench.disk.heal()
        bench.log.exclusive().clock_ms = bench.now_ms
        bench.log.appender.arm()
        writer = bench.writer()
        assert writer.native.write(b"native\n") == 7
        assert lines_of(bench.log) == [b"before", b"native"]
        bench.write(b"after")
        assert lines_of(bench.log) == [b"before", b"native", b"after"]
        assert lines_of(bench.kill()) == [b"before", b"native", b"after"]
