"""A broker of 2022 and its ZooKeeper: it writes messages of old formats, and knows old requests."""

import socket
from types import TracebackType

from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.processes import Process, wait_until

_CONTROLLER = ("process.roles", "node.id", "controller.listener.names")
_LISTENERS = ("inter.broker.listener.name", "listener.security.protocol.map")
_ZOOKEEPER = "org.apache.zookeeper.server.ZooKeeperServerMain"


class OldBroker(Broker):
    """Kafka 2.8.2, with ZooKeeper; used as ``Broker`` is."""

    started = "started (kafka.server.KafkaServer)"

    def start(self) -> None:
        """Start ZooKeeper, unless it runs, and the broker."""
        if not hasattr(self, "_zookeeper"):
            self._zookeeper_port = _free_port()
            log_path = self.directory / "zookeeper-log"
            self._zookeeper = Process("ZooKeeper", log_path)
            directory = str(self.directory / "zookeeper")
            self._zookeeper.start(_java(_ZOOKEEPER, str(self._zookeeper_port), directory))
            wait_until(lambda: "binding to port" in self._zookeeper.log, "ZooKeeper listens")
        super().start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self._zookeeper.kill()

    def _write_properties(self) -> None:
        self.bootstrap = f"127.0.0.1:{_free_port()}"
        settings = {
            key: value
            for key, value in self.settings.items()
            if key not in {*_CONTROLLER, *_LISTENERS}
        } | {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            "zookeeper.connection.timeout.ms": "60000",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data),
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._properties.write_text(text)

    def _format(self) -> None:
        """Such a broker does it itself."""

    def _spawn(self) -> None:
        self._process.start(_java("kafka.Kafka", str(self._properties)), cwd=self.directory)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _java(main: str, *arguments: str) -> list[str]:
    directory = jars.old_directory()
    if not directory.is_dir():
        raise jars.MissingError(f"{directory} is missing: run python -m tests.kafka.jars")
    logging = f"-Dlog4j.configuration=file:{jars.HERE / 'log4j.properties'}"
    machine = [jars.java(), "-Xmx192m", *jars.SMALL, logging, "-cp", f"{directory}/*"]
    return ["setpriv", "--pdeathsig=KILL", "--", *machine, main, *arguments]
