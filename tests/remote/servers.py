"""An S3 server on loopback, and a proxy that disturbs the way to it.

    def test_…(bucket: Bucket) -> None:              # of tests/conftest.py: empty, for this test
        store = bucket.open()                        # an ObjectStore
        environment = {**os.environ, **bucket.environment}
        properties = bucket.properties               # lines of logfs.remote
        bucket.damage("orders-…/0/….log", 5000)      # other bytes than were stored

    def test_…(bucket: Bucket, faults: FaultProxy) -> None:
        slow = bucket.through(faults)
        with faults.latency(30, jitter_ms=10): ...
        with faults.hanging(): ...                   # no byte passes
        with faults.refusing(): ...                  # no connection
        with faults.bandwidth(1000): ...             # KB/s of each connection
        with faults.cutting(100_000): ...            # connections end after so many bytes

The server is versitygw, its objects are plain files; or SeaweedFS where that could not be built.
"""

import contextlib
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.s3 import StoreSettings, open_store
from tests.processes import Process
from tests.remote import programs

ACCESS_KEY = "logfsaccess"
SECRET_KEY = "logfssecret123"
CREDENTIALS: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": "us-east-1",
}
_ATTEMPTS = 5


def free_port() -> int:
    """Return a port of loopback that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class ObjectServer:
    """An S3 server.

    Args:
        directory: Its own folder, made if it is missing.
        certificate: Files of a certificate and its key: it speaks TLS. Only if ``has_files``.
        access_log: File that gets a line for each request. Only if ``has_files``.
        has_accounts: Whether it has accounts; see ``accounts``. Only if ``has_files``.

    Attributes:
        endpoint: Where clients connect; the same after every start.
    """

    def __init__(
        self,
        directory: Path,
        certificate: tuple[Path, Path] | None = None,
        access_log: Path | None = None,
        *,
        has_accounts: bool = False,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._program = programs.server()
        self._directory = directory
        self._objects = directory / "objects"
        self._process = Process("object server", directory / "log")
        self._certificate = certificate
        self._access_log = access_log
        self._has_accounts = has_accounts
        self._choose_port()

    def __enter__(self) -> "ObjectServer":
        for attempt in range(_ATTEMPTS):
            try:
                self.start()
                break
            except AssertionError:
                # Another program may have taken the port.
                self._process.forget()
                self._choose_port()
                if attempt == _ATTEMPTS - 1:
                    raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_started:
            self._process.kill()

    @property
    def has_files(self) -> bool:
        """Whether its objects are plain files."""
        return self._program is programs.VERSITYGW

    def start(self) -> None:
        """Start it; returns when it answers."""
        self._objects.mkdir(exist_ok=True)
        command = self._versitygw() if self.has_files else self._seaweedfs()
        self._process.start(command, cwd=self._directory)
        self._process.wait_until(self._answers, f"{self.endpoint} answers")

    def stop(self) -> None:
        """End it by SIGTERM."""
        self._process.stop()

    def kill(self) -> None:
        """End it by ``kill -9``."""
        self._process.kill()

    def bucket(self, name: str, prefix: str = "logs") -> "Bucket":
        """Make an empty bucket, and return a prefix in it."""
        bucket = Bucket(self, name, prefix, self.endpoint)
        if self.has_files:
            (self._objects / name).mkdir()
        else:
            # The first object makes it.
            whole = replace(bucket, prefix="").open()
            whole.put("first", [b""])
            whole.delete("first")
        return bucket

    def path_of(self, bucket: str, key: str) -> Path:
        """Return the file of an object; only if ``has_files``."""
        return self._objects / bucket / key

    def _choose_port(self) -> None:
        self._port = free_port()
        scheme = "http" if self._certificate is None else "https"
        self.endpoint = f"{scheme}://127.0.0.1:{self._port}"

    def _versitygw(self) -> list[str | Path]:
        # Not every file system has extended attributes for the metadata of objects.
        sidecar = self._directory / "metadata"
        sidecar.mkdir(exist_ok=True)
        command: list[str | Path] = [programs.found(programs.VERSITYGW)]
        command += ["--access", ACCESS_KEY, "--secret", SECRET_KEY]
        command += ["--port", f"127.0.0.1:{self._port}", "--quiet"]
        if self._access_log is not None:
            command += ["--access-log", self._access_log]
        if self._has_accounts:
            accounts = self._directory / "accounts"
            accounts.mkdir(exist_ok=True)
            command += ["--iam-dir", accounts, "--iam-cache-disable"]
        if self._certificate is not None:
            certificate, key = self._certificate
            command += ["--cert", certificate, "--key", key]
        return [*command, "posix", "--sidecar", sidecar, self._objects]

    def _seaweedfs(self) -> list[str | Path]:
        config = self._directory / "s3.json"
        credentials = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "logfs", "credentials": credentials, "actions": actions}
        config.write_text(json.dumps({"identities": [identity]}))
        command: list[str | Path] = [programs.found(programs.SEAWEEDFS), "server", "-s3"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self._objects}"]
        command += [f"-s3.config={config}", f"-s3.port={self._port}"]
        # Its own choice of the second port is 10,000 more than the first: there may be none.
        for name in ("s3.port", "master.port", "volume.port", "filer.port"):
            if name != "s3.port":
                command.append(f"-{name}={free_port()}")
            command.append(f"-{name}.grpc={free_port()}")
        for name in ("s3.port.iceberg", "s3.port.lance", "mq.agent.port", "mq.broker.port"):
            command.append(f"-{name}={free_port()}")
        return [*command, "-master.volumeSizeLimitMB=64", "-volume.max=10000"]

    def _answers(self) -> bool:
        try:
            trusting = ssl._create_unverified_context()
            with urllib.request.urlopen(self.endpoint, timeout=1, context=trusting):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return error.code < 500
        except OSError:
            return False


@dataclass(frozen=True)
class Bucket:
    """A prefix in a bucket of a server, as one client reaches it.

    Attributes:
        server: The server.
        name: The bucket.
        prefix: Without "/" at either end; "" for the whole bucket.
        endpoint: The server, or a proxy to it.
    """

    server: ObjectServer
    name: str
    prefix: str
    endpoint: str

    @property
    def url(self) -> str:
        """The address that commands get."""
        return f"s3://{self.name}/{self.prefix}".rstrip("/")

    @property
    def environment(self) -> dict[str, str]:
        """What a command needs in its environment."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}

    @property
    def properties(self) -> str:
        """What a data directory needs in ``logfs.remote``."""
        return f"url={self.url}\nendpoint={self.endpoint}\nregion=us-east-1\n"

    def through(self, faults: "FaultProxy") -> "Bucket":
        """Return the same prefix, reached through a proxy."""
        return replace(self, endpoint=faults.endpoint)

    def open(self, timeout_s: float = 30) -> ObjectStore:
        """Return a store of it."""
        settings = StoreSettings(
            {**CREDENTIALS}, time.monotonic, self.endpoint, timeout_s=timeout_s
        )
        return open_store(self.url, settings)

    def damage(self, key: str, position: int) -> None:
        """Change a byte of an object, as a failing disk would."""
        if self.server.has_files:
            path = self.server.path_of(self.name, f"{self.prefix}/{key}".lstrip("/"))
            with path.open("r+b") as file:
                file.seek(position)
                byte = file.read(1)[0]
                file.seek(position)
                file.write(bytes([byte ^ 0xFF]))
            return
        store = replace(self, endpoint=self.server.endpoint).open()
        data = bytearray(store.get(key, 1 << 40)[0])
        data[position] ^= 0xFF
        store.put(key, [bytes(data)])


class FaultServer:
    """A toxiproxy, which has any number of ``FaultProxy``.

    Args:
        directory: Its own folder, made if it is missing.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._process = Process("fault proxy", directory / "log")
        self._port = free_port()
        self._made = 0

    def __enter__(self) -> "FaultServer":
        program = programs.found(programs.TOXIPROXY)
        self._process.start([program, "-host", "127.0.0.1", "-port", str(self._port)])
        self._process.wait_until(self._answers, "toxiproxy answers")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def proxy(self, endpoint: str) -> "FaultProxy":
        """Make a proxy to a server."""
        self._made += 1
        name = f"proxy{self._made}"
        row = {"name": name, "listen": "127.0.0.1:0", "enabled": True}
        row["upstream"] = endpoint.removeprefix("http://")
        made = self.request("POST", "/proxies", row)
        return FaultProxy(self, name, f"http://{made['listen']}")

    def request(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """Send a request to its API and return the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}", data, method=method
        )
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=10) as reply:
            answer: dict[str, object] = json.loads(reply.read() or b"{}")
            return answer

    def _answers(self) -> bool:
        try:
            self.request("GET", "/proxies")
        except OSError:
            return False
        return True


class FaultProxy:
    """One way to a server that can be disturbed. Faults end with the ``with`` block.

    Attributes:
        endpoint: Where clients connect.
    """

    def __init__(self, server: FaultServer, name: str, endpoint: str) -> None:
        self.endpoint = endpoint
        self._server = server
        self._name = name

    def latency(
        self, latency_ms: int, jitter_ms: int = 0
    ) -> contextlib.AbstractContextManager[None]:
        """Delay every answer."""
        return self._toxic("latency", latency=latency_ms, jitter=jitter_ms)

    def bandwidth(self, rate_kb_s: int) -> contextlib.AbstractContextManager[None]:
        """Slow down what each connection returns."""
        return self._toxic("bandwidth", rate=rate_kb_s)

    def hanging(self) -> contextlib.AbstractContextManager[None]:
        """Let no byte of an answer pass; connections stay open until the fault ends."""
        return self._toxic("timeout", timeout=0)

    def cutting(self, byte_count: int) -> contextlib.AbstractContextManager[None]:
        """End every connection after so many bytes of answers."""
        return self._toxic("limit_data", bytes=byte_count)

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse all connections, and end those that are open."""
        self._enable(is_enabled=False)
        try:
            yield
        finally:
            self._enable(is_enabled=True)

    def heal(self) -> None:
        """End all faults."""
        self._enable(is_enabled=True)
        toxics = self._server.request("GET", f"/proxies/{self._name}")["toxics"]
        assert isinstance(toxics, list)
        for toxic in toxics:
            self._remove(toxic["name"])

    @contextlib.contextmanager
    def _toxic(self, kind: str, **attributes: int) -> Iterator[None]:
        row = {"name": kind, "type": kind, "stream": "downstream", "attributes": attributes}
        self._server.request("POST", f"/proxies/{self._name}/toxics", row)
        try:
            yield
        finally:
            self._remove(kind)

    def _remove(self, toxic: str) -> None:
        self._server.request("DELETE", f"/proxies/{self._name}/toxics/{toxic}")

    def _enable(self, *, is_enabled: bool) -> None:
        self._server.request("POST", f"/proxies/{self._name}", {"enabled": is_enabled})
