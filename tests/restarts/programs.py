"""Programs that hold files of a mount open while its daemons end, and what each has to see.

    writers     nine, with writes of odd sizes, with fsync, O_DSYNC and none; three views; libaio
    services    a shell, Python's logging, `logfs append`, a unit of systemd, rsyslog, nginx
    readers     `tail -f`, `cat .follow`, poll, rsyslog's imfile, mmap, a listing, a sealed segment

Every program runs until the file ``stop`` exists. Then each of its lines is there once and in
order, each reader has read everything, and none of them has met an error.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.mounting import COMMAND, environment
from tests.processes import PATIENCE_S, wait_until
from tests.programs.documents import line_for
from tests.programs.nginx import Nginx, requests_in
from tests.programs.rsyslog import Rsyslog, Shipper, messages_in
from tests.programs.user_manager import START, printed_beside_systemd, unit
from tests.restarts import readers, writer
from tests.restarts.held import HeldMount

WRITERS = (
    # partition and view, largest padding, sync
    ("0", 10, "none"),
    ("0", 3000, "fsync"),
    ("0.tsv", 200, "none"),
    ("0.jsonl", 200, "dsync"),
    ("1", 200_000, "none"),
    ("1", 100, "fsync"),
    ("1.tsv", 50_000, "none"),
    ("2", 300, "dsync"),
    ("2", 900_000, "aio"),
)
_STEP_S = 0.02
_SHELL = 'n=0; while [ ! -e "$2" ]; do echo "shell $((n += 1))"; sleep 0.02; done >> "$1"; echo $n'
_LOGGING = """\
import logging, os, sys, time
logging.raiseExceptions = True
logging.getLogger().addHandler({handler})
number = 0
while not os.path.exists(sys.argv[1]):
    number += 1
    logging.warning("logging %d", number)
    time.sleep(0.02)
print(number)
"""
_UNIT = """\
[Service]
Type=oneshot
ExecStart=/bin/bash -c 'n=0; while [ ! -e {stop} ]; do echo "unit $((n += 1))"; sleep 0.02; done'
{output}
"""
NAMES = 100
"""Partitions of the topic that is listed."""
FIXED_LINES = b"".join(b"%07d\n" % number for number in range(250_000))


def start_writers(point: Path, stop: Path) -> "list[subprocess.Popen[str]]":
    """Start a writer for each row of the table."""
    return [
        _start(
            *(sys.executable, writer.__file__, point / "t" / name, f"w{number}"),
            *(str(number), str(largest), sync, stop),
        )
        for number, (name, largest, sync) in enumerate(WRITERS)
    ]


def check_lines(point: Path, counts: list[int]) -> None:
    """Every line of every writer is there once, and in its order; no position was left out."""
    for partition in ("0", "1", "2"):
        found: dict[str, list[int]] = {}
        path = point / "t" / partition
        text = path.read_bytes()
        for line in text.decode().splitlines():
            assert line.count(" ") == 2, line
            name, number, _ = line.split(" ")
            found.setdefault(name, []).append(int(number))
        for index, (written, _, _) in enumerate(WRITERS):
            if written.partition(".")[0] == partition:
                got = found.pop(f"w{index}", [])
                assert got == list(range(1, counts[index] + 1)), f"w{index} in {partition}"
        assert not found
        assert path.stat().st_size == len(text), f"positions of {partition}"


def _start(*command: str | Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )


def _said(process: "subprocess.Popen[str]") -> int:
    """Return the number that a program printed as it ended; it met no error."""
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, ""), (process.args, errors)
    return int(output)


class Programs:
    """All programs, from ``start`` to ``check``.

    Args:
        held: The mount, with all topics: see ``prepare``.
        directory: For their files.
    """

    def __init__(self, held: HeldMount, directory: Path) -> None:
        self._held = held
        self._directory = directory
        self._point = held.point
        self._stop = directory / "stop"
        self._checks: list[Callable[[], None]] = []
        self._threads: list[threading.Thread] = []
        self._ends = contextlib.ExitStack()

    def prepare(self) -> None:
        """Make the topics, and a log with sealed segments."""
        point = self._point
        for name, count in (("t", 3), ("app", 4), ("web", 1), ("syslog", 1), ("wide", NAMES)):
            (point / name).mkdir()
            (point / name / str(count - 1)).touch()
        (point / "fixed").mkdir()
        os.setxattr(point / "fixed", "user.logfs.max.message.bytes", b"100000")
        os.setxattr(point / "fixed", "user.logfs.segment.bytes", b"1048576")
        with (point / "fixed/0").open("ab") as file:
            file.write(FIXED_LINES)

    def __enter__(self) -> "Programs":
        with contextlib.ExitStack() as stack:
            for start in (self._services, self._unit, self._nginx, self._readers, self._writers):
                start(stack)
            self._ends = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.touch()
        self._ends.close()

    def check(self) -> None:
        """End all programs, and compare what they have written and read."""
        self._stop.touch()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"{thread.name} hangs"
        for check in self._checks:
            check()

    def _run(self, stack: contextlib.ExitStack, *command: str | Path) -> "subprocess.Popen[str]":
        process = _start(*command)
        stack.callback(process.communicate)
        stack.callback(process.kill)
        return process

    def _thread(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _numbers(self) -> Iterator[int]:
        """Yield numbers, with pauses, until the stop."""
        number = 0
        while not self._stop.exists():
            number += 1
            yield number
            time.sleep(_STEP_S)

    def _writers(self, stack: contextlib.ExitStack) -> None:
        writers = start_writers(self._point, self._stop)
        for process in writers:
            stack.callback(process.communicate)
            stack.callback(process.kill)
        self._checks.insert(0, lambda: check_lines(self._point, [_said(p) for p in writers]))

    def _services(self, stack: contextlib.ExitStack) -> None:
        """Start programs that write a line at a time: each into its own partition."""
        app, stop = self._point / "app", self._stop
        handler = line_for("Python logging", self._point)
        shell = self._run(stack, "bash", "-c", _SHELL, "-", app / "1", stop)
        logging = self._run(stack, sys.executable, "-c", _LOGGING.format(handler=handler), stop)
        append = self._run(stack, *COMMAND, "append", "--json", self._held.data / "app/2")
        sent = 0

        def feed() -> None:
            nonlocal sent
            assert append.stdin is not None
            for sent in self._numbers():
                append.stdin.write(f"append {sent}\n")
                append.stdin.flush()
            append.stdin.close()
            append.stdin = None

        self._thread("the pipe of logfs append", feed)
        self._checks += [
            lambda: self._check_numbers("1", "shell", _said(shell)),
            lambda: self._check_numbers("0", "logging", _said(logging)),
            lambda: self._check_append(append, sent),
        ]

    def _check_numbers(self, partition: str, name: str, count: int) -> None:
        lines = (self._point / "app" / partition).read_text().splitlines()
        assert lines == [f"{name} {number + 1}" for number in range(count)], name

    def _check_append(self, append: "subprocess.Popen[str]", sent: int) -> None:
        output, errors = append.communicate(timeout=PATIENCE_S)
        assert append.returncode == 0, (output, errors)
        self._check_numbers("2", "append", sent)

    def _unit(self, _stack: contextlib.ExitStack) -> None:
        """Start systemd, and a service with ``StandardOutput=append:``."""
        line = line_for("systemd unit", self._point).replace("/app/0", "/app/3")
        script = unit("some.service", _UNIT.format(stop=self._stop, output=line))
        script += (
            f"{START}systemctl --user start some.service; systemctl --user is-failed some || true\n"
        )
        printed: list[str] = []

        def run() -> None:
            printed.append(printed_beside_systemd(script, self._directory, timeout_s=None))

        def check() -> None:
            assert [text.strip() for text in printed] == ["inactive"]
            lines = (self._point / "app" / "3").read_text().splitlines()
            assert lines == [f"unit {number + 1}" for number in range(len(lines))]
            assert lines, "the unit has written"

        self._thread("systemd", run)
        self._checks.append(check)

    def _nginx(self, stack: contextlib.ExitStack) -> None:
        """Start nginx, rsyslog, and rsyslog that reads what nginx writes."""
        directory = self._directory
        nginx = Nginx(line_for("nginx", self._point), directory)
        stack.enter_context(nginx.child)
        rsyslog = Rsyslog(line_for("rsyslog, logger", self._point), directory / "rsyslog")
        syslog = stack.enter_context(rsyslog.start())
        shipper = Shipper(self._point, directory / "shipper")
        shipping = stack.enter_context(shipper.start())
        shipper.settle()
        web, log = self._point / "web/0", self._point / "syslog/0"
        asked: list[str] = []
        logged: list[str] = []

        def ask() -> None:
            for number in self._numbers():
                nginx.get(f"/{number}")
                asked.append(f"/{number}")

        def tell() -> None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.connect(str(directory / "rsyslog/log"))
                for number in self._numbers():
                    connection.send(f"<13>Nov 24 06:00:00 deploy: message {number}".encode())
                    logged.append(f"message {number}")

        def check() -> None:
            wait_until(lambda: len(requests_in(web)) >= len(asked), "nginx has written")
            assert requests_in(web) == asked, "nginx"
            wait_until(lambda: len(messages_in(log)) >= len(logged), "rsyslog has written")
            assert messages_in(log) == logged, "rsyslog"
            assert str(web) not in nginx.child.said
            assert str(log) not in syslog.said
            # It began at the end.
            lines = web.read_text().splitlines()
            wait_until(lambda: shipper.arrived[-1:] == lines[-1:], "rsyslog has shipped all")
            assert lines[-len(shipper.arrived) :] == shipper.arrived, "rsyslog's imfile"
            assert str(web) not in shipping.said

        self._thread("the client of nginx", ask)
        self._thread("the client of rsyslog", tell)
        self._checks.append(check)

    def _readers(self, stack: contextlib.ExitStack) -> None:
        point, directory = self._point, self._directory
        raw = Path(".segments/fixed-0/00000000000000000000.log")
        for name, content in (
            ("fixed", FIXED_LINES),
            ("names", "\n".join(map(str, range(NAMES))).encode()),
        ):
            (directory / name).write_bytes(content)
        shutil.copy(self._held.data / "fixed-0" / raw.name, directory / "sealed")
        # Each compares what it reads with a file.
        comparing = [
            self._run(stack, sys.executable, readers.__file__, role, point / path, expected, end)
            for role, path, expected, end in (
                ("mapped", "fixed/0@earliest..latest", directory / "fixed", self._stop),
                ("read", "fixed/0", directory / "fixed", self._stop),
                ("read", raw, directory / "sealed", self._stop),
                ("listed", "wide", directory / "names", self._stop),
            )
        ]
        self._checks.append(lambda: _assert_busy(comparing))
        # Each prints what it reads, to its end and later.
        outputs = {
            "tail": ("tail", "-n", "+1", "-f", point / "t/0"),
            "follow": ("cat", point / "t/0@byte=0.follow"),
            "cat": (*COMMAND, "cat", self._held.data / "t/0@earliest.follow"),
        }
        for name, command in outputs.items():
            with (directory / name).open("wb") as output:
                process = subprocess.Popen(
                    list(map(str, command)), stdout=output, stderr=subprocess.STDOUT,
                    env=environment(),
                )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
        ended = directory / "ended"
        polled = self._run(
            stack, sys.executable, readers.__file__, "polled", point / "t/0@byte=0.follow",
            directory / "polled", ended,
        )  # fmt: skip

        def check() -> None:
            whole = (point / "t/0").read_bytes()
            ended.touch()
            _assert_busy([polled])
            for name in (*outputs, "polled"):
                path = directory / name
                wait_until(partial(_has_all, path, whole), f"{name} has all")
                assert path.read_bytes() == whole, name

        self._checks.append(check)


def _has_all(path: Path, whole: bytes) -> bool:
    return path.stat().st_size >= len(whole)


def _assert_busy(processes: "list[subprocess.Popen[str]]") -> None:
    counts = [_said(process) for process in processes]
    assert all(counts), counts
