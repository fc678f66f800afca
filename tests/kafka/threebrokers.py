"""Three brokers that replicate each other's partitions, of which any one may be killed.

    with ThreeBrokers(tmp_path / "kafka") as brokers:
        client = Client(brokers.bootstrap, replicas=3)
        brokers.kill(client.leader("t"))
        brokers.start(node)

Their ports stay over restarts, so ``bootstrap`` holds for all of the test.
"""

import contextlib
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.processes import wait_until

NODES = (1, 2, 3)
_SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


class _Member(Broker):
    """One of them, at ports that it keeps."""

    def __init__(self, directory: Path, node: int, ports: Mapping[int, tuple[int, int]]) -> None:
        super().__init__(
            directory, _SETTINGS | {"node.id": str(node), "broker.rack": f"rack-{node}"}
        )
        self._port, self._controller_port = ports[node]
        self._voters = ",".join(f"{n}@127.0.0.1:{ports[n][1]}" for n in NODES)

    def _write_properties(self) -> None:
        self.bootstrap = f"127.0.0.1:{self._port}"
        settings = self.settings | {
            "controller.quorum.voters": self._voters,
            "listeners": (
                f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}"
            ),
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data),
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._properties.write_text(text)

    def begin(self) -> None:
        """Start; ``wait_for_start`` waits until it serves, which needs a second broker."""
        self._write_properties()
        if not (self.data / "meta.properties").exists():
            self._format()
        self._spawn()

    def wait_for_start(self) -> None:
        """Return when it serves."""
        assert self._serves(), self.log[-2000:]


class ThreeBrokers:
    """A cluster.

    Attributes:
        bootstrap: All three.
    """

    def __init__(self, directory: Path) -> None:
        ports = _free_ports()
        self._members = {n: _Member(directory / str(n), n, ports) for n in NODES}
        self.bootstrap = ",".join(f"127.0.0.1:{ports[n][0]}" for n in NODES)

    def partition(self, node: int, topic: str, number: int = 0) -> Path:
        """Return the directory that a broker has of a partition."""
        return self._members[node].partition(topic, number)

    def kill(self, node: int) -> None:
        """Kill a broker by ``kill -9``."""
        self._members[node].kill()

    def start(self, *nodes: int) -> None:
        """Start brokers, and return when they serve."""
        for node in nodes:
            self._members[node].begin()
        for node in nodes:
            self._members[node].wait_for_start()

    def wait_for_leader(self, client: Client, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition once there is one that runs."""

        def running() -> bool:
            node = client.leader(topic, partition)
            return node > 0 and self._members[node]._process.is_started

        wait_until(running, "a broker leads the partition")
        return client.leader(topic, partition)

    def __enter__(self) -> Self:
        self.start(*NODES)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for member in self._members.values():
            member.__exit__(kind, error, traceback)
        if kind is not None:
            sys.stderr.write(f"brokers at {self.bootstrap}\n")


def _free_ports() -> dict[int, tuple[int, int]]:
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(2 * len(NODES)):
            sock = stack.enter_context(socket.socket())
            sock.bind(("127.0.0.1", 0))
            found.append(sock.getsockname()[1])
    return {n: (found[2 * n - 2], found[2 * n - 1]) for n in NODES}
