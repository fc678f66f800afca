"""Files that are opened, written and closed natively, through the kernel.

Each open file here may be one that Python does not know, until a request of it takes Python.
"""

import errno
import json
import os
import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from logfs.client import Daemon
from tests.fs.mounting import Mounted
from tests.mounting import logfs
from tests.processes import wait_until
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

APPEND = os.O_WRONLY | os.O_APPEND
NAMES = ("0", "0", "0.tsv", "0.jsonl", "0.in", "0.in", "0.jsonl.in")
LINE = b'{"value":"line %d"}\n'


def metric(data: Path, name: str) -> int:
    """Return a number that the daemon tells."""
    with Daemon.connect(str(data)) or pytest.fail("no daemon") as daemon:
        text = daemon.prometheus().decode()
    found = re.search(rf"^{re.escape(name)} (\d+)", text, re.MULTILINE)
    assert found is not None, name
    return int(found[1])


def native_opens(data: Path) -> int:
    return metric(data, "logfs_native_opens_total")


def echo(path: Path, data: bytes) -> None:
    """Do what a shell does for ``>>``."""
    file = os.open(path, APPEND | os.O_CREAT)
    try:
        os.write(file, data)
    finally:
        os.close(file)


def errno_of(step: Callable[[], object]) -> int:
    """Return the errno of a call; 0: it succeeded."""
    try:
        step()
    except OSError as error:
        return error.errno or 0
    return 0


def open_natively(data: Path, path: Path) -> int:
    """Open a file natively; a few lines are written before."""
    for _ in range(100):
        before = native_opens(data)
        os.stat(path)
        file = os.open(path, APPEND)
        if native_opens(data) > before:
            return file
        os.write(file, b"before\n")
        os.close(file)
    pytest.fail("no file was opened natively")


def test_a_line_of_a_shell_takes_no_python(native: Mounted) -> None:
    path, expected = native.point / "t/0", b""
    for number in range(300):
        line = b"line %d\n" % number
        echo(path, line)
        expected += line
        assert os.stat(path).st_size == len(expected)
    assert path.read_bytes() == expected
    assert native_opens(native.data) > 200
    released = 'logfs_requests_total{operation="release"}'
    wait_until(lambda: metric(native.data, released) >= 300, "all files are closed")
    assert metric(native.data, 'logfs_open_files{mode="append"}') == 0


PIECES: tuple[tuple[bytes, ...], ...] = (
    (b"half", b" line\n"),
    (b"whole\nhalf",),
    (b"whole\n", b"half"),
    (b"", b"\n"),
    (b"\n\n",),
)


def test_pieces_become_the_same_records(native: Mounted) -> None:
    path = native.point / "t/0"
    for pieces in PIECES:
        file = open_natively(native.data, path)
        before = path.read_bytes()
        for piece in pieces:
            os.write(file, piece)
        os.close(os.dup(file))
        os.close(file)
        data = b"".join(pieces)
        assert path.read_bytes() == before + (data if data.endswith(b"\n") else data + b"\n")


def test_what_is_refused_is_refused(native: Mounted) -> None:
    path = native.point / "t/0"
    os.setxattr(native.point / "t", "user.logfs.max.message.bytes", b"100000")
    open_file = open_natively(native.data, path)
    for flags in (os.O_WRONLY, APPEND | os.O_TRUNC, os.O_RDWR):
        with pytest.raises(PermissionError):
            os.open(path, flags)
    native.expected = ["max.message.bytes is 100000"]
    with pytest.raises(OSError, match=os.strerror(errno.EMSGSIZE)):
        os.write(open_file, b"x" * 200_000 + b"\n")
    assert os.write(open_file, b"short\n") == 6
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.read(open_file, 1)
    os.close(open_file)
    assert path.read_bytes().endswith(b"before\nshort\n")


def test_the_file_of_a_deleted_topic_is_stale(native: Mounted, tmp_path: Path) -> None:
    other = Mounted(tmp_path / "other", "no_native")
    other.start()
    try:
        (other.point / "t").mkdir()
        echo(other.point / "t/0", b"line\n")
        outcomes = []
        for mounted in (native, other):
            topic = mounted.point / "t"
            path = topic / "0"
            file = open_natively(native.data, path) if mounted is native else os.open(path, APPEND)
            logfs("topic", "delete", topic)
            steps = (partial(os.write, file, b"late\n"), partial(os.close, os.dup(file)))
            outcomes.append([errno_of(step) for step in (*steps, partial(os.close, file))])
            topic.mkdir()
            echo(path, b"line\n")
            assert path.read_bytes() == b"line\n"
        assert outcomes[0] == outcomes[1]
        assert outcomes[0][0] == errno.ESTALE
    finally:
        other.clear()


def test_files_are_opened_by_python_where_something_is_noted_of_each(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, f"access_log={tmp_path}/access")
    mounted.start()
    try:
        (mounted.point / "t").mkdir()
        for number in range(30):
            echo(mounted.point / "t/0", b"line %d\n" % number)
        assert native_opens(mounted.data) == 0
        mounted.stop()
    finally:
        mounted.clear()
    noted = [json.loads(line) for line in (tmp_path / "access").read_text().splitlines()]
    assert [row["operation"] for row in noted].count("open") == 30


class Program:
    """Opens, writes and closes files by chance; two with the same seed do the same.

    Attributes:
        outcomes: What each step has returned or raised.
    """

    def __init__(self, point: Path, seed: int) -> None:
        self._point = point
        self._chance = Random(seed)
        self._files: list[int] = []
        self.outcomes: list[object] = []

    def run(self, steps: int) -> None:
        """Do so many steps."""
        for number in range(steps):
            step = self._chance.choice((*[self._open] * 4, *[self._write] * 6, self._close,
                                        self._close, self._close, self._rest))  # fmt: skip
            try:
                self.outcomes.append((step.__name__, step(number)))
            except OSError as error:
                self.outcomes.append((step.__name__, error.errno))

    def end(self) -> tuple[list[object], list[object]]:
        """Close all files; returns the outcomes and the records."""
        while self._files:
            self._close(0)
        text = (self._point / "t/0.jsonl").read_bytes()
        rows = [json.loads(line) for line in text.splitlines()]
        return self.outcomes, [[row["offset"], row["key"], row["value"]] for row in rows]

    def _open(self, _: int) -> None:
        flags = self._chance.choice((APPEND, APPEND, APPEND, APPEND | os.O_CREAT, os.O_WRONLY,
                                     APPEND | os.O_DSYNC, APPEND | os.O_TRUNC))  # fmt: skip
        self._files.append(os.open(self._point / "t" / self._chance.choice(NAMES), flags))

    def _write(self, number: int) -> int | None:
        if not self._files:
            return None
        line = LINE % number
        data = self._chance.choice((line, line, line, line * 3, line[:9], line[9:], b"\n"))
        return os.write(self._chance.choice(self._files), data)

    def _close(self, _: int) -> None:
        if self._files:
            os.close(self._files.pop(self._chance.randrange(len(self._files))))

    def _rest(self, number: int) -> object:
        path = self._point / "t/0"
        match number % 5:
            case 0 if self._files:
                self._files.append(os.dup(self._files[-1]))
            case 1 if self._files:
                os.fsync(self._files[-1])
            case 2:
                os.rename(path, path.with_name("1"))
            case 3:
                path.parent.rmdir()
            case 4:
                return os.stat(path).st_size
        return None


def test_programs_get_the_same_with_and_without(tmp_path: Path) -> None:
    done = []
    for number, words in enumerate(((), ("no_native",))):
        mounted = Mounted(tmp_path / str(number), *words)
        mounted.start()
        try:
            (mounted.point / "t").mkdir()
            echo(mounted.point / "t/0", b"line\n")
            program = Program(mounted.point, seed=11)
            program.run(1500)
            done.append(program.end())
            assert bool(native_opens(mounted.data) > 20) == (not words)
        finally:
            mounted.clear()
    assert done[0] == done[1]


def test_open_files_continue_in_other_daemons(tmp_path: Path) -> None:
    ends = (signal.SIGKILL, signal.SIGUSR1, signal.SIGUSR2)
    with HeldMount(tmp_path) as held:
        path = held.point / "t/0"
        path.parent.mkdir()
        for number in ends:
            file = open_natively(held.data, path)
            unused = open_natively(held.data, path)
            assert metric(held.data, 'logfs_open_files{mode="append"}') == 2
            before = path.read_bytes()
            os.write(file, b"with the first\n")
            held.end_daemon(number)
            os.write(file, b"half, ")
            os.write(file, b"with the second\n")
            os.close(file)
            os.close(unused)
            assert path.read_bytes() == before + b"with the first\nhalf, with the second\n"
        wait_until(
            lambda: metric(held.data, 'logfs_open_files{mode="append"}') == 0, "all are closed"
        )


def test_programs_do_not_notice_that_daemons_end(tmp_path: Path) -> None:
    chance, done = Random(3), []
    for number, words in enumerate(((), ("-o", "no_native"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        with HeldMount(folder, *words) as held:
            (held.point / "t").mkdir()
            echo(held.point / "t/0", b"line\n")
            program = Program(held.point, seed=12)
            for _ in range(2):
                program.run(200)
                if not words:
                    held.end_daemon(chance.choice((signal.SIGKILL, signal.SIGUSR1)))
            done.append(program.end())
    assert done[0] == done[1]


def test_many_files_are_open(native: Mounted) -> None:
    path, limit = native.point / "t/0", 900
    files = [open_natively(native.data, path)]
    files += [os.open(path, APPEND) for _ in range(limit - 1)]
    assert native_opens(native.data) >= limit
    for number, file in enumerate(files):
        os.write(file, b"line %d\n" % number)
    assert metric(native.data, 'logfs_open_files{mode="append"}') == len(files) == limit
    for file in files:
        os.close(file)
    lines = path.read_bytes().splitlines()
    assert lines[-limit:] == [b"line %d" % number for number in range(limit)]
