"""A mirror and a forward over a network that cuts answers and brings garbage."""

import contextlib
import random
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.machine.disks import disk_of
from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.forwards import RunningForward, append, check_forwarded, forward_plan, make, some
from tests.kafka.mirrors import RunningMirror, plan_for, stored
from tests.log.verifying import check

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.allow_log("logfs.kafka.", "logfs.log.losses"),
]
START_MS = 1_700_000_000_000
_CORRELATION_BYTES = 4


class Proxy(socketserver.ThreadingTCPServer):
    """Passes frames on to a broker, and answers back, some of them cut, or garbage.

    Attributes:
        odds: How likely an answer is to be disturbed.
        target: The port of the broker.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, chance: random.Random) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.chance = chance
        self.odds = 0.0
        self.target = 0
        self.port = int(self.server_address[1])

    def disturbed(self, frame: bytes) -> tuple[bytes, bool]:
        """Return what is sent of an answer, and whether the connection ends then."""
        chance = self.chance
        if chance.random() >= self.odds:
            return struct.pack(">i", len(frame)) + frame, False
        whole = struct.pack(">i", len(frame)) + frame
        match chance.randrange(4):
            case 0:
                return whole[: chance.randrange(len(whole))], True
            case 1:
                head = frame[:_CORRELATION_BYTES]
                garbage = head + chance.randbytes(len(frame) - len(head))
                return struct.pack(">i", len(garbage)) + garbage, False
            case 2:
                return struct.pack(">i", chance.choice([-1, 2**31 - 1])) + frame, True
            case _:
                return struct.pack(">i", len(frame)) + chance.randbytes(len(frame)), False


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        proxy = self.server
        assert isinstance(proxy, Proxy)
        try:
            with socket.create_connection(("127.0.0.1", proxy.target)) as broker:
                asking = threading.Thread(target=_pass_on, args=(self.request, broker), daemon=True)
                asking.start()
                while True:
                    (size,) = struct.unpack(">i", _read(broker, 4))
                    data, is_last = proxy.disturbed(_read(broker, size))
                    self.request.sendall(data)
                    if is_last:
                        break
        except OSError:
            pass
        finally:
            with contextlib.suppress(OSError):
                self.request.shutdown(socket.SHUT_RDWR)


def _pass_on(source: socket.socket, to: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            to.sendall(data)
    except OSError:
        pass
    finally:
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_RDWR)


def _read(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        got = source.recv(size - len(data))
        if not got:
            raise ConnectionResetError
        data += got
    return data


class ProxiedBroker(Broker):
    """A broker that sends its clients to a proxy."""

    proxy: Proxy

    def _write_properties(self) -> None:
        super()._write_properties()
        text = self._properties.read_text()
        direct = self.bootstrap
        self.proxy.target = int(direct.rpartition(":")[2])
        self.bootstrap = f"127.0.0.1:{self.proxy.port}"
        self._properties.write_text(
            text.replace(
                f"advertised.listeners=PLAINTEXT://{direct}",
                f"advertised.listeners=PLAINTEXT://{self.bootstrap}",
            )
        )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ProxiedBroker]:
    broker = ProxiedBroker(tmp_path / "kafka")
    with Proxy(random.Random(1)) as proxy:
        broker.proxy = proxy
        serving = threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True)
        serving.start()
        with broker:
            yield broker
        proxy.shutdown()


def records(count: int, first: int = 0) -> list[Record]:
    return [Record(0, START_MS + n, None, b"value %d" % n) for n in range(first, first + count)]


def test_everything_arrives_once_and_as_it_is(
    broker: ProxiedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client, proxy = Client(broker.bootstrap), broker.proxy
    for topic in ("mirrored", "sent"):
        client.create_topic(topic)
    local, data = tmp_path / "local", tmp_path / "data"
    local.mkdir()
    make(local, "sent")
    mirror_plan = plan_for(broker.bootstrap, "mirrored")
    plan = forward_plan(broker.bootstrap, "sent")
    for number in range(8):
        proxy.odds = 0.0
        client.produce("mirrored", records(300, 300 * number))
        append(local, "sent", some(100, 100 * number))
        with (
            RunningMirror(data, mirror_plan) as mirror,
            RunningForward(local, plan) as forward,
        ):
            mirror.wait_until(lambda: mirror.mirror.partitions, "it has begun")
            forward.wait_until(lambda: forward.forward.partitions, "it has begun")
            proxy.odds = 0.3
            for part in range(5):
                append(local, "sent", some(10, 10_000 + 50 * number + 10 * part))
                threading.Event().wait(0.3)
            proxy.odds = 0.0
            mirror.wait_for("mirrored", 300 * (number + 1))
            forward.wait_for(150 * (number + 1))
            assert not mirror.mirror.losses
            assert not mirror.mirror.failures
            assert not forward.forward.failures
    assert stored(data / "mirrored-0") == stored(broker.partition("mirrored"))
    assert not check(disk_of(str(data))).damages
    assert len(check_forwarded(client, local, "sent")) == 1200
    assert "a bug in logfs" not in caplog.text
