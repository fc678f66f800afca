"""Google's conditions, from a server in this process that does what its XML interface documents.

No emulator has that part of the interface: fake-gcs-server 1.52.2 answers each PUT with 400, and
Google's storage-testbench 0.45 heeds the conditions, but sends no ETag and has no lists.

Source: https://cloud.google.com/storage/docs/xml-api/reference-headers
"""

import json
import os
import subprocess
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from logfs.disk.remote.objects import ChangedError, ObjectStore
from logfs.disk.remote.probing import probe
from logfs.disk.remote.s3 import StoreSettings, open_store
from logfs.errors import InvalidConfigError

MODIFIED = "Tue, 24 Nov 2026 14:22:56 GMT"
_CONDITION = "x-goog-if-generation-match"


class Stored(NamedTuple):
    """An object: its contents, and the number of its version."""

    data: bytes
    generation: int


class GoogleServer(ThreadingHTTPServer):
    """One bucket, ``logs``.

    Attributes:
        objects: Key -> object.
        heeds: Whether it heeds conditions.
        deletes: Whether it deletes objects.
        guard: Held during a request.
        conditions: The conditions of all PUTs; "" for none.
        key_id: The only key that it takes; None: it takes requests without any.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.objects: dict[str, Stored] = {}
        self.heeds = self.deletes = True
        self.guard = threading.Lock()
        self.conditions: list[str] = []
        self.key_id: str | None = None
        self.last_generation = 1_700_000_000_000_000

    @property
    def endpoint(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self.server_port}"


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _google(self) -> GoogleServer:
        assert isinstance(self.server, GoogleServer)
        return self.server

    def parse_request(self) -> bool:
        """Refuse a token that another key has signed."""
        if not super().parse_request():
            return False
        token = str(self.headers["Authorization"]).removeprefix("Bearer ").partition(".")[0]
        expected = self._google.key_id
        if expected is None or json.loads(urlsafe_b64decode(f"{token}=="))["kid"] == expected:
            return True
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self._answer(401, b"<Error><Code>AuthenticationRequired</Code></Error>")
        return False

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        condition = self.headers[_CONDITION] or ""
        server = self._google
        with server.guard:
            found = server.objects.get(self._key)
            server.conditions.append(condition)
            # 0: there must be no object.
            is_met = not condition or int(condition) == (found.generation if found else 0)
            if server.heeds and not is_met:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            server.last_generation += 1
            stored = server.objects[self._key] = Stored(data, server.last_generation)
        self._answer(200, b"", stored)

    def do_GET(self) -> None:
        if self._key:
            self._answer_object()
        else:
            self._answer(200, self._list())

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        if not self._google.deletes:
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        with self._google.guard:
            found = self._google.objects.pop(self._key, None)
        self._answer(204 if found else 404, b"")

    def log_message(self, *_: object) -> None:
        pass

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/logs").lstrip("/")

    def _answer_object(self) -> None:
        with self._google.guard:
            found = self._google.objects.get(self._key)
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        span = self.headers["Range"]
        if span is None:
            self._answer(200, found.data, found)
            return
        first, last = map(int, span.removeprefix("bytes=").split("-"))
        part = found.data[first : last + 1]
        where = f"bytes {first}-{first + len(part) - 1}/{len(found.data)}"
        self._answer(206, part, found, where)

    def _list(self) -> bytes:
        prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
        with self._google.guard:
            found = sorted(self._google.objects.items())
        rows = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-11-24T14:22:56.000Z</LastModified>"
            f"<ETag>{_etag(stored)}</ETag><Size>{len(stored.data)}</Size></Contents>"
            for key, stored in found
            if key.startswith(prefix)
        )
        return (
            f"<ListBucketResult>{rows}<IsTruncated>false</IsTruncated></ListBucketResult>".encode()
        )

    def _answer(
        self, status: int, body: bytes, stored: Stored | None = None, where: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if stored is not None:
            self.send_header("ETag", _etag(stored))
            self.send_header("x-goog-generation", str(stored.generation))
            self.send_header("Last-Modified", MODIFIED)
        if where:
            self.send_header("Content-Range", where)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _etag(stored: Stored) -> str:
    return f'"{hash(stored.data):x}"'


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleServer]:
    with GoogleServer() as server:
        account = {"disable_oauth": True, "client_email": "", "private_key": ""}
        account |= {"gcs_base_url": server.endpoint, "private_key_id": ""}
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "account.json"))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def google(server: GoogleServer) -> ObjectStore:
    settings = StoreSettings({}, time.monotonic, server.endpoint, timeout_s=5)
    return open_store("gs://logs/p", settings)


def test_a_store_that_heeds_generations_is_taken(server: GoogleServer, google: ObjectStore) -> None:
    probe(google, b"n" * 16)
    assert not server.objects


def test_a_store_that_ignores_generations_is_refused(
    server: GoogleServer, google: ObjectStore
) -> None:
    server.heeds = False
    with pytest.raises(InvalidConfigError, match=r"^gs://logs/p: it stored a new object in the"):
        probe(google, b"n" * 16)
    assert not server.objects
    server.deletes = False
    with pytest.raises(InvalidConfigError, match=r"^gs://logs/p: it stored a new object in the"):
        probe(google, b"n" * 16)
    server.heeds = True
    with pytest.raises(PermissionError):
        probe(google, b"m" * 16)


def test_an_object_with_the_same_bytes_again_is_another_version(
    server: GoogleServer, google: ObjectStore
) -> None:
    first = google.create("head", b"one")
    second = google.swap("head", b"two", first)
    third = google.swap("head", b"one", second)
    for old in (first, second):
        with pytest.raises(ChangedError):
            google.swap("head", b"three", old)
    data, stat = google.get("head", 100)
    assert (data, stat.etag) == (b"one", third)
    assert server.conditions == ["0", first, second, first, second]
    with pytest.raises(FileExistsError):
        google.create("head", b"four")


def test_objects_are_stored_read_listed_and_removed(google: ObjectStore) -> None:
    google.put("0/a.log", [b"abc", b"def"])
    assert bytes(google.get_range("0/a.log", 2, 3)) == b"cde"
    assert [(stat.key, stat.size) for stat in google.list_all("0/")] == [("0/a.log", 6)]
    google.delete("0/a.log")
    google.delete("0/a.log")
    with pytest.raises(FileNotFoundError):
        google.stat("0/a.log")


@pytest.mark.expect_log("The previous credentials stay in use")
def test_a_key_that_was_renewed_is_used(
    server: GoogleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a service account gets another key, and the old one is refused."""
    command = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
    key = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    account = {"type": "service_account", "client_email": "a@b", "private_key": key}
    file = tmp_path / "key.json"

    def give(key_id: str) -> None:
        file.write_text(json.dumps({**account, "private_key_id": key_id}))

    monkeypatch.delenv("GOOGLE_SERVICE_ACCOUNT")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    give("first")
    server.key_id = "first"
    settings = StoreSettings(os.environ, time.monotonic, server.endpoint, timeout_s=5)
    store = open_store("gs://logs/p", settings)
    store.put("a", [b"1"])
    file.write_text('{"type": "service_acc')
    assert store.get("a", 10)[0] == b"1"
    give("second")
    server.key_id = "second"
    store.put("b", [b"2"])
    assert [stat.key for stat in store.list_all("")] == ["a", "b"]
    server.key_id = "third"
    with pytest.raises(PermissionError, match="401"):
        store.get("a", 10)
