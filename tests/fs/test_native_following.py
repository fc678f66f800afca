"""Reads of ``.follow`` names that wait natively: through the kernel."""

import errno
import os
import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from logfs.client import Daemon
from tests.fs.mounting import Mounted
from tests.fs.test_native_writes import native_writes
from tests.processes import PATIENCE_S, wait_until

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

APPEND = os.O_WRONLY | os.O_APPEND

READER = """
import os, sys
descriptor, last = os.open(sys.argv[1], os.O_RDONLY), b""
while not last.endswith(b"end\\n"):
    got = os.read(descriptor, int(sys.argv[2]))
    sys.stdout.buffer.write(got)
    last = (last + got)[-4:]
"""


class Follower:
    """A reader and a writer of a topic; the next read of the reader waits natively."""

    def __init__(self, mounted: Mounted) -> None:
        path = mounted.point / "t/0"
        self.writer = os.open(path, APPEND)
        for number in range(20):
            os.write(self.writer, b"early %d\n" % number)
        self.reader = os.open(f"{path}.follow", os.O_RDONLY)
        self.text = b""
        while not self.text.endswith(b"early 19\n"):
            self.text += os.read(self.reader, 4096)
        before = native_writes(mounted, "reads")
        for number in range(30):
            os.write(self.writer, b"line %d\n" % number)
            assert os.read(self.reader, 4096) == b"line %d\n" % number
        assert native_writes(mounted, "reads") >= before + 20

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


def is_reading(thread: int) -> bool:
    """Whether a thread of this process waits in a read(2) or another call of the file system."""
    return "request_wait" in Path(f"/proc/self/task/{thread}/wchan").read_text()


def waits_in_a_read(pid: int) -> bool:
    """Whether a process waits in a read of the file that it has opened."""
    opened = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    has_opened = any(name.endswith(".follow") for name in opened)
    return has_opened and "request_wait" in Path(f"/proc/{pid}/wchan").read_text()


class Reading:
    """A read in its own thread, which waits."""

    def __init__(self, descriptor: int, place: int | None = None) -> None:
        self._found: bytes | OSError = b""
        self._descriptor, self._place = descriptor, place
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        wait_until(lambda: is_reading(self._thread.native_id or 0), "it waits")

    def _read(self) -> None:
        try:
            if self._place is None:
                self._found = os.read(self._descriptor, 4096)
            else:
                self._found = os.pread(self._descriptor, 4096, self._place)
        except OSError as error:
            self._found = error

    def result(self) -> bytes | int:
        """Return what was read, or the errno."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        found = self._found
        return found if isinstance(found, bytes) else found.errno or 0


def test_lines_come_natively_and_each_of_them_once(native: Mounted) -> None:
    follower = Follower(native)
    chance, before = Random(3), native_writes(native, "reads")
    keyed = os.open(native.point / "t/0.tsv", APPEND)
    text = b""
    with subprocess.Popen(
        [sys.executable, "-c", READER, native.point / "t/0.follow", "5000"], stdout=subprocess.PIPE
    ) as other:
        for number in range(600):
            kind, line = chance.random(), b"%d " % number * chance.choice([1, 1, 1, 200, 60_000])
            if kind < 0.03:
                os.write(keyed, b"key\t" + line + b"\n")
            else:
                os.write(follower.writer, line + b"\n")
            if kind > 0.98:
                change(native, number)
            text += line + b"\n"
            while chance.random() < 0.7 and len(text) > 0:
                got = os.read(follower.reader, chance.choice([100, 4096, 1 << 20]))
                assert text.startswith(got)
                text = text[len(got) :]
        os.write(follower.writer, b"end\n")
        text += b"end\n"
        while text:
            got = os.read(follower.reader, 1 << 20)
            assert text.startswith(got)
            text = text[len(got) :]
        whole = (native.point / "t/0@earliest..latest").read_bytes()
        assert other.communicate(timeout=PATIENCE_S)[0] == whole
    assert native_writes(native, "reads") > before + 100
    os.close(keyed)
    follower.close()


def change(mounted: Mounted, number: int) -> None:
    """Have Python change the partition: a setting, a new segment, or batches it has to render."""
    name, value = [
        ("retention.ms", str(10**12 + number)),
        ("compression.type", "zstd" if number % 2 else "producer"),
        ("segment.bytes", str(1_048_576 + number)),
    ][number % 3]
    os.setxattr(mounted.point / "t", f"user.logfs.{name}", value.encode())


def test_a_signal_ends_a_read_that_waits_and_takes_no_line(native: Mounted) -> None:
    follower = Follower(native)
    path = native.point / "t/0@latest.follow"
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            wait_until(lambda: waits_in_a_read(other.pid), "cat has opened it")
            for number in range(20):
                os.write(follower.writer, b"before %d\n" % number)
                assert other.stdout.readline() == b"before %d\n" % number
            other.send_signal(kind)
            assert other.wait(PATIENCE_S) == -kind
    text = b"".join(b"before %d\n" % number for number in range(20)) * 2
    while text:
        got = os.read(follower.reader, 1 << 20)
        assert text.startswith(got)
        text = text[len(got) :]
    reading = Reading(follower.reader)
    os.write(follower.writer, b"after\n")
    assert reading.result() == b"after\n"
    follower.close()


def test_a_deleted_topic_ends_a_read_that_waits(native: Mounted) -> None:
    follower = Follower(native)
    reading = Reading(follower.reader)
    with Daemon.connect(str(native.data)) or pytest.fail("no daemon") as daemon:
        daemon.ask("delete", {"topic": "t"})
    assert reading.result() == b""
    follower.close()


def test_the_stop_of_the_mount_ends_a_read_that_waits(native: Mounted) -> None:
    follower = Follower(native)
    reading = Reading(follower.reader)
    assert native.end() == 0
    assert reading.result() == errno.ENOTCONN
    with pytest.raises(OSError, match="not connected"):
        follower.close()


def test_a_read_that_waits_is_not_disturbed_by_poll(native: Mounted) -> None:
    """The poll is of the same open file, so its place has to come back from the library."""
    follower = Follower(native)
    reading, poll = Reading(follower.reader), select.poll()
    poll.register(follower.reader, select.POLLIN)
    assert poll.poll(0) == []
    os.write(follower.writer, b"next\n")
    assert reading.result() == b"next\n"
    assert poll.poll(0) == []
    os.write(follower.writer, b"another\n")
    assert poll.poll(PATIENCE_S * 1000) == [(follower.reader, select.POLLIN)]
    assert os.read(follower.reader, 4096) == b"another\n"
    follower.close()


def test_two_reads_at_one_place_both_get_what_comes(native: Mounted) -> None:
    follower = Follower(native)
    place = os.lseek(follower.reader, 0, os.SEEK_CUR)
    readings = [Reading(follower.reader, place) for _ in range(2)]
    os.write(follower.writer, b"next\n")
    assert [reading.result() for reading in readings] == [b"next\n"] * 2
    follower.close()


def test_more_files_than_can_wait_natively_get_each_line(native: Mounted) -> None:
    path = native.point / "t/0"
    writer = os.open(path, APPEND)
    os.write(writer, b"first\n")
    readers = [os.open(f"{path}.follow", os.O_RDONLY) for _ in range(30)]
    for reader in readers:
        assert os.read(reader, 4096) == b"first\n"
    with ThreadPoolExecutor(len(readers)) as pool:
        for number in range(30):
            reads = [pool.submit(os.read, reader, 4096) for reader in readers]
            os.write(writer, b"line %d\n" % number)
            assert {read.result(PATIENCE_S) for read in reads} == {b"line %d\n" % number}
    for descriptor in (writer, *readers):
        os.close(descriptor)


def test_a_read_that_waits_continues_after_what_was_trimmed(native: Mounted) -> None:
    follower = Follower(native)
    reading = Reading(follower.reader)
    with Daemon.connect(str(native.data)) or pytest.fail("no daemon") as daemon:
        daemon.ask("trim", {"names": ["t", "0@latest"], "at_once": True})
    os.write(follower.writer, b"next\n")
    assert reading.result() == b"next\n"
    for number in range(30):
        os.write(follower.writer, b"line %d\n" % number)
        assert os.read(follower.reader, 4096) == b"line %d\n" % number
    follower.close()
