"""A Kafka broker of one's own on loopback, beside the tests.

    with Broker(tmp_path / "kafka") as broker:
        client = Client(broker.bootstrap)
        ...
        broker.stop()                     # SIGTERM; kill() is kill -9
        broker.copy_data(tmp_path / "copy")
        broker.start()

It is broker and controller in one process. Its ports are free ones, drawn at each start; its times
are short ones, so that retention, cleaning and checkpoints come within a second or two. It dies
with the thread that started it. Its log is in ``Broker.log``.

A broker changes the directory it is started on: give it a copy.
"""

import base64
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka import jars, tools
from tests.processes import Process, wait_until

CLUSTER_ID = "bG9nZnMtdGVzdC1jbHVzdA"
"""22 characters of base64, as Kafka wants it; directories may be exchanged between brokers."""
STARTED = "Kafka Server started"
_ADDRESS_IN_USE = "Address already in use"
_ATTEMPTS = 5
_formatted: dict[str, bytes] = {}
"""What Kafka's tool makes of an empty directory: the same for all of these brokers."""

SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One node, and small internal topics.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.max.timeout.ms": str(2**31 - 1),
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # Soon after the start, and often.
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    # The default would come out of a small heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
    # Records of times to come are welcome, and those of times long gone stay.
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
    "log.retention.ms": "-1",
    # After kill -9 a start waits until the registration of the one before has expired; but a broker
    # whose heartbeats are late for so long loses its partitions.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "300",
}
"""server.properties but for what a directory and ports of its own make of it."""


class Broker:
    """A broker and its directory.

    Args:
        directory: Its own folder, made if it is missing: ``data`` is what it serves (log.dirs).
        settings: Changes of its ``SETTINGS``.
        heap: What Java may have; 128m does for small topics.
        flags: How Java runs; for measuring others than the default.

    Attributes:
        data: Its log.dirs.
        bootstrap: Where clients connect; another address after each start.
        started: What it logs once it serves.
    """

    started = STARTED

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        heap: str = "192m",
        flags: Sequence[str] = jars.SMALL,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.data = directory / "data"
        self.bootstrap = ""
        self.settings = {**SETTINGS, **(settings or {})}
        self._heap = heap
        self._flags = flags
        self._log_path = directory / "broker-log"
        self._properties = directory / "server.properties"
        self._process = Process("broker", self._log_path)

    @property
    def log(self) -> str:
        """What it has logged since its last start."""
        return self._process.log_since_start

    @property
    def errors(self) -> list[str]:
        """The errors that it has logged since its last start.

        Not those of a controller that had to wait for its heartbeats: the machine is busy. Nor of
        one that asked itself before it was elected: it asks again.
        """
        lines = [line for line in self.log.splitlines() if " ERROR " in line]
        passing = ("controller event queue overloaded", "(apiKey=CONTROLLER_REGISTRATION,")
        return [line for line in lines if not any(text in line for text in passing)]

    def partition(self, topic: str, number: int = 0) -> Path:
        """Return the directory of a partition."""
        return self.data / f"{topic}-{number}"

    def start(self) -> None:
        """Start, formatting a directory that is not, and return when it serves."""
        assert not self._process.is_started, "the broker runs already"
        for _ in range(_ATTEMPTS):
            self._write_properties()
            if not (self.data / "meta.properties").exists():
                self._format()
            if self._launch():
                return
        raise AssertionError(f"no free port in {_ATTEMPTS} attempts\n{self._end_of_log()}")

    def stop(self) -> None:
        """Stop cleanly, and return when it has stopped."""
        status = self._process.stop()
        # 143 is what Java ends with after a SIGTERM that it has obeyed.
        assert status in {0, 143}, f"the broker ended with {status}\n{self._end_of_log()}"

    def kill(self) -> None:
        """Kill it with ``kill -9``."""
        self._process.kill()

    def restart(self) -> None:
        """Stop cleanly and start again; at another address."""
        self.stop()
        self.start()

    def copy_data(self, to: Path) -> Path:
        """Copy its data directory, sparse files as such, to a path that does not exist."""
        return copy_directory(self.data, to)

    def wait_for_log(self, text: str) -> None:
        """Wait until it has logged something since its last start."""
        self.wait_until(lambda: self._process.has_said(text), f"the broker logged {text!r}")

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        """Wait for something that has to become true while it runs."""
        self._process.wait_until(holds, what)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Its directory is not used afterwards, so a clean stop would waste time.
        if self._process.is_started:
            self.kill()
        if kind is not None:
            sys.stderr.write(self._end_of_log())

    def _end_of_log(self) -> str:
        """What a failure shows: its last lines, and where the others are."""
        lines = self.log.splitlines()[-40:]
        return "\n".join([f"the end of {self._log_path}:", *lines, ""])

    def _write_properties(self) -> None:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", 0))
            port, controller_port = first.getsockname()[1], second.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{port}"
        settings = self.settings | {
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data),
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._properties.write_text(text)

    def _format(self) -> None:
        if _formatted:
            self.data.mkdir(exist_ok=True)
            for name, content in _formatted.items():
                (self.data / name).parent.mkdir(exist_ok=True)
                (self.data / name).write_bytes(content)
            self._name_node()
            return
        got = tools.run(tools.STORAGE, "format", "-t", CLUSTER_ID, "-c", self._properties)
        assert got.status == 0, got
        files = [path for path in self.data.rglob("*") if path.is_file()]
        _formatted.update((str(f.relative_to(self.data)), f.read_bytes()) for f in files)

    def _name_node(self) -> None:
        """Give a formatted directory the number of its node, and its own id."""
        path = self.data / "meta.properties"
        new_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        text = re.sub(r"node\.id=\d+", f"node.id={self.settings['node.id']}", path.read_text())
        path.write_text(re.sub(r"directory\.id=.*", lambda _: f"directory.id={new_id}", text))

    def _launch(self) -> bool:
        """Start the process; False if another one has taken a port in between."""
        self._spawn()
        return self._serves()

    def _spawn(self) -> None:
        """Start the process; returns at once."""
        command = jars.command(
            "kafka.Kafka",
            [self._properties],
            heap=self._heap,
            flags=self._flags,
            has_storage="remote.log.storage.system.enable" in self.settings,
        )
        self._process.start(["setpriv", "--pdeathsig=KILL", "--", *command], cwd=self.directory)

    def _serves(self) -> bool:
        """Wait until the process serves; False if another one has taken a port in between."""
        wait_until(self._has_started_or_ended, "the broker started")
        if self._process.running.poll() is None:
            return True
        self._process.forget()
        assert _ADDRESS_IN_USE in self.log, f"the broker ended at once\n{self._end_of_log()}"
        return False

    def _has_started_or_ended(self) -> bool:
        return self._process.has_said(self.started) or self._process.running.poll() is not None


def copy_directory(directory: Path, to: Path) -> Path:
    """Copy a directory, sparse files as such, to a path that does not exist; return the path.

    Some files of a running broker's directory may vanish meanwhile: stop it first.
    """
    assert not to.exists(), to
    to.parent.mkdir(parents=True, exist_ok=True)
    cp = shutil.which("cp")
    assert cp is not None
    subprocess.run([cp, "-a", "--sparse=always", directory, to], check=True)
    return to
