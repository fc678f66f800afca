"""Read-ahead for small reads: a program gets the same bytes with it and without."""

import contextlib
import ctypes
import os
import subprocess
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.fs.files.ahead import PLACES, WINDOW_BYTES, ReadAhead, Windows
from logfs.records.record import Record
from logfs.services.views.buffers import Buffers
from logfs.services.views.files import GrowingFile
from logfs.types import View
from tests.fakes import START_MS
from tests.fs.mounting import Mounted, resident_bytes
from tests.log.gaps import HoledLog
from tests.log.growing import LOGS, VIEWS, add, filled
from tests.log.readings import Rule
from tests.log.support import end_of
from tests.mounting import logfs, output
from tests.records.oracle import rendering

_HANDLE = 7
_WINDOW = 64


class FakeKernel:
    """The hooks over a kernel: they answer reads from what was put ahead.

    Attributes:
        answered: Reads that did not come to Python.
        is_full: As many files as may have bytes ahead.
    """

    def __init__(self) -> None:
        self.answered = 0
        self.is_full = False
        self._ahead: tuple[int, int, int] | None = None

    def ahead_put(self, handle: int, offset: int, address: int, size: int) -> bool:
        assert handle == _HANDLE
        if not self.is_full:
            self._ahead = (offset, address, size)
        return not self.is_full

    def ahead_take(self, handle: int) -> int:
        assert handle == _HANDLE
        left = 0 if self._ahead is None else self._ahead[2]
        self._ahead = None
        return left

    def answer(self, offset: int, size: int) -> bytes | None:
        """Do what the read hook does."""
        if self._ahead is None or not self._ahead[2]:
            return None
        begin, address, left = self._ahead
        if offset != begin or size > left:
            return None
        self.answered += 1
        self._ahead = (begin + size, address + size, left - size)
        return ctypes.string_at(address, size)


class Program:
    """A program that reads a growing file through all of it."""

    def __init__(
        self,
        log: HoledLog,
        view: View,
        start: int = 0,
        windows: Windows | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        self.kernel = FakeKernel()
        self.reader = GrowingFile(log.log, view, start, buffers=buffers)
        self.given = 0
        if windows is None:
            windows = Windows(lambda: 0.0, _WINDOW)
        self.ahead = ReadAhead(self.kernel, _HANDLE, self.reader, self._note, windows)

    def read(self, offset: int, size: int) -> bytes:
        answer = self.kernel.answer(offset, size)
        if answer is not None:
            return answer
        found = self.ahead.read(offset, size)
        if found is not None:
            return bytes(found)
        out = memoryview(bytearray(size))
        got = self.reader.read_into(out, offset)
        self.ahead.note(offset, size, got)
        return bytes(out[:got])

    def _note(self, size: int) -> None:
        self.given += size


RUNS = st.lists(
    st.tuples(st.none() | st.integers(0, 100_000), st.integers(1, 90), st.integers(1, 30)),
    min_size=1,
    max_size=8,
)
"""Where to seek to, if at all; then how many bytes are read at a time, and how often."""


@given(
    *(st.sampled_from(LOGS), st.sampled_from(VIEWS), RUNS),
    *(st.none() | st.integers(0, 4000), st.integers(1, 9)),
)
def test_every_read_follows_the_rule(
    make: Callable[[], HoledLog],
    view: View,
    runs: list[tuple[int | None, int, int]],
    start: int | None,
    leaves_after: int,
) -> None:
    """Also if its window is given to another file after a few reads."""
    log = make()
    end = end_of(log.log, view)
    begin = 0 if start is None else start % (end + 1)
    program, rule, offset = Program(log, view, begin), Rule(log.model, view, begin), 0
    for seek, size, times in runs:
        offset = offset if seek is None else seek % (end - begin + 20)
        for number in range(times):
            got = program.read(offset, size)
            assert got == rule.read(offset, size)
            offset += len(got)
            if number == leaves_after:
                program.ahead.leave()


@pytest.mark.parametrize("make", LOGS)
def test_a_seek_to_every_position_follows_the_rule(make: Callable[[], HoledLog]) -> None:
    """Also one to where the bytes ahead end, which no read has reached."""
    log = make()
    for seek in range(0, end_of(log.log, View.TEXT), 3):
        program, rule, offset = Program(log, View.TEXT), Rule(log.model, View.TEXT), 0
        for _ in range(6):
            got = program.read(offset, 9)
            assert got == rule.read(offset, 9)
            offset += len(got)
        assert program.read(seek, 30) == rule.read(seek, 30)


def test_most_small_reads_in_a_row_do_not_come_to_python() -> None:
    log = filled(30)
    program, offset = Program(log, View.TEXT), 0
    while got := program.read(offset, 8):
        offset += len(got)
    assert program.kernel.answered > offset // 8 * 3 // 4
    program.ahead.close()
    assert program.given == program.kernel.answered * 8


def test_what_is_appended_is_seen_at_once() -> None:
    log = filled(30)
    program, offset = Program(log, View.TEXT), 0
    for number in range(30, 90, 3):
        while got := program.read(offset, 8):
            offset += len(got)
        assert offset == end_of(log.log, View.TEXT)
        add(log, number)


def test_as_many_files_as_may_have_bytes_ahead() -> None:
    log = filled(30)
    program, rule, offset = Program(log, View.TEXT), Rule(log.model, View.TEXT), 0
    program.kernel.is_full = True
    for _ in range(40):
        got = program.read(offset, 8)
        assert got == rule.read(offset, 8)
        offset += len(got)
    assert not program.kernel.answered


def test_a_file_that_is_not_read_on_gives_up_its_window() -> None:
    log, now_s = filled(30), 0.0
    windows = Windows(lambda: now_s, _WINDOW)
    programs = [Program(log, View.TEXT, windows=windows) for _ in range(PLACES + 1)]
    rule, last = Rule(log.model, View.TEXT), programs[-1]
    text = b"".join(rule.read(offset, 8) for offset in range(0, 200, 8))

    def read(program: Program, begin: int, end: int) -> None:
        for offset in range(begin, end, 8):
            assert program.read(offset, 8) == text[offset : offset + 8]

    for program in programs:
        read(program, 0, 40)
    assert [program.kernel.answered for program in programs] == [1] * PLACES + [0]
    now_s = 2.0
    read(last, 40, 64)
    assert last.kernel.answered == 2
    for program in programs[:-1]:
        read(program, 40, 200)
    assert len(windows) == PLACES
    for program in programs:
        program.ahead.close()
    assert windows.take(last.ahead)


def test_bytes_ahead_of_a_program_that_stopped_are_not_kept() -> None:
    """They are read again when it continues: else each open file could take as much as a window."""
    log, now_s, size = HoledLog({}), 0.0, 4096
    for n in range(2000):
        log.append([Record(0, START_MS, None, b"line %d" % n * 100, ())])
    expected = b"".join(rendering(View.TEXT, kept.record) for kept in log.model.visible)
    windows, buffers = Windows(lambda: now_s), Buffers(0)
    programs = [
        Program(log, View.TEXT, windows=windows, buffers=buffers) for _ in range(2 * PLACES)
    ]

    def read_a_little(some: list[Program]) -> int:
        for program in some:
            for offset in range(0, 4 * size, size):
                assert program.read(offset, size) == expected[offset : offset + size]
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    before = read_a_little(programs[:PLACES])
    now_s = 2.0
    grown = read_a_little(programs[PLACES:]) - before
    tracemalloc.stop()
    assert grown < 4 * WINDOW_BYTES
    for offset in range(4 * size, len(expected), size):
        assert programs[0].read(offset, size) == expected[offset : offset + size]


@pytest.mark.fuse
def test_small_reads_of_a_growing_name_beside_a_writer(mounted: Mounted, tmp_path: Path) -> None:
    """Readers with small buffers, while a writer appends: they get the bytes that were written."""
    mounted.shell("mkdir orders")
    path, plain = mounted.point / "orders/0", tmp_path / "plain"
    text = b"".join(b"%099d\n" % number for number in range(60_000))
    plain.write_bytes(text)
    with subprocess.Popen(
        ["bash", "-c", f"split -b 100k --filter='cat >> {path}' {plain}"]
    ) as writer:
        got = bytearray()
        with path.open("rb", buffering=0) as file:
            while len(got) < len(text):
                part = file.read(4096)
                got += part
                assert part or writer.poll() in (None, 0)
    assert got == text
    for size in ("1k", "4k", "7k", "16k", "100k"):
        copy = output("bash", "-c", f"dd if={path} bs={size} status=none")
        assert copy == text
    taken = resident_bytes(mounted.pid)
    with contextlib.ExitStack() as stack:
        for number in range(6 * PLACES):  # enough was read: it gives up its window
            file = path.open("rb", buffering=0)
            assert b"".join(file.read(4096) for _ in range(5)) == text[: 5 * 4096]
            if number % 2:
                file.close()
            else:
                stack.enter_context(file)
                while file.read(65536):
                    pass
    assert resident_bytes(mounted.pid) - taken < 2 * PLACES * WINDOW_BYTES
    before = _reads(mounted)
    assert output("awk", "{ n += $1 } END { print NR, n }", path) == b"60000 1799970000\n"
    assert output("bash", "-c", f"dd if={path} bs=4k status=none") == text
    descriptor = os.open(path, os.O_RDONLY)
    for place in (0, 4096, 8192, 12288, 8192, 16384, 100, 20480):
        assert os.pread(descriptor, 4096, place) == text[place : place + 4096]
    os.close(descriptor)
    assert _reads(mounted) - before < len(text) / 4096 / 10


def _reads(mounted: Mounted) -> int:
    """Return how many reads have reached Python."""
    lines = logfs("metrics", mounted.data).decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines)
    all_reads = values['logfs_requests_total{operation="read"}']
    without = (values["logfs_reads_ahead_total"], values["logfs_native_reads_total"])
    return int(float(all_reads) - sum(map(float, without)))


@pytest.mark.allow_log("fell behind retention")
@pytest.mark.parametrize("is_removed_before", [False, True])
def test_a_record_that_was_begun_is_whole_although_its_window_was_taken(
    is_removed_before: bool,
) -> None:
    log, now_s = filled(60), 0.0
    windows = Windows(lambda: now_s, _WINDOW)
    program = Program(log, View.TEXT, windows=windows)
    lines = [rendering(View.TEXT, kept.record) for kept in log.model.records]
    data = b"".join(program.read(offset, 5) for offset in range(0, 25, 5))
    begun = next(n for n in range(60) if len(b"".join(lines[:n])) > len(data))
    if is_removed_before:
        log.advance(50)
        program.ahead.leave()
    else:
        assert program.ahead.leave()
        log.advance(50)
    while got := program.read(len(data), 5):
        data += got
    # What had been put ahead may follow the record that was begun.
    kept = next(n for n in range(begun, 51) if data == b"".join(lines[:n] + lines[50:]))
    assert kept >= begun
