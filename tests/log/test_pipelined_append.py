"""Lines that are read and made batches while those before them are written."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.errors import LogOfflineError, UnparsableLineError
from logfs.log.lines.append import EncodedWriter, append_lines
from logfs.log.lines.form import LineForm, Lines
from logfs.log.lines.pipelined import append_file, append_pieces
from logfs.types import View
from tests.log.support import Bench, batches_in, lines_of, log_name, text_of

MANY = [b"line %04d\n" % n for n in range(1000)]
FORM = LineForm()


def pieces(lines: list[bytes], count: int) -> Iterator[bytes]:
    """Yield so many lines at a time."""
    for start in range(0, len(lines), count):
        yield b"".join(lines[start : start + count])


def feed(bench: Bench, source: Iterator[bytes], form: LineForm = FORM) -> Lines:
    """Append what comes piece by piece, in the buffer of the caller."""

    def read(buffer: bytearray) -> memoryview:
        piece = next(source, b"")
        buffer[: len(piece)] = piece
        return memoryview(buffer)[: len(piece)]

    return append_pieces(bench.log, read, 10_000, EncodedWriter(bench.log, form, bench.now_ms))


# The same as all at once


@pytest.mark.parametrize("count", [1, 7, 33, 500, 1000])
@pytest.mark.parametrize("bad", [None, 0, 1, 499, 998, 999])
def test_the_log_is_the_same_wherever_a_line_is_refused(count: int, bad: int | None) -> None:
    lines, form = list(MANY), LineForm(View.TSV)
    if bad is not None:
        lines[bad] = b"two\ttabs\there\n"
    ours, theirs = Bench(), Bench()
    for bench in (ours, theirs):
        bench.write(b"before")
    done = feed(ours, pieces(lines, count), form)
    expected = append_lines(theirs.log, b"".join(lines), form, theirs.now_ms)
    assert done[:2] == expected[:2]
    assert str(done.refusal) == str(expected.refusal)
    assert done.accepted == 10 * (1000 if bad is None else bad)
    for view in View:
        assert text_of(ours.log, view) == text_of(theirs.log, view)


@pytest.mark.parametrize("space_bytes", [0, 700, 1500])
def test_a_disk_that_fills_up(space_bytes: int) -> None:
    bench = Bench()
    bench.write(b"first")
    bench.disk.space_bytes = bench.disk.used_bytes + space_bytes
    if not space_bytes:
        with pytest.raises(OSError, match="No space left"):
            feed(bench, pieces(MANY, 10))
        return
    done = feed(bench, pieces(MANY, 10))
    assert isinstance(done.refusal, OSError)
    assert 0 < done.accepted < 10_000
    assert text_of(bench.log) == b"first\n" + b"".join(MANY)[: done.accepted]
    assert done.records == done.accepted // 10


def test_nothing_gets_in_after_what_a_full_disk_refused() -> None:
    """Also if there is room again when the next piece is written, which is encoded already."""
    bench, is_held, may_go_on = Bench(), threading.Event(), threading.Event()

    def hold() -> None:
        with bench.log.exclusive():
            is_held.set()
            may_go_on.wait()

    holder = threading.Thread(target=hold)

    def source() -> Iterator[bytes]:
        for number, piece in enumerate(pieces(MANY, 10)):
            if number == 3:  # it cannot be written yet
                holder.start()
                is_held.wait()
            if number == 4:
                bench.disk.fail_next_write("*.log", errno.ENOSPC, 0)
                may_go_on.set()
                holder.join()
            yield piece

    done = feed(bench, source())
    assert isinstance(done.refusal, OSError)
    assert (done.records, done.accepted) == (30, 300)
    assert lines_of(bench.log) == [line[:-1] for line in MANY[:30]]


@pytest.mark.expect_log("is offline")
def test_a_log_that_goes_offline() -> None:
    bench = Bench()
    bench.write(b"first")

    def failing() -> Iterator[bytes]:
        yield from MANY[:3]
        bench.disk.fail_next_write("*.log", errno.EIO, 0)
        yield from MANY[3:]

    done = feed(bench, failing())
    assert isinstance(done.refusal, OSError)
    assert done.refusal.errno == errno.EIO
    assert done.accepted <= 30
    with pytest.raises(LogOfflineError):
        feed(bench, pieces(MANY, 1))


# Others append as well


def test_others_append_between_two_pieces() -> None:
    """Their records are in between, and lines that were encoded ahead are in the right place."""
    bench, lines = Bench(), list(MANY)
    lines[900] = b"two\ttabs\there\n"

    def contended() -> Iterator[bytes]:
        for number, piece in enumerate(pieces(lines, 50)):
            if number in {3, 4, 11}:
                other = threading.Thread(target=bench.write, args=(b"other %d" % number, b"x" * 99))
                other.start()
                other.join()
            yield piece

    done = feed(bench, contended(), LineForm(View.TSV))
    found = lines_of(bench.log)
    others = [line for line in found if not line.startswith(b"line")]
    assert others == [b"other 3", b"x" * 99, b"other 4", b"x" * 99, b"other 11", b"x" * 99]
    assert [line + b"\n" for line in found if line.startswith(b"line")] == MANY[:900]
    assert (done.records, done.accepted) == (900, 9000)
    assert isinstance(done.refusal, UnparsableLineError)
    assert str(done.refusal).startswith("line 901: ")
    assert done.appended[0].last_offset == bench.log.log_end_offset - 1
    # Positions in all views, and the log itself, say the same.
    offset = 0
    for _, batch in batches_in(bench.file(log_name(0))):
        assert batch.base_offset == offset
        offset = batch.last_offset + 1
    assert offset == 906
    for view in View:
        assert text_of(bench.log, view).count(b"\n") == 906


def test_a_topic_that_is_altered_meanwhile() -> None:
    """What was encoded for larger batches is recreated."""
    bench = Bench({"max.message.bytes": "2000"})
    topic = bench.log.topic_partition.topic

    def altering() -> Iterator[bytes]:
        for number, piece in enumerate(pieces(MANY, 100)):
            if number == 5:
                bench.store.alter_topic(topic, {"max.message.bytes": "300"})
            yield piece

    assert feed(bench, altering()).refusal is None
    assert lines_of(bench.log) == [line[:-1] for line in MANY]
    last = batches_in(bench.file(log_name(0)))[-10:]
    assert all(batch.size_bytes <= 300 for _, batch in last)


# A file


def test_a_file_from_a_position_on(tmp_path: Path) -> None:
    bench, path = Bench(), tmp_path / "in"
    path.write_bytes(b"before\n" + b"".join(MANY) + b"no end")
    with path.open("rb") as file:
        done = append_file(bench.log, file.fileno(), 7, FORM, bench.now_ms)
        assert (done.records, done.accepted, done.refusal) == (1001, 10_007, None)
        end = append_file(bench.log, file.fileno(), 7 + done.accepted, FORM, bench.now_ms)
        assert end == Lines([], 0, None)
        assert file.tell() == 0
    assert text_of(bench.log) == b"".join(MANY) + b"no end\n"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    bench, path = Bench(), tmp_path / "in"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        append_file(bench.log, descriptor, 0, FORM, bench.now_ms)
    os.close(descriptor)
    assert caught.value.filename == str(path)
